// Loads, stores and atomics of lanes, and how their addresses are found and checked.
#pragma once

#include <algorithm>

#include "arithmetic.h"

namespace gfx9 {

[[noreturn]] inline void out_of_bounds(const char* what, uint64_t address, uint64_t nbytes, int lane) {
    char text[96];
    std::snprintf(text, sizeof text, "%s of %d bytes at 0x%llx is out of bounds", what, int(nbytes),
                  static_cast<unsigned long long>(address));
    throw Stop{Fault::OutOfBounds, text, lane};
}

// Shared memory: addresses are offsets.
inline uint8_t* shared_at(Wave& wave, uint64_t address, uint64_t nbytes) {
    auto& shared = wave.group->shared;
    const bool inside = address <= shared.size() && nbytes <= shared.size() - address;
    return inside ? shared.data() + address : nullptr;
}

// Device memory, and through generic addresses the block's shared memory too.
inline uint8_t* global_at(Wave& wave, uint64_t address, uint64_t nbytes, bool write) {
    if (address >> 32 == SHARED_APERTURE) return shared_at(wave, uint32_t(address), nbytes);
    const auto within = [&](const uint8_t* start, uint64_t size) {
        const uint64_t offset = address - reinterpret_cast<uint64_t>(start);
        return start && offset <= size && nbytes <= size - offset;
    };
    const Group& group = *wave.group;
    if (!write && (within(group.params, group.params_nbytes) ||
                   within(group.packet, PACKET_NBYTES)))
        return reinterpret_cast<uint8_t*>(address);
    return static_cast<uint8_t*>(group.memory->at(address, nbytes, write));
}

// The space that an instruction's name begins with.
struct Global {
    static uint8_t* at(Wave& wave, uint64_t address, uint64_t nbytes, bool write) {
        return global_at(wave, address, nbytes, write);
    }
    // A vector pair, or a vector word beside a scalar pair.
    static void addresses(const Wave& wave, const Instruction& is, int which, uint64_t* out) {
        const Operand& base = is.op[is.ops - 1];
        const uint32_t* low = wave.v[is.op[which].index];
        if (is.op[which].count == 2) {
            const uint32_t* high = wave.v[is.op[which].index + 1];
            for (int lane = 0; lane < LANES; ++lane)
                out[lane] = (uint64_t(high[lane]) << 32 | low[lane]) + int64_t(is.offset);
        } else {
            const uint64_t start = wave.pair(base.index) + int64_t(is.offset);
            for (int lane = 0; lane < LANES; ++lane) out[lane] = start + low[lane];
        }
    }
};

struct Shared {
    static uint8_t* at(Wave& wave, uint64_t address, uint64_t nbytes, bool) {
        return shared_at(wave, address, nbytes);
    }
    static void addresses(const Wave& wave, const Instruction& is, int which, uint64_t* out) {
        const uint32_t* word = wave.v[is.op[which].index];
        for (int lane = 0; lane < LANES; ++lane) out[lane] = word[lane] + uint32_t(is.offset);
    }
};

// Calls `each(lane, bytes)` for active lanes. Addresses that lie in one allocation are checked
// together.
template <class Space, class Each>
void for_lanes(Wave& wave, const uint64_t* addresses, uint64_t nbytes, bool write, Each each) {
    const uint64_t exec = wave.exec();
    if (!exec) return;
    uint64_t least = ~0ull, most = 0;
    for (int lane = 0; lane < LANES; ++lane)
        if (exec >> lane & 1) {
            least = std::min(least, addresses[lane]);
            most = std::max(most, addresses[lane]);
        }
    constexpr uint64_t NEAR = 1 << 20;  // lanes further apart are of no one pattern
    uint8_t* start =
        most - least <= NEAR ? Space::at(wave, least, most - least + nbytes, write) : nullptr;
    for (int lane = 0; lane < LANES; ++lane) {
        if (!(exec >> lane & 1)) continue;
        const uint64_t address = addresses[lane];
        uint8_t* bytes = start ? start + (address - least)
                               : Space::at(wave, address, nbytes, write);
        if (!bytes) out_of_bounds(write ? "a write" : "a read", address, nbytes, lane);
        each(lane, bytes);
    }
}

// Of memory type From, widened into a register, or `count` registers of words.
template <class Space, class From, class To, int count = 1>
void load(Wave& wave, const Instruction& is) {
    uint64_t addresses[LANES];
    Space::addresses(wave, is, 1, addresses);
    uint32_t* to = wave.v[is.op[0].index];
    for_lanes<Space>(wave, addresses, sizeof(From) * count, false, [&](int lane, const uint8_t* bytes) {
        for (int part = 0; part < count; ++part) {
            From value;
            std::memcpy(&value, bytes + part * sizeof value, sizeof value);
            to[part * LANES + lane] = uint32_t(To(value));
        }
    });
}

// Into one half of the register; the other stays.
template <class Space, class From, int shift>
void load_half(Wave& wave, const Instruction& is) {
    uint64_t addresses[LANES];
    Space::addresses(wave, is, 1, addresses);
    uint32_t* to = wave.v[is.op[0].index];
    for_lanes<Space>(wave, addresses, sizeof(From), false, [&](int lane, const uint8_t* bytes) {
        From value;
        std::memcpy(&value, bytes, sizeof value);
        to[lane] = (to[lane] & ~(0xffffu << shift)) | uint32_t(uint16_t(value)) << shift;
    });
}

template <class Space, class To, int count = 1, int shift = 0>
void store(Wave& wave, const Instruction& is) {
    uint64_t addresses[LANES];
    Space::addresses(wave, is, 0, addresses);
    const uint32_t* from = wave.v[is.op[1].index];
    for_lanes<Space>(wave, addresses, sizeof(To) * count, true, [&](int lane, uint8_t* bytes) {
        for (int part = 0; part < count; ++part) {
            const To value = To(from[part * LANES + lane] >> shift);
            std::memcpy(bytes + part * sizeof value, &value, sizeof value);
        }
    });
}

// A value of T in one register or two, from operand `which`, behind `skipped` registers.
template <class T>
T value_at(const Wave& wave, int index, int lane) {
    if constexpr (sizeof(T) == 8)
        return bits_as<T>(uint64_t(wave.v[index + 1][lane]) << 32 | wave.v[index][lane]);
    else
        return bits_as<T>(wave.v[index][lane]);
}

template <class T>
void set_value(Wave& wave, int index, int lane, T value) {
    if constexpr (sizeof(T) == 8) {
        const auto bits = bits_as<uint64_t>(value);
        wave.v[index][lane] = uint32_t(bits);
        wave.v[index + 1][lane] = uint32_t(bits >> 32);
    } else {
        wave.v[index][lane] = bits_as<uint32_t>(value);
    }
}

// Replaces the value by `change` of it, as one step for every thread of the host; gives the old.
template <class T, class Change>
T replace(uint8_t* bytes, Change change) {
    using Bits = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
    auto* place = reinterpret_cast<Bits*>(bytes);
    Bits old = __atomic_load_n(place, __ATOMIC_SEQ_CST);
    while (!__atomic_compare_exchange_n(place, &old, bits_as<Bits>(change(bits_as<T>(old))), false,
                                        __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
    }
    return bits_as<T>(old);
}

// `change(old, lane)` gives the new value. Lanes go one after the other.
template <class Space, class T, class Change>
void atomic(Wave& wave, const Instruction& is, bool returns, Change change) {
    uint64_t addresses[LANES];
    Space::addresses(wave, is, returns ? 1 : 0, addresses);
    const int out = is.op[0].index;
    T results[LANES];
    for_lanes<Space>(wave, addresses, sizeof(T), true, [&](int lane, uint8_t* bytes) {
        if (addresses[lane] % sizeof(T))
            throw Stop{Fault::Misaligned, "an atomic's address is not aligned", lane};
        results[lane] = replace<T>(bytes, [&](T old) { return change(old, lane); });
    });
    if (!returns) return;
    for (int lane = 0; lane < LANES; ++lane)
        if (wave.exec() >> lane & 1) set_value<T>(wave, out, lane, results[lane]);
}

// By the instruction's own operation on two values.
template <class Space, class T>
void change_atomically(Wave& wave, const Instruction& is, bool returns) {
    const int data = is.op[returns ? 2 : 1].index;
    const auto change = reinterpret_cast<T (*)(T, T)>(is.function);
    atomic<Space, T>(wave, is, returns, [&](T old, int lane) {
        return change(old, value_at<T>(wave, data, lane));
    });
}

// Operations on memory that global and shared memory have: `(old, given) -> new`.
template <class Add>
void for_atomics(Add add) {
    using i32 = int32_t;
    using u32 = uint32_t;
    using i64 = int64_t;
    using u64 = uint64_t;
    auto both = [&](const char* name, auto wide, auto narrow) { add(name, +narrow), add(name, +wide); };
    both("add", [](u64 a, u64 b) { return a + b; }, [](u32 a, u32 b) { return a + b; });
    both("sub", [](u64 a, u64 b) { return a - b; }, [](u32 a, u32 b) { return a - b; });
    both("and", [](u64 a, u64 b) { return a & b; }, [](u32 a, u32 b) { return a & b; });
    both("or", [](u64 a, u64 b) { return a | b; }, [](u32 a, u32 b) { return a | b; });
    both("xor", [](u64 a, u64 b) { return a ^ b; }, [](u32 a, u32 b) { return a ^ b; });
    both("swap", [](u64, u64 b) { return b; }, [](u32, u32 b) { return b; });
    both("min", [](i64 a, i64 b) { return std::min(a, b); }, [](i32 a, i32 b) { return std::min(a, b); });
    both("max", [](i64 a, i64 b) { return std::max(a, b); }, [](i32 a, i32 b) { return std::max(a, b); });
    both("min", [](u64 a, u64 b) { return std::min(a, b); }, [](u32 a, u32 b) { return std::min(a, b); });
    both("max", [](u64 a, u64 b) { return std::max(a, b); }, [](u32 a, u32 b) { return std::max(a, b); });
    both("inc", [](u64 a, u64 b) { return a >= b ? 0 : a + 1; }, [](u32 a, u32 b) { return a >= b ? 0 : a + 1; });
    both("dec", [](u64 a, u64 b) { return a == 0 || a > b ? b : a - 1; },
         [](u32 a, u32 b) { return a == 0 || a > b ? b : a - 1; });
}

}  // namespace gfx9
