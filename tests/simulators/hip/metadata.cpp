#include "metadata.h"

#include <stdexcept>

namespace gfx9 {
namespace {

class Reader {
public:
    Reader(const uint8_t* bytes, uint64_t nbytes) : at_(bytes), end_(bytes + nbytes) {}

    Value value(int depth = 0) {
        if (depth > 16) throw std::runtime_error("metadata is nested too deeply");
        const auto kind = uint8_t(unsigned_of(1));
        if (kind < 0x80) return number(kind);
        if (kind < 0x90) return map(kind & 15, depth);
        if (kind < 0xa0) return list(kind & 15, depth);
        if (kind < 0xc0) return text(kind & 31);
        if (kind >= 0xe0) return number(int8_t(kind));
        switch (kind) {
            case 0xc0: case 0xc2: return number(0);
            case 0xc3: return number(1);
            case 0xcc: case 0xcd: case 0xce: case 0xcf: return number(int64_t(unsigned_of(1 << (kind - 0xcc))));
            case 0xd0: return number(int8_t(unsigned_of(1)));
            case 0xd1: return number(int16_t(unsigned_of(2)));
            case 0xd2: return number(int32_t(unsigned_of(4)));
            case 0xd3: return number(int64_t(unsigned_of(8)));
            case 0xd9: case 0xda: case 0xdb: return text(unsigned_of(1 << (kind - 0xd9)));
            case 0xdc: case 0xdd: return list(unsigned_of(2 << (kind - 0xdc)), depth);
            case 0xde: case 0xdf: return map(unsigned_of(2 << (kind - 0xde)), depth);
            default: throw std::runtime_error("metadata of an unknown kind");
        }
    }

private:
    const uint8_t *at_, *end_;

    const uint8_t* take(uint64_t nbytes) {
        if (nbytes > uint64_t(end_ - at_)) throw std::runtime_error("metadata ends too early");
        at_ += nbytes;
        return at_ - nbytes;
    }

    // The first byte is the highest.
    uint64_t unsigned_of(int nbytes) {
        uint64_t result = 0;
        for (const uint8_t* byte = take(uint64_t(nbytes)); nbytes > 0; --nbytes) result = result << 8 | *byte++;
        return result;
    }

    static Value number(int64_t value) {
        Value result;
        result.number = value;
        return result;
    }

    Value text(uint64_t nbytes) {
        Value result;
        const uint8_t* start = take(nbytes);
        result.text.assign(start, start + nbytes);
        return result;
    }

    Value list(uint64_t count, int depth) {
        Value result;
        for (; count > 0; --count) result.list.push_back(value(depth + 1));
        return result;
    }

    Value map(uint64_t count, int depth) {
        Value result;
        for (; count > 0; --count) {
            const std::string name = value(depth + 1).text;
            result.fields[name] = value(depth + 1);
        }
        return result;
    }
};

}  // namespace

const Value& Value::operator[](const std::string& name) const {
    static const Value absent;
    auto found = fields.find(name);
    return found == fields.end() ? absent : found->second;
}

Value read_metadata(const uint8_t* bytes, uint64_t nbytes) { return Reader(bytes, nbytes).value(); }

}  // namespace gfx9
