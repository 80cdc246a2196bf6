// A decoded instruction, and the table of what each does.
#pragma once

#include "wave.h"

namespace gfx9 {

// How a number in the text is read, and how wide a register operand is.
enum class Type : uint8_t { B16, F16, B32, F32, B64, F64, Mask, Packed, Mixed };

enum class Kind : uint8_t { None, Vector, Scalar, Constant, Condition };

enum class Condition : uint8_t { Scc, Vccz, Execz };

// Part of a register that an operand names: SDWA's selects.
enum class Select : uint8_t { All, Byte0, Byte1, Byte2, Byte3, Word0, Word1 };

enum class Unused : uint8_t { Zero, Sign, Keep };

struct Operand {
    Kind kind = Kind::None;
    uint16_t index = 0;              // of the register; of a Condition, which
    uint8_t count = 1;               // registers
    bool negative = false, absolute = false, sign_extended = false;
    bool low_from_high = false;      // op_sel
    bool high_from_high = true;      // op_sel_hi
    bool negative_low = false, negative_high = false;
    bool floating = false;           // a constant that is written with a point
    bool whole = true;               // nothing of the above: the register as it is
    Select select = Select::All;
    uint64_t bits = 0;               // of a constant, as the instruction wants it
    double number = 0;
};

using Run = void (*)(Wave&, const Instruction&);
using Operation = void (*)();  // of the operands, whose types `run` knows

struct Instruction {
    Run run = nullptr;
    Operation function = nullptr;
    Operand out, carry, in[4];       // of vector and scalar arithmetic
    Operand op[5];                   // in the order of the text, for everything else
    uint8_t ops = 0;
    bool clamp = false, glc = false, masks = false;
    int8_t scale = 0;                // power of two: mul:2, div:2
    Select out_select = Select::All;
    Unused unused = Unused::Zero;
    int32_t offset = 0, offset0 = 0, offset1 = 0;
    uint8_t parts = 0;               // dmask: of a pixel, a bit for each
    bool narrow = false;             // a16: two coordinates in a register
    uint64_t place = 0;              // of its first byte in the image
    uint32_t nbytes = 4;
    std::string text;
};

struct Program {
    std::vector<Instruction> code;
    std::vector<uint32_t> at;  // by offset in the image over 4: the number of the instruction
    std::vector<std::pair<uint64_t, uint64_t>> relocations;  // place, and offset of what it points to
    uint64_t image = 0;        // device address
};

struct Row {
    Run run = nullptr;
    Operation function = nullptr;
    // Without a shape the operands stay in the order of the text.
    bool shaped = false, has_out = false, has_carry = false;
    std::vector<Type> in;
    bool masks = false;  // the result is the new mask, too
};

const Row* find_row(const std::string& mnemonic);

// Raises: Stop, Illegal, with the text.
Instruction decode(const std::string& text, uint64_t place, uint32_t nbytes);

}  // namespace gfx9
