#include "cursor.h"

#include <algorithm>
#include <limits>

namespace ptx {

std::string shown(const Token& token) {
    switch (token.kind) {
        case Token::End: return "the end of the text";
        case Token::Dotted: return "." + token.text;
        case Token::Integer: return std::to_string(token.bits);
        case Token::Float32:
        case Token::Float64: return "a float";
        case Token::String: return "\"" + token.text + "\"";
        default: return "'" + token.text + "'";
    }
}

const Token& Cursor::peek(size_t ahead) const {
    return tokens_[std::min(here_ + ahead, tokens_.size() - 1)];
}

const Token& Cursor::take() {
    const Token& found = peek();
    if (here_ + 1 < tokens_.size()) ++here_;
    return found;
}

void Cursor::fail(const std::string& what) const { throw ParseError(line(), what); }

bool Cursor::is_mark(const char* wanted, size_t ahead) const {
    return peek(ahead).kind == Token::Mark && peek(ahead).text == wanted;
}

bool Cursor::mark(const char* wanted) {
    if (!is_mark(wanted)) return false;
    take();
    return true;
}

bool Cursor::dotted(const char* wanted) {
    if (peek().kind != Token::Dotted || peek().text != wanted) return false;
    take();
    return true;
}

void Cursor::expect(const char* wanted) {
    if (!mark(wanted)) fail(std::string("'") + wanted + "' expected (got " + shown(peek()) + ")");
}

std::string Cursor::word(const char* what) {
    if (peek().kind != Token::Word)
        fail(std::string(what) + " expected (got " + shown(peek()) + ")");
    return take().text;
}

std::string Cursor::string() {
    if (peek().kind != Token::String) fail("a string expected (got " + shown(peek()) + ")");
    return take().text;
}

void Cursor::skip_past(const char* wanted) {
    while (!at_end() && !is_mark(wanted)) take();
    expect(wanted);
}

// -- numbers

bool Cursor::starts_number() const {
    const Token& token = peek();
    if (token.kind == Token::Word) return token.text == "WARP_SZ";
    if (token.kind == Token::Mark)
        return token.text == "-" || token.text == "+" || token.text == "~" || token.text == "(";
    return token.kind == Token::Integer || token.kind == Token::Float32 ||
           token.kind == Token::Float64;
}

Token Cursor::number(const char* what) {
    const bool minus = is_mark("-");
    const Token::Kind kind = peek(minus ? 1 : 0).kind;
    if (kind == Token::Float32 || kind == Token::Float64) {
        if (minus) take();
        Token found = take();
        if (minus) found.bits ^= kind == Token::Float32 ? 1ull << 31 : 1ull << 63;
        return found;
    }
    const uint32_t start = line();
    return {Token::Integer, "", integer(what), start};
}

uint64_t Cursor::integer(const char* what) { return binary(what, 1); }

namespace {

// Operators of two characters come as two marks.
int strength_of(const std::string& mark) {
    if (mark == "|") return 1;
    if (mark == "^") return 2;
    if (mark == "&") return 3;
    if (mark == "<" || mark == ">") return 4;  // as << and >> alone
    if (mark == "+" || mark == "-") return 5;
    if (mark == "*" || mark == "/" || mark == "%") return 6;
    return 0;
}

}  // namespace

// Values are 64-bit patterns; division and right shift take them as signed (section 4.5.6).
uint64_t Cursor::binary(const char* what, int least) {
    uint64_t left = primary(what);
    while (peek().kind == Token::Mark) {
        const std::string mark = peek().text;
        const int strength = strength_of(mark);
        if (strength < least || strength == 0) break;
        if (strength == 4 && !is_mark(mark.c_str(), 1)) break;  // the end of a count: %r<4>
        take();
        if (strength == 4) take();
        const uint64_t right = binary(what, strength + 1);
        const auto a = static_cast<int64_t>(left), b = static_cast<int64_t>(right);
        if ((mark == "/" || mark == "%") &&
            (b == 0 || (b == -1 && a == std::numeric_limits<int64_t>::min()))) {
            fail("a division without a quotient");
        }
        switch (mark[0]) {
            case '|': left |= right; break;
            case '^': left ^= right; break;
            case '&': left &= right; break;
            case '<': left = right > 63 ? 0 : left << right; break;
            case '>': left = static_cast<uint64_t>(a >> std::min<uint64_t>(right, 63)); break;
            case '+': left += right; break;
            case '-': left -= right; break;
            case '*': left *= right; break;
            case '/': left = static_cast<uint64_t>(a / b); break;
            default: left = static_cast<uint64_t>(a % b); break;
        }
    }
    return left;
}

uint64_t Cursor::primary(const char* what) {
    if (++depth_ > 100) fail("an expression nested too deeply");
    uint64_t value = 0;
    if (mark("-")) {
        value = 0 - primary(what);
    } else if (mark("+")) {
        value = primary(what);
    } else if (mark("~")) {
        value = ~primary(what);
    } else if (mark("(")) {
        value = binary(what, 1);
        expect(")");
    } else if (peek().kind == Token::Word && peek().text == "WARP_SZ") {
        take();
        value = 32;
    } else if (peek().kind == Token::Integer) {
        value = take().bits;
    } else {
        fail(std::string(what) + " expected (got " + shown(peek()) + ")");
    }
    --depth_;
    return value;
}

}  // namespace ptx
