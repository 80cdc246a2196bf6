// Reads tokens from left to right.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lexer.h"

namespace ptx {

class Cursor {
public:
    explicit Cursor(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

    const Token& peek(size_t ahead = 0) const;
    const Token& take();
    uint32_t line() const { return peek().line; }
    bool at_end() const { return peek().kind == Token::End; }

    // Take the next token if it is this one.
    bool mark(const char* wanted);
    bool dotted(const char* wanted);

    bool is_mark(const char* wanted, size_t ahead = 0) const;

    // Take it or throw.
    void expect(const char* mark);
    std::string word(const char* what);  // an identifier
    std::string string();
    uint64_t integer(const char* what);  // a constant expression of integers

    // Signs, operators of C, brackets. A float stands alone or behind a minus.
    Token number(const char* what);
    bool starts_number() const;

    void skip_past(const char* mark);  // everything up to the mark, and the mark

    [[noreturn]] void fail(const std::string& what) const;

private:
    uint64_t binary(const char* what, int least);
    uint64_t primary(const char* what);

    std::vector<Token> tokens_;
    size_t here_ = 0;
    int depth_ = 0;  // of brackets in an expression
};

// A token as a message shows it.
std::string shown(const Token& token);

}  // namespace ptx
