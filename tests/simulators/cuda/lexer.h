// Text to tokens.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace ptx {

// What is wrong with a text, and where. Never leaves Module::parse.
struct ParseError : std::runtime_error {
    ParseError(uint32_t at, const std::string& what)
        : std::runtime_error("line " + std::to_string(at) + ": " + what) {}
};

struct Token {
    enum Kind : uint8_t {
        Word,     // an identifier: %r1, $label, add
        Dotted,   // .global, .L1::no_allocate; `text` is without the dot
        Integer,  // `bits` is its value
        Float32,  // 0f...: `bits` are the number's
        Float64,  // 0d... or 1.5: likewise
        String,   // `text` is without quotes
        Mark,     // one character, in `text`
        End,
    };
    Kind kind;
    std::string text;
    uint64_t bits;
    uint32_t line;
};

// Ends with a token of kind End. Comments are left out.
std::vector<Token> tokens_of(const std::string& text);

}  // namespace ptx
