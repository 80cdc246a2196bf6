// The operands of an instruction, and the slots of what they name.
#include "routine_parser.h"

namespace ptx {

// -- slots

uint32_t RoutineParser::new_slot(uint64_t bits) {
    made_->frame.push_back(bits);
    return static_cast<uint32_t>(made_->frame.size() - 1);
}

uint32_t RoutineParser::constant(uint64_t bits) {
    const auto [place, is_new] = constants_.emplace(bits, 0);
    if (is_new) place->second = new_slot(bits);
    return place->second;
}

uint32_t RoutineParser::special_slot(Special special) {
    const auto [place, is_new] = specials_.emplace(special, 0);
    if (is_new) {
        place->second = new_slot(0);
        made_->specials.push_back({special, place->second});
    }
    return place->second;
}

// -- names

void RoutineParser::add(const Declaration& declared, const Symbol& symbol) {
    const auto [place, is_new] =
        scopes_[static_cast<size_t>(scope_)].symbols.emplace(declared.name, symbol);
    if (!is_new) cursor_.fail("a second " + declared.name);
}

Symbol* RoutineParser::register_of_range(const std::string& name, int scope) {
    const size_t digits = name.find_last_not_of("0123456789") + 1;
    if (digits == name.size() || name.size() - digits > 8) return nullptr;
    if (name[digits] == '0' && name.size() > digits + 1) return nullptr;  // %r01 is no %r1
    Scope& here = scopes_[static_cast<size_t>(scope)];
    const auto range = here.ranges.find(name.substr(0, digits));
    if (range == here.ranges.end() || std::stoul(name.substr(digits)) >= range->second.count)
        return nullptr;
    Symbol symbol;
    symbol.type = range->second.type;
    symbol.lanes = range->second.lanes;
    return &(here.symbols[name] = symbol);
}

Symbol* RoutineParser::find(const std::string& name) {
    for (int scope = scope_; scope >= 0; scope = scopes_[static_cast<size_t>(scope)].parent) {
        auto& symbols = scopes_[static_cast<size_t>(scope)].symbols;
        const auto found = symbols.find(name);
        if (found != symbols.end()) return &found->second;
        if (Symbol* ranged = register_of_range(name, scope)) return ranged;
    }
    const auto found = parser_.symbols.find(name);
    return found == parser_.symbols.end() ? nullptr : &found->second;
}

// -- operands

// Those of a call are groups: (result), name, (argument, ...).
std::vector<Operand> RoutineParser::operands_of(const std::string& name) {
    std::vector<Operand> all;
    if (cursor_.is_mark(";")) return all;
    do {
        if (name == "call" && cursor_.mark("(")) all.push_back(group(")"));
        else all.push_back(operand());
    } while (cursor_.mark(","));
    return all;
}

Operand RoutineParser::operand() {
    if (cursor_.mark("{")) return group("}");
    Operand first = single();
    if (!cursor_.mark("|")) return first;
    Operand pair;
    pair.pair = true;
    pair.kind = Operand::Vector;
    pair.name = first.name + "|";
    pair.parts = {first, single()};
    return pair;
}

Operand RoutineParser::group(const char* end) {
    Operand made;
    made.kind = Operand::Vector;
    made.name = "a group";
    if (cursor_.mark(end)) return made;
    do made.parts.push_back(single());
    while (cursor_.mark(","));
    cursor_.expect(end);
    return made;
}

Operand RoutineParser::single() {
    const bool negated = cursor_.mark("!");
    const bool bracketed = cursor_.mark("[");
    Operand made;
    if (cursor_.peek().kind == Token::Word && cursor_.peek().text != "WARP_SZ") {
        made = named(cursor_.take().text);
        if (cursor_.mark("+")) made.offset = static_cast<int64_t>(cursor_.integer("an offset"));
        if (made.offset != 0 && !bracketed && made.kind != Operand::Variable) {
            cursor_.fail("a plus where no address is");
        }
    } else {
        const Token number = cursor_.number("an operand");
        made.kind = Operand::Number;
        made.literal = number.kind;
        made.bits = number.bits;
        made.name = shown(number);
    }
    if (bracketed && cursor_.mark(",")) made.parts = operand().parts;
    if (bracketed) cursor_.expect("]");
    made.negated = negated;
    made.bracketed = bracketed;
    return made;
}

Operand RoutineParser::named(const std::string& name) {
    Operand made;
    made.name = name;
    if (name == "_") return made;  // a Sink
    Symbol* symbol = find(name);
    if (symbol != nullptr) return symbol_operand(name, *symbol);
    std::string whole = name;
    if (name[0] == '%' && cursor_.peek().kind == Token::Dotted) whole += "." + cursor_.take().text;
    Special special;
    if (special_named(whole, special, made.type)) {
        made.kind = Operand::Constant;
        made.slot = special_slot(special);
        made.name = whole;
        return made;
    }
    made.kind = Operand::Name;
    made.name = whole;
    return made;
}

Operand RoutineParser::symbol_operand(const std::string& name, Symbol& symbol) {
    Operand made;
    made.name = name;
    if (symbol.kind != Symbol::Register) {
        made.kind = Operand::Variable;
        made.space = symbol.space;
        made.nbytes = symbol.nbytes;
        made.at = symbol.at;
        made.launch_param = symbol.kind == Symbol::LaunchParam;
        made.slot = new_slot(made.launch_param ? param_window | symbol.at : symbol.at);
        switch (symbol.kind) {
            case Symbol::ModuleVariable:
                made_->addresses.push_back({made.slot, symbol.number});
                break;
            case Symbol::EntryShared: made_->own_shared.push_back(made.slot); break;
            case Symbol::DynamicShared: made_->dynamic_shared.push_back(made.slot); break;
            case Symbol::Local: made_->locals.push_back(made.slot); break;
            default: break;
        }
        return made;
    }
    if (symbol.slot < 0) {
        symbol.slot = static_cast<int64_t>(new_slot(0));
        for (uint32_t lane = 1; lane < symbol.lanes; ++lane) new_slot(0);
    }
    uint32_t lane = 0;
    if (symbol.lanes > 1) {
        const std::string part = cursor_.peek().kind == Token::Dotted ? cursor_.take().text : "";
        const size_t place =
            part.size() == 1 ? std::string("xyzwrgba").find(part) : std::string::npos;
        lane = static_cast<uint32_t>(place % 4);
        if (place == std::string::npos || lane >= symbol.lanes)
            cursor_.fail(name + " is a vector: name .x or another part");
    }
    made.kind = Operand::Register;
    made.type = symbol.type;
    made.slot = static_cast<uint32_t>(symbol.slot) + lane;
    return made;
}

bool special_named(const std::string& name, Special& special, Type& type) {
    static const std::map<std::string, Special> names = {
        {"%tid.x", Special::tid_x},
        {"%tid.y", Special::tid_y},
        {"%tid.z", Special::tid_z},
        {"%ntid.x", Special::ntid_x},
        {"%ntid.y", Special::ntid_y},
        {"%ntid.z", Special::ntid_z},
        {"%ctaid.x", Special::ctaid_x},
        {"%ctaid.y", Special::ctaid_y},
        {"%ctaid.z", Special::ctaid_z},
        {"%nctaid.x", Special::nctaid_x},
        {"%nctaid.y", Special::nctaid_y},
        {"%nctaid.z", Special::nctaid_z},
        {"%laneid", Special::laneid},
        {"%warpid", Special::warpid},
        {"%nwarpid", Special::nwarpid},
        {"%smid", Special::smid},
        {"%nsmid", Special::nsmid},
        {"%gridid", Special::gridid},
        {"%lanemask_eq", Special::lanemask_eq},
        {"%lanemask_le", Special::lanemask_le},
        {"%lanemask_lt", Special::lanemask_lt},
        {"%lanemask_ge", Special::lanemask_ge},
        {"%lanemask_gt", Special::lanemask_gt},
        {"%total_smem_size", Special::total_smem_size},
        {"%dynamic_smem_size", Special::dynamic_smem_size},
    };
    const auto found = names.find(name);
    if (found == names.end()) return false;
    special = found->second;
    type = special == Special::gridid ? Type::u64 : Type::u32;
    return true;
}

}  // namespace ptx
