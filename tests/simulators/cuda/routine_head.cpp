// Parameters, results and directives of a routine, before its body.
#include <algorithm>

#include "routine_parser.h"

namespace ptx {

namespace {

constexpr uint32_t most_params = 32764;  // bytes of an entry

}  // namespace

std::vector<Formal> RoutineParser::formals(bool results) {
    std::vector<Formal> all;
    cursor_.expect("(");
    if (cursor_.mark(")")) return all;
    do {
        const bool is_register = cursor_.dotted("reg");
        if (!is_register && !cursor_.dotted("param")) cursor_.fail(".param expected");
        if (is_register && is_entry_) cursor_.fail("an entry takes no registers");
        Declaration declared = declaration(cursor_);
        Formal made;
        formal(declared, is_register, made);
        all.push_back(made);
    } while (cursor_.mark(","));
    cursor_.expect(")");
    if (results && all.size() > 1) cursor_.fail("more than one result");
    return all;
}

void RoutineParser::formal(Declaration& declared, bool is_register, Formal& made) {
    if (declared.unsized || declared.is_range) cursor_.fail("a parameter has a size");
    Symbol symbol;
    symbol.type = declared.type;
    symbol.nbytes = made.nbytes = static_cast<uint32_t>(declared.nbytes);
    if (is_register) {
        if (declared.is_array || declared.lanes != 1) cursor_.fail("a register is no array");
        symbol.kind = Symbol::Register;
        symbol.slot = made.slot = static_cast<int32_t>(new_slot(0));
        return add(declared, symbol);
    }
    if (nbytes_of(declared.type) == 0) cursor_.fail("predicates live in registers alone");
    symbol.space = Space::param;
    if (!is_entry_) {
        local_ = aligned(local_, declared.alignment);
        symbol.kind = Symbol::Local;
        symbol.at = made.offset = local_;
        local_ += declared.nbytes;
    } else {
        const uint64_t at = aligned(function_.params_nbytes, declared.alignment);
        if (at + declared.nbytes > most_params) cursor_.fail("more than 32764 bytes of parameters");
        symbol.kind = Symbol::LaunchParam;
        symbol.at = at;
        function_.params.push_back({static_cast<uint32_t>(at), made.nbytes});
        function_.params_nbytes = static_cast<uint32_t>(at + declared.nbytes);
    }
    add(declared, symbol);
}

void RoutineParser::directives() {
    while (cursor_.peek().kind == Token::Dotted) {
        if (parser_.annotation() || cursor_.dotted("noreturn") || cursor_.dotted("explicitcluster"))
            continue;
        const std::string word = cursor_.peek().text;
        const bool required = word == "reqntid", most = word == "maxntid";
        if (!required && !most && word != "minnctapersm" && word != "maxnctapersm" &&
            word != "maxnreg") {
            cursor_.fail("a directive that this engine does not know: ." + word);
        }
        if (!is_entry_) cursor_.fail("." + word + " belongs to an entry");
        cursor_.take();
        uint64_t extents[3] = {1, 1, 1};
        extents[0] = cursor_.integer("a number");
        for (int axis = 1; axis < 3 && (required || most) && cursor_.mark(","); ++axis) {
            extents[axis] = cursor_.integer("a number");
        }
        if (!required && !most) continue;
        uint64_t product = 1;
        for (int axis = 0; axis < 3; ++axis) {
            if (extents[axis] == 0 || extents[axis] > 1024)
                cursor_.fail("an extent of 1 to 1024 expected");
            product *= extents[axis];
            if (required) function_.required[axis] = static_cast<uint32_t>(extents[axis]);
        }
        function_.max_threads = static_cast<uint32_t>(std::min<uint64_t>(product, 1024));
    }
}

}  // namespace ptx
