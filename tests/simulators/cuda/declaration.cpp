#include "declaration.h"

#include <algorithm>
#include <cstring>

namespace ptx {

namespace {

// A module that wants more than this is a mistake, and its sum must not wrap.
constexpr uint64_t most_nbytes = 1ull << 30;

void read_extents(Cursor& cursor, Declaration& made) {
    while (cursor.mark("[")) {
        const bool first = !made.is_array;
        made.is_array = true;
        if (cursor.mark("]")) {
            if (!first) cursor.fail("only the first extent of an array may be left out");
            made.unsized = true;
            made.extents.push_back(0);
            continue;
        }
        made.extents.push_back(cursor.integer("an extent"));
        cursor.expect("]");
    }
}

void read_size(Cursor& cursor, Declaration& made) {
    made.nbytes = static_cast<uint64_t>(nbytes_of(made.type)) * made.lanes;
    for (size_t place = made.unsized ? 1 : 0; place < made.extents.size(); ++place) {
        const uint64_t extent = made.extents[place];
        if (made.nbytes != 0 && extent > most_nbytes / made.nbytes) {
            cursor.fail(made.name + " is larger than any memory");
        }
        made.nbytes *= extent;
    }
}

void read_name(Cursor& cursor, Declaration& made) {
    made.line = cursor.line();
    made.name = cursor.word("a name");
    if (cursor.mark("<")) {
        made.is_range = true;
        made.count = cursor.integer("a count");
        cursor.expect(">");
        return;
    }
    read_extents(cursor, made);
    read_size(cursor, made);
}

}  // namespace

Declaration declaration(Cursor& cursor) {
    Declaration made;
    while (cursor.peek().kind == Token::Dotted) {
        const std::string word = cursor.take().text;
        if (word == "align") {
            made.alignment = cursor.integer("an alignment");
            if (made.alignment == 0 || (made.alignment & (made.alignment - 1)) != 0 ||
                made.alignment > 128 * 1024) {
                cursor.fail("an alignment is a power of two");
            }
        } else if (word == "v2" || word == "v4") {
            made.lanes = word == "v2" ? 2 : 4;
        } else if (word == "attribute") {
            cursor.skip_past(")");
        } else if (word == "ptr") {
            // What the pointer of a parameter points to: .ptr .global .align 4
            for (const char* space : {"global", "shared", "local", "const"}) cursor.dotted(space);
            if (cursor.dotted("align")) cursor.integer("an alignment");
        } else if (made.type = type_named(word); made.type == Type::none) {
            cursor.fail("a type expected (got ." + word + ")");
        }
    }
    if (made.type == Type::none) cursor.fail("a type expected (got " + shown(cursor.peek()) + ")");
    read_name(cursor, made);
    made.alignment = std::max<uint64_t>(
        {made.alignment, 1, static_cast<uint64_t>(nbytes_of(made.type)) * made.lanes});
    return made;
}

Declaration another(Cursor& cursor, const Declaration& first) {
    Declaration made;
    made.type = first.type;
    made.lanes = first.lanes;
    made.alignment = first.alignment;
    read_name(cursor, made);
    return made;
}

// -- initial values

namespace {

class Initialiser {
public:
    Initialiser(Cursor& cursor, Declaration& declared, Variable& variable, const FindVariable& find)
        : cursor_(cursor), declared_(declared), variable_(variable), find_(find),
          element_(nbytes_of(declared.type)) {}

    void whole() {
        if (!declared_.is_array && declared_.lanes == 1) {
            const bool braces = cursor_.mark("{");
            value(0);
            if (braces) cursor_.expect("}");
            return;
        }
        cursor_.expect("{");
        list(0, 0);
    }

private:
    // The bytes of one element of the dimension `depth`.
    uint64_t stride(size_t depth) const {
        uint64_t nbytes = static_cast<uint64_t>(element_) * declared_.lanes;
        for (size_t place = depth + 1; place < declared_.extents.size(); ++place) {
            nbytes *= declared_.extents[place];
        }
        return nbytes;
    }

    // Behind an opened brace.
    void list(size_t depth, uint64_t at) {
        if (cursor_.mark("}")) return;
        do {
            if (cursor_.mark("{")) {
                if (depth + 1 >= declared_.extents.size() + (declared_.lanes > 1)) {
                    cursor_.fail("more braces than dimensions");
                }
                list(depth + 1, at);
                at += depth < declared_.extents.size() ? stride(depth) : element_;
            } else {
                value(at);
                at += element_;
            }
        } while (cursor_.mark(","));
        cursor_.expect("}");
    }

    void value(uint64_t at) {
        if (declared_.unsized && at + element_ > variable_.initial.size() && at < (1u << 26)) {
            variable_.initial.resize(at + element_);
        }
        if (at + element_ > variable_.initial.size()) cursor_.fail("more values than elements");
        if (cursor_.peek().kind == Token::Word && cursor_.peek().text != "WARP_SZ")
            return address(at);
        const Token number = cursor_.number("an initial value");
        uint64_t bits = number.bits;
        const Type type = declared_.type;
        if (number.kind == Token::Float64 && type == Type::f32) {
            double wide;
            std::memcpy(&wide, &bits, sizeof wide);
            const auto narrow = static_cast<float>(wide);
            std::memcpy(&bits, &narrow, sizeof narrow);
        } else if (number.kind == Token::Integer
                       ? is_float(type)
                       : element_ != (number.kind == Token::Float32 ? 4u : 8u)) {
            cursor_.fail("an initial value that is no ." + std::string(name_of(type)));
        }
        std::memcpy(&variable_.initial[at], &bits, element_);
    }

    void address(uint64_t at) {
        std::string name = cursor_.word("a variable");
        const bool generic = name == "generic" && cursor_.mark("(");
        if (generic) name = cursor_.word("a variable");
        if (generic) cursor_.expect(")");
        const int64_t number = find_(name);
        if (number < 0) cursor_.fail("no variable " + name);
        if (element_ != 8) cursor_.fail("an address takes 64 bits");
        int64_t addend = 0;
        if (cursor_.mark("+")) addend = static_cast<int64_t>(cursor_.integer("an offset"));
        variable_.relocations.push_back({at, static_cast<uint32_t>(number), addend});
    }

    Cursor& cursor_;
    Declaration& declared_;
    Variable& variable_;
    const FindVariable& find_;
    uint32_t element_;
};

}  // namespace

void initialiser(Cursor& cursor, Declaration& declared, Variable& variable,
                 const FindVariable& find) {
    Initialiser(cursor, declared, variable, find).whole();
    if (declared.unsized) {
        declared.nbytes = variable.initial.size();
        variable.nbytes = declared.nbytes;
    }
}

}  // namespace ptx
