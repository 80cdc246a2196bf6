#include "decoder.h"
namespace ptx {
void add_bit_rules(Rules&) {}
void add_carry_rules(Rules&) {}
void add_half_rules(Rules&) {}
void add_convert_rules(Rules&) {}
void add_atomic_rules(Rules&) {}
}
