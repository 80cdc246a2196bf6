#include "lexer.h"

#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace ptx {

namespace {

bool starts_word(char c) {
    return std::isalpha(static_cast<unsigned char>(c)) || c == '_' || c == '$' || c == '%';
}
bool in_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '$'; }
bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

class Lexer {
public:
    explicit Lexer(const std::string& text) : text_(text) {}

    std::vector<Token> all() {
        for (skip(); here_ < text_.size(); skip()) next();
        add(Token::End, "");
        return std::move(tokens_);
    }

private:
    char peek(size_t ahead = 0) const {
        return here_ + ahead < text_.size() ? text_[here_ + ahead] : '\0';
    }

    void add(Token::Kind kind, std::string text, uint64_t bits = 0) {
        tokens_.push_back({kind, std::move(text), bits, line_});
    }

    void skip() {
        while (here_ < text_.size()) {
            if (peek() == '/' && peek(1) == '/') {
                while (here_ < text_.size() && peek() != '\n') ++here_;
            } else if (peek() == '/' && peek(1) == '*') {
                skip_comment();
            } else if (std::isspace(static_cast<unsigned char>(peek()))) {
                line_ += peek() == '\n';
                ++here_;
            } else {
                return;
            }
        }
    }

    void skip_comment() {
        const uint32_t start = line_;
        for (here_ += 2; !(peek() == '*' && peek(1) == '/'); ++here_) {
            if (here_ >= text_.size()) throw ParseError(start, "a comment that does not end");
            line_ += peek() == '\n';
        }
        here_ += 2;
    }

    void next() {
        const char c = peek();
        if (starts_word(c) && (c != '%' || in_word(peek(1)))) {
            add(Token::Word, word(1));
        } else if (c == '.' && in_word(peek(1))) {
            ++here_;
            add(Token::Dotted, dotted());
        } else if (is_digit(c)) {
            number();
        } else if (c == '"') {
            string();
        } else if (std::strchr("{}()[]<>,;:@!=+-*/%|&^~?", c) != nullptr && c != '\0') {
            ++here_;
            add(Token::Mark, std::string(1, c));
        } else {
            throw ParseError(line_, std::string("a character that PTX does not have: '") + c + "'");
        }
    }

    std::string word(size_t first) {
        const size_t start = here_;
        here_ += first;
        while (in_word(peek())) ++here_;
        return text_.substr(start, here_ - start);
    }

    // With the `::` parts of modifiers: L2::128B, shared::cta.
    std::string dotted() {
        std::string whole = word(0);
        while (peek() == ':' && peek(1) == ':' && in_word(peek(2))) {
            here_ += 2;
            whole += "::" + word(0);
        }
        return whole;
    }

    void number() {
        const char second = peek(1);
        if (peek() == '0' && std::strchr("fFdD", second) != nullptr && second != '\0')
            return bits();
        size_t end = here_;
        while (is_digit(text_[end])) ++end;
        const bool whole = end >= text_.size() || (text_[end] != '.' && text_[end] != 'e');
        const char* start = text_.c_str() + here_;
        char* stop = nullptr;
        errno = 0;
        uint64_t value = 0;
        if (whole) {
            value = integer(start, &stop);
        } else {
            const double parsed = std::strtod(start, &stop);
            std::memcpy(&value, &parsed, sizeof value);
        }
        // A double that underflows is a number still.
        if (whole && errno == ERANGE) throw ParseError(line_, "a number that 64 bits do not hold");
        here_ = static_cast<size_t>(stop - text_.c_str());
        if (whole && peek() == 'U') ++here_;
        if (in_word(peek())) throw ParseError(line_, "a number that goes on as a word");
        add(whole ? Token::Integer : Token::Float64, "", value);
    }

    static uint64_t integer(const char* start, char** stop) {
        if (start[0] == '0' && (start[1] == 'b' || start[1] == 'B')) {
            return std::strtoull(start + 2, stop, 2);
        }
        return std::strtoull(start, stop, 0);
    }

    // 0f and 0d are followed by all digits of the number's bits.
    void bits() {
        const bool single = std::tolower(static_cast<unsigned char>(peek(1))) == 'f';
        here_ += 2;
        const std::string digits = word(0);
        if (digits.size() != (single ? 8u : 16u) ||
            digits.find_first_not_of("0123456789abcdefABCDEF") != std::string::npos) {
            throw ParseError(line_, "0f takes 8 hexadecimal digits and 0d takes 16");
        }
        add(single ? Token::Float32 : Token::Float64, "",
            std::strtoull(digits.c_str(), nullptr, 16));
    }

    void string() {
        const size_t start = ++here_;
        while (peek() != '"') {
            if (here_ >= text_.size() || peek() == '\n')
                throw ParseError(line_, "a string that does not end");
            ++here_;
        }
        add(Token::String, text_.substr(start, here_++ - start));
    }

    const std::string& text_;
    size_t here_ = 0;
    uint32_t line_ = 1;
    std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokens_of(const std::string& text) { return Lexer(text).all(); }

}  // namespace ptx
