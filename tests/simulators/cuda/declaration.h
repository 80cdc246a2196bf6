// Declarations of variables: state space, alignment, type, name, extents, initial value.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cursor.h"
#include "engine.h"
#include "types.h"

namespace ptx {

struct Declaration {
    std::string name;
    Type type = Type::none;
    uint32_t lanes = 1;       // .v2, .v4
    uint64_t alignment = 0;
    std::vector<uint64_t> extents;
    bool is_array = false;
    bool is_range = false;    // name<count>
    bool unsized = false;     // name[]
    uint64_t count = 0;
    uint64_t nbytes = 0;
    uint32_t line = 0;
};

// Everything behind the state space, up to a comma, an equals sign or the end.
Declaration declaration(Cursor& cursor);

// One more name with the same type, behind a comma.
Declaration another(Cursor& cursor, const Declaration& first);

// Gives the number of a variable of the module by its name, or -1.
using FindVariable = std::function<int64_t(const std::string&)>;

// What stands behind the equals sign, into `variable`. Sets the size of an unsized array.
void initialiser(Cursor& cursor, Declaration& declared, Variable& variable,
                 const FindVariable& find);

}  // namespace ptx
