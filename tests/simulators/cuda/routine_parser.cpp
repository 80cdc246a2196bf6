#include "routine_parser.h"

#include <algorithm>

namespace ptx {

RoutineParser::RoutineParser(Parser& parser, bool is_entry)
    : parser_(parser), cursor_(parser.cursor), is_entry_(is_entry), scopes_(1) {}

void parse_routine(Parser& parser, bool is_entry) { RoutineParser(parser, is_entry).whole(); }

void RoutineParser::whole() {
    Routine reading;  // until the name is known
    made_ = &reading;
    if (!is_entry_ && cursor_.is_mark("(")) reading.results = formals(true);
    const std::string name = cursor_.word("a name");
    if (parser_.symbols.count(name) != 0) cursor_.fail("a second " + name);
    reading.name = name;
    reading.is_entry = is_entry_;
    if (cursor_.is_mark("(")) reading.params = formals(false);
    directives();
    Routine& kept = parser_.routine(name);
    if (kept.defined) cursor_.fail("a second " + name);
    if (kept.declared && !(kept.params == reading.params && kept.results == reading.results)) {
        cursor_.fail("another declaration of " + name + " takes or gives something else");
    }
    reading.declared = true;
    reading.number = kept.number;
    if (cursor_.mark(";")) {
        kept = std::move(reading);
        return;
    }
    kept = std::move(reading);
    made_ = &kept;
    cursor_.expect("{");
    block();
    Instruction end = decode(*this, "ret", {}, {}, cursor_.line());
    kept.code.push_back(end);
    resolve_labels();
    kept.defined = true;
    if (local_ > most_local) cursor_.fail(name + " takes more local memory than a thread has");
    kept.local_nbytes = static_cast<uint32_t>(aligned(local_, 16));
    if (!is_entry_) return;
    function_.name = name;
    function_.shared_nbytes = static_cast<uint32_t>(own_shared_);
    function_.local_nbytes = static_cast<uint32_t>(variables_local_);
    function_.registers = static_cast<uint32_t>(std::clamp<uint64_t>(register_nbytes_ / 4, 1, 255));
    parser_.module.functions.push_back(function_);
}

// -- the body

// Behind an opened brace. Nested blocks are a loop, for a text may nest them without end.
void RoutineParser::block() {
    int depth = 1;
    while (depth > 0) {
        if (cursor_.at_end()) cursor_.fail("a body that does not end");
        if (cursor_.mark("{")) {
            scopes_.emplace_back();
            scopes_.back().parent = scope_;
            scope_ = static_cast<int>(scopes_.size()) - 1;
            ++depth;
        } else if (cursor_.mark("}")) {
            scope_ = std::max(scopes_[static_cast<size_t>(scope_)].parent, 0);
            --depth;
        } else {
            statement();
        }
    }
}

void RoutineParser::statement() {
    if (parser_.annotation() || cursor_.mark(";") || declared()) return;
    if (cursor_.peek().kind == Token::Word && cursor_.is_mark(":", 1)) {
        const std::string name = cursor_.take().text;
        cursor_.take();
        return label(name);
    }
    instruction();
}

void RoutineParser::label(const std::string& name) {
    Scope& scope = scopes_[static_cast<size_t>(scope_)];
    if (scope.labels.count(name) != 0 || scope.targets.count(name) != 0)
        cursor_.fail("a second label " + name);
    if (!cursor_.dotted("branchtargets")) {
        scope.labels[name] = static_cast<uint32_t>(made_->code.size());
        return;
    }
    std::vector<std::string>& targets = scope.targets[name];
    do targets.push_back(cursor_.word("a label"));
    while (cursor_.mark(","));
    cursor_.expect(";");
}

bool RoutineParser::declared() {
    if (cursor_.dotted("reg")) {
        registers();
    } else if (cursor_.dotted("local")) {
        variables(Space::local);
    } else if (cursor_.dotted("param")) {
        variables(Space::param);
    } else if (cursor_.dotted("shared")) {
        variables(Space::shared);
    } else {
        return false;
    }
    return true;
}

void RoutineParser::registers() {
    Declaration made = declaration(cursor_);
    while (true) {
        if (made.is_array) cursor_.fail("a register is no array");
        const uint64_t count = made.is_range ? made.count : 1;
        if (count > 1u << 24) cursor_.fail("more registers than any thread has");
        register_nbytes_ += count * std::max<uint64_t>(nbytes_of(made.type), 4) * made.lanes;
        Scope& scope = scopes_[static_cast<size_t>(scope_)];
        if (scope.ranges.count(made.name) != 0) cursor_.fail("a second " + made.name);
        if (made.is_range) {
            scope.ranges[made.name] = {made.type, made.lanes, count};
        } else {
            Symbol symbol;
            symbol.type = made.type;
            symbol.lanes = made.lanes;
            add(made, symbol);
        }
        if (!cursor_.mark(",")) break;
        made = another(cursor_, made);
    }
    cursor_.expect(";");
}

void RoutineParser::variables(Space space) {
    Declaration made = declaration(cursor_);
    while (true) {
        if (made.unsized || made.is_range) cursor_.fail("a variable has a size");
        if (nbytes_of(made.type) == 0) cursor_.fail("predicates live in registers alone");
        Symbol symbol;
        symbol.space = space;
        symbol.type = made.type;
        symbol.nbytes = made.nbytes;
        if (space != Space::shared) {
            symbol.kind = Symbol::Local;
            symbol.at = aligned(local_, made.alignment);
            local_ = symbol.at + made.nbytes;
            if (space == Space::local) variables_local_ += made.nbytes;
        } else if (is_entry_) {
            symbol.kind = Symbol::EntryShared;
            symbol.at = aligned(own_shared_, made.alignment);
            own_shared_ = symbol.at + made.nbytes;
        } else {
            symbol.kind = Symbol::ModuleShared;
            symbol.at = parser_.place_shared(made);
        }
        if (local_ > most_local || own_shared_ > 1u << 20)
            cursor_.fail("more memory than a thread has");
        add(made, symbol);
        if (!cursor_.mark(",")) break;
        made = another(cursor_, made);
    }
    cursor_.expect(";");
}

void RoutineParser::instruction() {
    bool negated = false;
    const Symbol* guard = nullptr;
    if (cursor_.mark("@")) {
        negated = cursor_.mark("!");
        const std::string name = cursor_.word("a predicate");
        const Operand found = named(name);
        if (found.kind != Operand::Register || found.type != Type::pred)
            cursor_.fail(name + " is no predicate");
        guard = find(name);
    }
    const uint32_t line = cursor_.line();
    const std::string name = cursor_.word("an instruction");
    std::vector<std::string> words;
    while (cursor_.peek().kind == Token::Dotted) words.push_back(cursor_.take().text);
    const std::vector<Operand> operands = operands_of(name);
    cursor_.expect(";");
    Instruction made = decode(*this, name, words, operands, line);
    if (guard != nullptr) {
        made.guard = static_cast<int32_t>(guard->slot);
        made.negated = negated;
    }
    made_->code.push_back(made);
}

// -- labels

void RoutineParser::jump(const std::string& name) {
    fixups_.push_back({made_->code.size(), false, name, scope_, cursor_.line()});
}

uint32_t RoutineParser::jump_table(const std::string& name) {
    const std::vector<std::string>* found = targets(name);
    if (found == nullptr) return 0;
    for (const std::string& each : *found) {
        fixups_.push_back({made_->lists.size(), true, each, scope_, cursor_.line()});
        made_->lists.push_back(0);
    }
    return static_cast<uint32_t>(found->size());
}

const std::vector<std::string>* RoutineParser::targets(const std::string& name) const {
    for (int scope = scope_; scope >= 0; scope = scopes_[static_cast<size_t>(scope)].parent) {
        const auto& all = scopes_[static_cast<size_t>(scope)].targets;
        const auto found = all.find(name);
        if (found != all.end()) return &found->second;
    }
    return nullptr;
}

void RoutineParser::resolve_labels() {
    for (const Fixup& fixup : fixups_) {
        int scope = fixup.scope;
        while (scope >= 0 && scopes_[static_cast<size_t>(scope)].labels.count(fixup.label) == 0) {
            scope = scopes_[static_cast<size_t>(scope)].parent;
        }
        if (scope < 0) throw ParseError(fixup.line, "no label " + fixup.label);
        const uint32_t target = scopes_[static_cast<size_t>(scope)].labels.at(fixup.label);
        if (fixup.in_list) {
            made_->lists[fixup.place] = target;
        } else {
            made_->code[fixup.place].offset =
                static_cast<int64_t>(target) - static_cast<int64_t>(fixup.place);
        }
    }
}

const Routine* RoutineParser::callee(const std::string& name) {
    const Routine* found = parser_.declared(name);
    if (found != nullptr) parser_.called_.emplace(name, cursor_.line());
    return found;
}

}  // namespace ptx
