// The statements of an entry or a function.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "decoder.h"
#include "parser.h"

namespace ptx {

class RoutineParser : public Frame {
public:
    RoutineParser(Parser& parser, bool is_entry);
    void whole();

    // Frame
    uint32_t constant(uint64_t bits) override;
    uint32_t scratch() override { return new_slot(0); }
    Routine& routine() override { return *made_; }
    void jump(const std::string& label) override;
    uint32_t jump_table(const std::string& label) override;
    const Routine* callee(const std::string& name) override;

private:
    // The head.
    std::vector<Formal> formals(bool results);
    void formal(Declaration& declared, bool is_register, Formal& made);
    void directives();

    // The body.
    void block();
    void statement();
    bool declared();
    void registers();
    void variables(Space space);
    void label(const std::string& name);
    void instruction();
    void append(Instruction made, bool guarded, bool negated, const Symbol* guard);
    void resolve_labels();

    // Operands.
    std::vector<Operand> operands_of(const std::string& name);
    Operand operand();
    Operand single();
    Operand named(const std::string& name);
    Operand group(const char* end);
    Operand symbol_operand(const std::string& name, Symbol& symbol);

    uint32_t new_slot(uint64_t bits);
    Symbol* find(const std::string& name);
    Symbol* register_of_range(const std::string& name, int scope);
    const std::vector<std::string>* targets(const std::string& name) const;
    uint32_t special_slot(Special special);
    void add(const Declaration& declared, const Symbol& symbol);

    struct Fixup {
        size_t place;  // of the instruction, or in Routine::lists
        bool in_list;
        std::string label;
        int scope;
        uint32_t line;
    };

    Parser& parser_;
    Cursor& cursor_;
    bool is_entry_;
    Routine* made_ = nullptr;
    Function function_;
    std::vector<Scope> scopes_;
    int scope_ = 0;
    std::map<uint64_t, uint32_t> constants_;
    std::map<Special, uint32_t> specials_;
    std::vector<Fixup> fixups_;
    uint64_t own_shared_ = 0;
    uint64_t local_ = 0, variables_local_ = 0;
    uint64_t register_nbytes_ = 0;
};

// Special registers by their names; false for others. `type` is that of the register.
bool special_named(const std::string& name, Special& special, Type& type);

}  // namespace ptx
