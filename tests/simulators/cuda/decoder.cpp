#include "decoder.h"

#include <algorithm>
#include <cstring>

namespace ptx {

Decoder::Decoder(Frame& frame_of, std::string name, std::vector<std::string> words,
                 std::vector<Operand> operands, uint32_t line)
    : frame(frame_of), name_(std::move(name)), words_(std::move(words)),
      operands_(std::move(operands)), line_(line) {
    out.line = line;
}

void Decoder::fail(const std::string& what) const {
    std::string whole = name_;
    for (const std::string& each : words_) whole += "." + each;
    throw ParseError(line_, whole + ": " + what);
}

// -- words

bool Decoder::word(const char* wanted) {
    if (done() || words_[word_] != wanted) return false;
    ++word_;
    return true;
}

bool Decoder::one_of(std::initializer_list<const char*> wanted, const char** found) {
    for (const char* each : wanted) {
        if (word(each)) {
            if (found != nullptr) *found = each;
            return true;
        }
    }
    return false;
}

Type Decoder::type() {
    if (done()) return Type::none;
    const Type found = type_named(words_[word_]);
    if (found != Type::none) ++word_;
    return found;
}

bool Decoder::rounding() {
    constexpr const char* names[] = {"rn", "rz", "rm", "rp"};
    for (size_t number = 0; number < 4; ++number) {
        if (word(names[number])) {
            out.rounding = static_cast<Rounding>(number);
            return true;
        }
    }
    return false;
}

// -- operands

const Operand& Decoder::peek() const {
    if (!more()) fail("too few operands (got " + std::to_string(operands_.size()) + ")");
    return operands_[operand_];
}

const Operand& Decoder::take() {
    const Operand& found = peek();
    ++operand_;
    return found;
}

uint32_t Decoder::to(Type type, bool wider) { return to(take(), type, wider); }
uint32_t Decoder::from(Type type, bool wider) { return from(take(), type, wider); }

uint32_t Decoder::to(const Operand& operand, Type type, bool wider) {
    if (operand.kind == Operand::Sink) return frame.scratch();
    if (operand.kind != Operand::Register || operand.negated || operand.bracketed) {
        fail("a result goes to a register (got " + operand.name + ")");
    }
    if (!(wider ? agrees_or_wider : agrees)(operand.type, type)) {
        fail(operand.name + " is a ." + name_of(operand.type) + ", not a ." + name_of(type));
    }
    return operand.slot;
}

namespace {

// A number as the bits of `type`; false where it is none.
bool bits_of(const Operand& operand, Type type, uint64_t& bits) {
    const uint32_t nbytes = nbytes_of(type);
    bits = operand.bits;
    if (operand.literal == Token::Float32 && type == Type::f64) {
        float narrow;
        std::memcpy(&narrow, &bits, sizeof narrow);
        const double wide = narrow;
        std::memcpy(&bits, &wide, sizeof wide);
        return true;
    }
    if (operand.literal == Token::Float32)
        return nbytes == 4 && (is_bits(type) || type == Type::f32);
    if (operand.literal == Token::Float64) {
        if (type == Type::f32) {
            double wide;
            std::memcpy(&wide, &bits, sizeof wide);
            const auto narrow = static_cast<float>(wide);
            bits = 0;
            std::memcpy(&bits, &narrow, sizeof narrow);
            return true;
        }
        return nbytes == 8 && (is_bits(type) || type == Type::f64);
    }
    if (type == Type::pred) {
        bits = bits != 0;
        return true;
    }
    return !is_float(type);
}

}  // namespace

uint32_t Decoder::from(const Operand& operand, Type type, bool wider) {
    if (operand.bracketed) fail("an address where a value belongs (got [" + operand.name + "])");
    switch (operand.kind) {
        case Operand::Register:
        case Operand::Constant:
            if (operand.kind == Operand::Constant && name_ != "mov" && name_ != "cvt") {
                fail("special registers are read by mov and cvt alone (got " + operand.name + ")");
            }
            if (!(wider ? agrees_or_wider : agrees)(operand.type, type)) {
                fail(operand.name + " is a ." + name_of(operand.type) + ", not a ." +
                     name_of(type));
            }
            if (operand.negated) fail("no operand to negate (got !" + operand.name + ")");
            return operand.slot;
        case Operand::Number: {
            uint64_t bits = 0;
            if (!bits_of(operand, type, bits)) fail(operand.name + " is no ." + name_of(type));
            return frame.constant(bits);
        }
        default:
            fail("a value belongs here (got " + operand.name + ")");
    }
}

void Decoder::address(Space space) {
    const Operand& operand = take();
    if (!operand.bracketed) fail("an address stands in brackets (got " + operand.name + ")");
    out.offset = operand.offset;
    if (operand.kind == Operand::Number) {
        if (operand.literal != Token::Integer || space != Space::local) {
            fail("only in local memory is an address a number");
        }
        out.a = frame.constant(operand.bits);
    } else if (operand.kind == Operand::Register) {
        const bool is_64 = agrees(operand.type, Type::u64);
        // In the spaces of a block 32 bits are enough.
        const bool is_32 = agrees(operand.type, Type::u32) &&
                           space != Space::generic && space != Space::global;
        if (!is_64 && !is_32)
            fail(operand.name + " is no address, but a ." + name_of(operand.type));
        out.a = operand.slot;
        out.narrow = !is_64;
    } else if (operand.kind == Operand::Variable) {
        if (space != Space::generic && operand.space != space) {
            fail(operand.name + " is a variable of another state space");
        }
        out.a = operand.slot;
    } else {
        fail("no address (got " + operand.name + ")");
    }
}

uint32_t Decoder::predicate(bool& negated) {
    Operand operand = take();
    negated = operand.negated;
    operand.negated = false;
    return from(operand, Type::pred);
}

uint64_t Decoder::immediate() {
    const Operand& operand = take();
    if (operand.kind != Operand::Number || operand.literal != Token::Integer || operand.bracketed) {
        fail("a whole number belongs here (got " + operand.name + ")");
    }
    return operand.bits;
}

void Decoder::list(const std::vector<uint32_t>& slots) {
    std::vector<uint32_t>& all = frame.routine().lists;
    out.list = static_cast<uint32_t>(all.size());
    out.count = static_cast<uint16_t>(slots.size());
    all.insert(all.end(), slots.begin(), slots.end());
}

// -- whole instructions

bool Decoder::unary(Type type, Handler run) {
    if (run == nullptr || !done()) return false;
    out.type = type;
    out.run = run;
    out.d = to(type);
    out.a = from(type);
    return true;
}

bool Decoder::binary(Type type, Handler run) {
    if (!unary(type, run)) return false;
    out.b = from(type);
    return true;
}

bool Decoder::ternary(Type type, Handler run) {
    if (!binary(type, run)) return false;
    out.c = from(type);
    return true;
}

// -- rules

const Rules& all_rules() {
    static const Rules rules = [] {
        Rules made;
        for (auto add : {add_integer_rules, add_bit_rules, add_field_rules, add_carry_rules,
                         add_float_rules, add_half_rules, add_compare_rules, add_convert_rules,
                         add_move_rules, add_memory_rules, add_atomic_rules, add_control_rules,
                         add_barrier_rules, add_warp_rules, add_texture_rules,
                         add_surface_rules}) {
            add(made);
        }
        return made;
    }();
    return rules;
}

Instruction decode(Frame& frame, const std::string& name, const std::vector<std::string>& words,
                   const std::vector<Operand>& operands, uint32_t line) {
    const auto [first, last] = all_rules().equal_range(name);
    Decoder unknown(frame, name, words, operands, line);
    if (first == last) unknown.fail("an instruction that this engine does not know");
    for (auto rule = first; rule != last; ++rule) {
        Decoder decoder(frame, name, words, operands, line);
        if (!rule->second(decoder)) continue;
        if (decoder.more())
            decoder.fail("too many operands (got " + std::to_string(operands.size()) + ")");
        return decoder.out;
    }
    unknown.fail("modifiers or types that this engine does not know");
}

}  // namespace ptx
