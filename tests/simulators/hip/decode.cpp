// From AMD's text of an instruction to what it does on which operands:
//
//     v_cmp_eq_u16_sdwa s[4:5], s12, v1 src0_sel:BYTE_0 src1_sel:DWORD
//     mnemonic and form, operands between commas, modifiers between spaces
#include <cctype>
#include <cstdlib>

#include "arithmetic.h"

namespace gfx9 {
namespace {

[[noreturn]] void unknown(const std::string& what, const std::string& text) {
    throw Stop{Fault::Illegal, what + ": " + text, -1};
}

// At separators outside of brackets.
std::vector<std::string> split(const std::string& text, char separator) {
    std::vector<std::string> parts{""};
    int depth = 0;
    for (char c : text) {
        depth += (c == '(' || c == '[') - (c == ')' || c == ']');
        if (c == separator && depth == 0) parts.emplace_back();
        else if (!(c == ' ' && parts.back().empty())) parts.back() += c;
    }
    return parts;
}

bool ends_with(const std::string& text, const std::string& end) {
    return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

// `_e32` and the like say how it is encoded.
std::string without_form(const std::string& mnemonic) {
    for (const char* form : {"_e32", "_e64", "_sdwa"})
        if (ends_with(mnemonic, form)) return mnemonic.substr(0, mnemonic.size() - std::strlen(form));
    return mnemonic;
}

struct Named {
    const char* name;
    int index, count;
};

constexpr Named NAMED[] = {
    {"vcc", VCC, 2}, {"vcc_lo", VCC, 1}, {"vcc_hi", VCC + 1, 1},
    {"exec", EXEC, 2}, {"exec_lo", EXEC, 1}, {"exec_hi", EXEC + 1, 1},
    {"m0", M0, 1}, {"flat_scratch", FLAT_SCRATCH, 2},
    {"flat_scratch_lo", FLAT_SCRATCH, 1}, {"flat_scratch_hi", FLAT_SCRATCH + 1, 1},
    {"xnack_mask", XNACK_MASK, 2}, {"xnack_mask_lo", XNACK_MASK, 1},
    {"xnack_mask_hi", XNACK_MASK + 1, 1},
};

constexpr const char* CONDITIONS[] = {"scc", "vccz", "execz"};

// v7, s[4:5]
bool read_register(const std::string& text, Operand& out) {
    if (text.size() < 2 || (text[0] != 'v' && text[0] != 's')) return false;
    int first = 0, last = 0;
    if (std::sscanf(text.c_str() + 1, "[%d:%d]", &first, &last) != 2) {
        if (!std::isdigit(static_cast<unsigned char>(text[1]))) return false;
        first = last = std::atoi(text.c_str() + 1);
    }
    out.kind = text[0] == 'v' ? Kind::Vector : Kind::Scalar;
    if (first < 0 || last < first || last >= (text[0] == 'v' ? VECTORS : SCALARS)) return false;
    out.index = uint16_t(first);
    out.count = uint8_t(last - first + 1);
    return true;
}

bool read_name(const std::string& text, Operand& out) {
    for (const Named& named : NAMED)
        if (text == named.name) {
            out.kind = Kind::Scalar;
            out.index = uint16_t(named.index);
            out.count = uint8_t(named.count);
            return true;
        }
    const std::string plain = text.rfind("src_", 0) == 0 ? text.substr(4) : text;
    for (int which = 0; which < 3; ++which)
        if (plain == CONDITIONS[which]) {
            out.kind = Kind::Condition;
            out.index = uint16_t(which);
            return true;
        }
    return false;
}

bool read_constant(const std::string& text, Operand& out) {
    const bool base = text == "src_shared_base", other = text == "src_private_base";
    if (base || other) {  // 64 bits, of which the upper half counts
        out.kind = Kind::Constant;
        out.bits = uint64_t(base ? SHARED_APERTURE : PRIVATE_APERTURE) << 32;
        return true;
    }
    char* rest;
    out.floating = text.find('.') != std::string::npos;
    if (out.floating) out.number = std::strtod(text.c_str(), &rest);
    else out.bits = uint64_t(std::strtoll(text.c_str(), &rest, 0));
    if (*rest || rest == text.c_str()) return false;
    out.kind = Kind::Constant;
    return true;
}

Operand read_operand(std::string text, const std::string& whole) {
    Operand out;
    for (const char* none : {"off", "hwreg(", "gpr_idx("})
        if (text.rfind(none, 0) == 0) return out;
    if (read_constant(text, out)) return out;
    if (text[0] == '-') out.negative = true, text = text.substr(1);
    if (text.rfind("sext(", 0) == 0) {
        out.sign_extended = true;
        text = text.substr(5, text.size() - 6);
    }
    if (text[0] == '|') out.absolute = true, text = text.substr(1, text.size() - 2);
    if (!read_register(text, out) && !read_name(text, out) && !read_constant(text, out))
        unknown("an operand that the engine does not know", whole);
    return out;
}

Select select_of(const std::string& name) {
    const char* names[] = {"DWORD", "BYTE_0", "BYTE_1", "BYTE_2", "BYTE_3", "WORD_0", "WORD_1"};
    for (int which = 0; which < 7; ++which)
        if (name == names[which]) return Select(which);
    return Select::All;
}

// [1,0,1]: one flag for each source.
template <class Set>
void for_flags(const std::string& list, Set set) {
    int source = 0;
    for (char c : list)
        if (c == '0' || c == '1') set(source++, c == '1');
}

struct Modifiers {
    Select select[2] = {Select::All, Select::All};
    std::string op_sel, op_sel_hi, neg_lo, neg_hi;
};

void read_modifier(const std::string& text, Instruction& is, Modifiers& more) {
    const size_t colon = text.find(':');
    const std::string name = text.substr(0, colon);
    const std::string value = colon == std::string::npos ? "" : text.substr(colon + 1);
    const int number = std::atoi(value.c_str());
    if (name == "offset" && text.find("swizzle(") == std::string::npos)
        is.offset = int(std::strtol(value.c_str(), nullptr, 0));
    else if (name == "offset0") is.offset0 = number;
    else if (name == "offset1") is.offset1 = number;
    else if (name == "glc") is.glc = true;
    else if (name == "dmask") is.parts = uint8_t(std::strtol(value.c_str(), nullptr, 0));
    else if (name == "a16") is.narrow = true;
    else if (name == "slc" || name == "nv" || name == "offen" || name == "unorm") {}
    else if (name == "clamp") is.clamp = true;
    else if (name == "mul") is.scale = int8_t(number == 4 ? 2 : 1);
    else if (name == "div") is.scale = -1;
    else if (name == "op_sel") more.op_sel = value;
    else if (name == "op_sel_hi") more.op_sel_hi = value;
    else if (name == "neg_lo") more.neg_lo = value;
    else if (name == "neg_hi") more.neg_hi = value;
    else if (name == "src0_sel") more.select[0] = select_of(value);
    else if (name == "src1_sel") more.select[1] = select_of(value);
    else if (name == "dst_sel") is.out_select = select_of(value);
    else if (name == "dst_unused")
        is.unused = value == "UNUSED_PRESERVE" ? Unused::Keep
                    : value == "UNUSED_SEXT"   ? Unused::Sign
                                               : Unused::Zero;
    else unknown("a modifier that the engine does not know", is.text);
}

// The same digits are other bits for operands of other types. Source: Vega ISA, "Inline constants".
void fit(Operand& operand, Type type) {
    if (operand.kind != Kind::Constant) return;
    const double number = operand.number;
    const bool wide = type == Type::F64 || type == Type::B64;
    if (operand.floating) {
        if (wide) operand.bits = bits_as<uint64_t>(number);
        else if (type == Type::F16) operand.bits = Half(number).bits;
        else operand.bits = bits_as<uint32_t>(float(number));
        return;
    }
    // Of a double a literal is the upper half; small integers stand for their own bits.
    const auto value = int64_t(operand.bits);
    if (type == Type::F64 && (value < -16 || value > 64)) operand.bits <<= 32;
}

void apply(const Modifiers& more, Instruction& is, const Row& row) {
    for (size_t source = 0; source < row.in.size() && source < 2; ++source)
        is.in[source].select = more.select[source];
    // The default of op_sel_hi is 1 for pairs; of mixtures 0, where it means a half.
    for (size_t source = 0; source < row.in.size(); ++source)
        is.in[source].high_from_high = row.in[source] != Type::Mixed;
    for_flags(more.op_sel, [&](int source, bool on) { if (source < 4) is.in[source].low_from_high = on; });
    for_flags(more.op_sel_hi, [&](int source, bool on) { if (source < 4) is.in[source].high_from_high = on; });
    for_flags(more.neg_lo, [&](int source, bool on) { if (source < 4) is.in[source].negative_low = on; });
    for_flags(more.neg_hi, [&](int source, bool on) { if (source < 4) is.in[source].negative_high = on; });
    for (Operand& operand : is.in)
        operand.whole = !operand.negative && !operand.absolute && operand.select == Select::All;
}

// Sources that the text leaves out are the vector condition, or what the destination holds.
void shape(std::vector<Operand> operands, Instruction& is, const Row& row) {
    size_t next = 0;
    const size_t given = operands.size(), outs = row.has_out + row.has_carry;
    const size_t wanted = outs + row.in.size();
    if (given > wanted || given + 1 < wanted || row.in.size() > 4)
        unknown("other operands than the engine expects", is.text);
    if (row.has_out) is.out = operands[next++];
    if (row.has_carry) is.carry = operands[next++];
    for (size_t source = 0; source < row.in.size(); ++source) {
        if (next < given) is.in[source] = operands[next++];
        else if (row.in[source] == Type::Mask) is.in[source].kind = Kind::Scalar, is.in[source].index = VCC;
        else is.in[source] = is.out;
        fit(is.in[source], row.in[source]);
    }
}

}  // namespace

const Row* find_row(const std::string& mnemonic) {
    static const Table& table = *[] {
        auto* made = new Table;
        add_float_rows(*made);
        add_half_rows(*made);
        add_integer_rows(*made);
        add_bit_rows(*made);
        add_convert_rows(*made);
        add_compare_rows(*made);
        add_scalar_rows(*made);
        add_control_rows(*made);
        add_lane_rows(*made);
        add_memory_rows(*made);
        add_shared_rows(*made);
        add_private_rows(*made);
        add_image_rows(*made);
        return made;
    }();
    auto found = table.rows.find(mnemonic);
    return found == table.rows.end() ? nullptr : &found->second;
}

Instruction decode(const std::string& text, uint64_t place, uint32_t nbytes) {
    Instruction is;
    is.text = text;
    is.place = place;
    is.nbytes = nbytes;
    const size_t space = text.find(' ');
    const std::string mnemonic = text.substr(0, space);
    const Row* row = find_row(without_form(mnemonic));
    if (!row) unknown("an instruction that the engine does not know", text);
    is.run = row->run;
    is.function = row->function;
    is.masks = row->masks;
    const std::string name = without_form(mnemonic);
    if (space == std::string::npos || name == "s_waitcnt" || name == "s_endpgm") return is;
    Modifiers more;
    std::vector<Operand> operands;
    for (const std::string& part : split(text.substr(space + 1), ',')) {
        std::vector<std::string> words = split(part, ' ');
        if (words[0].find(':') != std::string::npos && words[0][1] != '[' && words[0][0] != '-' &&
            words[0][0] != '|')
            words.insert(words.begin(), "");  // modifiers alone, of `ds_nop offset:1`
        if (!words[0].empty()) operands.push_back(read_operand(words[0], text));
        for (size_t word = 1; word < words.size(); ++word)
            if (!words[word].empty()) read_modifier(words[word], is, more);
    }
    is.ops = uint8_t(std::min<size_t>(operands.size(), 5));
    std::copy_n(operands.begin(), is.ops, is.op);
    if (row->shaped) {
        shape(operands, is, *row);
        apply(more, is, *row);
    }
    return is;
}

}  // namespace gfx9
