// MessagePack, as far as the notes of code objects use it. Source: msgpack's specification.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace gfx9 {

struct Value {
    int64_t number = 0;
    std::string text;
    std::vector<Value> list;
    std::map<std::string, Value> fields;

    // Of a map; an empty value where it is absent.
    const Value& operator[](const std::string& name) const;
};

// Raises: std::runtime_error where the bytes end too early or are of another kind.
Value read_metadata(const uint8_t* bytes, uint64_t nbytes);

}  // namespace gfx9
