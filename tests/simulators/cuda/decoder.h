// One instruction of the text on its way to one of the program.
//
// A rule reads the words behind an instruction's name in the order of the ISA's syntax. It gives
// false as long as the words are not its own; from the first operand on it fails with an error.
#pragma once

#include <functional>
#include <initializer_list>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "lexer.h"
#include "program.h"

namespace ptx {

// What stands between the commas of an instruction.
struct Operand {
    enum Kind : uint8_t { Register, Number, Constant, Variable, Name, Vector, Sink };
    Kind kind = Sink;
    Token::Kind literal = Token::Integer;  // of a Number
    Type type = Type::none;   // of a Register or a Constant (a special register)
    Space space = Space::generic;  // of a Variable
    bool negated = false;     // !p
    bool bracketed = false;   // [a]
    bool launch_param = false;  // a Variable that is a parameter of an entry
    uint32_t slot = 0;        // of a Register, a Constant, or the address of a Variable
    uint64_t bits = 0;        // of a Number
    int64_t offset = 0;       // behind a plus, in an address
    uint64_t at = 0;          // of a launch_param: where it starts in the block of parameters
    uint64_t nbytes = 0;      // of a Variable
    std::string name;         // as written
    std::vector<Operand> parts;  // of a Vector, the two of p|q, coordinates behind an object
    bool pair = false;        // p|q
};

// What the rules need of the routine that is being read.
class Frame {
public:
    virtual ~Frame() = default;
    virtual uint32_t constant(uint64_t bits) = 0;  // its slot
    virtual uint32_t scratch() = 0;                // a slot that nobody reads
    virtual Routine& routine() = 0;
    virtual void jump(const std::string& label) = 0;  // of the instruction being read
    // Appends where a .branchtargets leads to Routine::lists: how many.
    virtual uint32_t jump_table(const std::string& label) = 0;
    virtual const Routine* callee(const std::string& name) = 0;  // null: not declared
};

class Decoder {
public:
    Decoder(Frame& frame, std::string name, std::vector<std::string> words,
            std::vector<Operand> operands, uint32_t line);

    Instruction out;
    Frame& frame;

    // Words. Each takes the next word if it is wanted.
    bool word(const char* wanted);
    bool one_of(std::initializer_list<const char*> wanted, const char** found = nullptr);
    Type type();
    bool rounding();  // .rn .rz .rm .rp into `out`
    bool done() const { return word_ == words_.size(); }

    // Operands, in order. `to` is a register that is written, `from` a value that is read.
    size_t operands() const { return operands_.size(); }
    bool more() const { return operand_ < operands_.size(); }
    const Operand& peek() const;
    const Operand& take();
    uint32_t to(Type type, bool wider = false);
    uint32_t from(Type type, bool wider = false);
    uint32_t to(const Operand& operand, Type type, bool wider = false);
    uint32_t from(const Operand& operand, Type type, bool wider = false);
    void address(Space space);  // into out.a and out.offset
    uint32_t predicate(bool& negated);  // a value p or !p
    uint64_t immediate();       // a number that is an integer
    void list(const std::vector<uint32_t>& slots);  // into out.list and out.count

    // Whole instructions of n operands of one type. False where `run` is null or words are left.
    bool unary(Type type, Handler run);
    bool binary(Type type, Handler run);
    bool ternary(Type type, Handler run);

    [[noreturn]] void fail(const std::string& what) const;
    const std::string& name() const { return name_; }

private:
    std::string name_;
    std::vector<std::string> words_;
    std::vector<Operand> operands_;
    uint32_t line_;
    size_t word_ = 0, operand_ = 0;
};

using Rule = bool (*)(Decoder&);
using Rules = std::multimap<std::string, Rule>;  // by the name of the instruction

// Each group of instructions adds its own.
void add_integer_rules(Rules& rules);
void add_bit_rules(Rules& rules);
void add_field_rules(Rules& rules);
void add_carry_rules(Rules& rules);
void add_float_rules(Rules& rules);
void add_half_rules(Rules& rules);
void add_compare_rules(Rules& rules);
void add_convert_rules(Rules& rules);
void add_move_rules(Rules& rules);
void add_memory_rules(Rules& rules);
void add_atomic_rules(Rules& rules);
void add_control_rules(Rules& rules);
void add_barrier_rules(Rules& rules);
void add_warp_rules(Rules& rules);
void add_texture_rules(Rules& rules);
void add_surface_rules(Rules& rules);

const Rules& all_rules();

// The instruction of a statement. Throws ParseError.
Instruction decode(Frame& frame, const std::string& name, const std::vector<std::string>& words,
                   const std::vector<Operand>& operands, uint32_t line);

}  // namespace ptx
