// A parsed module: instructions of fixed size, their operands resolved to slots.
//
// A routine's frame is one array of 64-bit slots: registers, the constants it names, and the
// special registers that stay the same for a thread. So every operand is read alike. Registers
// that nobody has written are 0, which real ones are not. Of a slot only the bits of an
// instruction's type count: what lies above them is left over.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine.h"
#include "types.h"

namespace ptx {

struct Thread;
struct Instruction;
using Handler = void (*)(Thread&, const Instruction&);

constexpr size_t most_local = 512 * 1024;  // bytes of a thread, over all its frames

enum class Rounding : uint8_t { nearest, zero, down, up };

struct Instruction {
    Handler run = nullptr;
    int64_t offset = 0;  // added to an address; the distance of a jump, in instructions
    int32_t guard = -1;  // slot of the predicate; -1: none
    uint32_t d = 0, a = 0, b = 0, c = 0;  // slots
    uint32_t list = 0;   // where in Routine::lists more slots stand
    uint16_t count = 0;  // how many
    uint16_t mode = 0;   // what the handler makes of it
    uint32_t line = 0;   // in the text, from 1
    Type type = Type::none, from = Type::none;
    Rounding rounding = Rounding::nearest;
    bool negated = false;  // the guard is
    bool narrow = false;   // the address is in a register of 32 bits
    bool ftz = false, saturate = false, nan = false, relu = false;
};

// Special registers that do not change while a thread runs.
enum class Special : uint8_t {
    tid_x, tid_y, tid_z, ntid_x, ntid_y, ntid_z, ctaid_x, ctaid_y, ctaid_z,
    nctaid_x, nctaid_y, nctaid_z, laneid, warpid, nwarpid, smid, nsmid, gridid,
    lanemask_eq, lanemask_le, lanemask_lt, lanemask_ge, lanemask_gt,
    total_smem_size, dynamic_smem_size,
};

// State spaces (ISA, section 5.1) as addresses have them; `generic` is none in particular.
enum class Space : uint8_t { generic, global, shared, local, param, constant };

// Generic addresses of the spaces that are not global. The driver's own lie below.
constexpr uint64_t shared_window = 0xf1ull << 56;
constexpr uint64_t local_window = 0xf2ull << 56;
constexpr uint64_t param_window = 0xf3ull << 56;
constexpr uint64_t within_window = (1ull << 56) - 1;

// A parameter or a result of a routine: bytes of its frame in local memory, or a register.
struct Formal {
    uint32_t nbytes = 0;
    uint64_t offset = 0;  // in the frame's local memory
    int32_t slot = -1;    // of the register, where it is one

    bool operator==(const Formal& other) const {
        return nbytes == other.nbytes && offset == other.offset && slot == other.slot;
    }
};

struct SpecialSlot {
    Special special;
    uint32_t slot;
};

// A slot that holds the address of a variable of the module.
struct AddressSlot {
    uint32_t slot, variable;
};

struct Routine {
    std::string name;
    uint32_t number = 0;  // its place in Body::routines
    bool declared = false, defined = false, is_entry = false;
    std::vector<Instruction> code;
    std::vector<uint64_t> frame;  // as a call begins with
    std::vector<SpecialSlot> specials;
    std::vector<AddressSlot> addresses;
    std::vector<uint32_t> own_shared;      // slots of .shared of an entry: behind the module's
    std::vector<uint32_t> dynamic_shared;  // slots of .extern .shared: behind the static
    std::vector<uint32_t> locals;          // slots that hold an offset in the frame's local memory
    std::vector<uint32_t> lists;
    std::vector<Formal> params, results;
    uint32_t local_nbytes = 0;  // .local and .param variables
};

struct Body {
    std::vector<std::unique_ptr<Routine>> routines;
    std::map<std::string, Routine*> by_name;
    std::vector<std::string> lines;  // of the text, for messages
    uint32_t shared_nbytes = 0;      // of the module's own variables
};

}  // namespace ptx
