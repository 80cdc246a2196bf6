// From a row such as `vector("v_add_f32", [](float a, float b) { return a + b; })` to what a wave
// does: the lambda's types say how operands are read and where the result goes.
#pragma once

#include <functional>
#include <type_traits>
#include <unordered_map>

#include "half.h"
#include "instruction.h"

namespace gfx9 {

// A lane's bit of a scalar pair: carries and conditions.
struct Mask {
    bool on;
    operator bool() const { return on; }
};

// Two 16-bit values of a register.
template <class T>
struct Packed {
    T low, high;
};

// Of v_fma_mix: float32, or one of two halves.
struct Mixed {
    float value;
    operator float() const { return value; }
};

// A result and a lane's bit.
template <class T>
struct Carried {
    T value;
    bool carry;
};

// An integer before it is cut to T, so that `clamp` can saturate.
template <class T>
struct Exact {
    int64_t value;
};

template <class T>
constexpr Type type_of() {
    if constexpr (std::is_same_v<T, Half>) return Type::F16;
    else if constexpr (std::is_same_v<T, float>) return Type::F32;
    else if constexpr (std::is_same_v<T, double>) return Type::F64;
    else if constexpr (std::is_same_v<T, Mask>) return Type::Mask;
    else if constexpr (std::is_same_v<T, Mixed>) return Type::Mixed;
    else if constexpr (std::is_same_v<T, Packed<Half>>) return Type::F16;
    else if constexpr (std::is_integral_v<T> && sizeof(T) == 2) return Type::B16;
    else if constexpr (std::is_integral_v<T> && sizeof(T) == 8) return Type::B64;
    else if constexpr (std::is_integral_v<T>) return Type::B32;
    else return Type::Packed;
}

template <class T>
struct IsPacked : std::false_type {};
template <class T>
struct IsPacked<Packed<T>> : std::true_type {
    using Part = T;
};

// On the highest bit, whatever the type: v_cndmask_b32 moves floats too.
template <class T>
T with_signs(T value, bool absolute, bool negative) {
    using Bits = std::conditional_t<sizeof(T) == 8, uint64_t,
                                    std::conditional_t<sizeof(T) == 4, uint32_t, uint16_t>>;
    constexpr auto SIGN = Bits(Bits(1) << (8 * sizeof(T) - 1));
    auto bits = bits_as<Bits>(value);
    if (absolute) bits = Bits(bits & ~SIGN);
    if (negative) bits ^= SIGN;
    return bits_as<T>(bits);
}

inline uint32_t scalar_of(const Wave& wave, const Operand& operand) {
    switch (operand.kind) {
        case Kind::Scalar: return wave.s[operand.index];
        case Kind::Condition:
            switch (Condition(operand.index)) {
                case Condition::Scc: return wave.scc;
                case Condition::Vccz: return wave.pair(VCC) == 0;
                default: return wave.exec() == 0;
            }
        default: return uint32_t(operand.bits);
    }
}

inline uint64_t scalar_pair_of(const Wave& wave, const Operand& operand) {
    return operand.kind == Kind::Scalar ? wave.pair(operand.index) : operand.bits;
}

inline uint32_t selected(uint32_t word, const Operand& operand) {
    int shift = 0, width = 32;
    switch (operand.select) {
        case Select::All: return word;
        case Select::Word0: width = 16; break;
        case Select::Word1: shift = width = 16; break;
        default: shift = 8 * (int(operand.select) - int(Select::Byte0)), width = 8;
    }
    word >>= shift;
    return operand.sign_extended ? uint32_t(int32_t(word << (32 - width)) >> (32 - width))
                                 : word & ((1u << width) - 1);
}

// A register's words, or one scalar word for all lanes.
inline const uint32_t* words_of(const Wave& wave, const Operand& operand, uint32_t* room,
                                int part = 0) {
    if (operand.kind == Kind::Vector) return wave.v[operand.index + part];
    const uint32_t word = scalar_of(wave, operand);
    for (int lane = 0; lane < LANES; ++lane) room[lane] = word;
    return room;
}

template <class T>
T from_half_word(uint16_t bits) {
    if constexpr (std::is_same_v<T, Half>) return Half(bits, 0);
    else return T(bits);
}

template <class T>
T from_word(uint32_t word, const Operand& operand) {
    if constexpr (IsPacked<T>::value) {
        using Part = typename IsPacked<T>::Part;
        const auto low = uint16_t(operand.low_from_high ? word >> 16 : word);
        const auto high = uint16_t(operand.high_from_high ? word >> 16 : word);
        return {with_signs(from_half_word<Part>(low), false, operand.negative_low),
                with_signs(from_half_word<Part>(high), false, operand.negative_high)};
    } else if constexpr (std::is_same_v<T, Mixed>) {
        const auto half = uint16_t(operand.low_from_high ? word >> 16 : word);
        const float value = operand.high_from_high ? float(Half(half, 0)) : bits_as<float>(word);
        return {with_signs(value, operand.absolute, operand.negative)};
    } else if constexpr (sizeof(T) == 2) {
        word = operand.low_from_high ? word >> 16 : selected(word, operand);
        return with_signs(from_half_word<T>(uint16_t(word)), operand.absolute, operand.negative);
    } else {
        return with_signs(bits_as<T>(selected(word, operand)), operand.absolute, operand.negative);
    }
}

// The operand for each lane: the register itself where it can be, else `room`.
template <class T>
const T* lanes_of(const Wave& wave, const Operand& operand, T* room) {
    if constexpr (std::is_same_v<T, Mask>) {
        const uint64_t bits = scalar_pair_of(wave, operand);
        for (int lane = 0; lane < LANES; ++lane) room[lane] = {bool(bits >> lane & 1)};
    } else if constexpr (sizeof(T) == 8) {
        if (operand.kind == Kind::Vector) {
            const uint32_t *low = wave.v[operand.index], *high = wave.v[operand.index + 1];
            for (int lane = 0; lane < LANES; ++lane)
                room[lane] = bits_as<T>(uint64_t(high[lane]) << 32 | low[lane]);
        } else {
            const T value = bits_as<T>(scalar_pair_of(wave, operand));
            for (int lane = 0; lane < LANES; ++lane) room[lane] = value;
        }
        if (operand.absolute || operand.negative)
            for (int lane = 0; lane < LANES; ++lane)
                room[lane] = with_signs(room[lane], operand.absolute, operand.negative);
    } else {
        if constexpr (sizeof(T) == 4 && std::is_arithmetic_v<T>)
            if (operand.kind == Kind::Vector && operand.whole)
                return reinterpret_cast<const T*>(wave.v[operand.index]);
        uint32_t space[LANES];
        const uint32_t* words = words_of(wave, operand, space);
        for (int lane = 0; lane < LANES; ++lane) room[lane] = from_word<T>(words[lane], operand);
    }
    return room;
}

// -- results

inline void put_words(Wave& wave, int index, const uint32_t* words) {
    const uint64_t exec = wave.exec();
    uint32_t* to = wave.v[index];
    if (exec == ~0ull) std::memcpy(to, words, sizeof wave.v[0]);
    else
        for (int lane = 0; lane < LANES; ++lane)
            if (exec >> lane & 1) to[lane] = words[lane];
}

// SDWA: into a part of the register.
inline uint32_t placed(uint32_t word, uint32_t old, const Instruction& is) {
    int shift = 0, width = 16;
    switch (is.out_select) {
        case Select::All: return word;
        case Select::Word0: break;
        case Select::Word1: shift = 16; break;
        default: shift = 8 * (int(is.out_select) - int(Select::Byte0)), width = 8;
    }
    const uint32_t field = ((1u << width) - 1) << shift, value = word << shift & field;
    if (is.unused == Unused::Keep) return (old & ~field) | value;
    if (is.unused == Unused::Zero) return value;
    return uint32_t(int32_t(word << (32 - width)) >> (32 - width)) << shift;
}

template <class T>
T finished(T value, const Instruction& is) {
    if (is.scale) value = T(std::ldexp(value, is.scale));
    if (is.clamp) value = value > T(0) ? (value < T(1) ? value : T(1)) : T(0);  // NaN: 0
    return value;
}

template <class T>
uint32_t word_of(T value, const Instruction& is) {
    if constexpr (std::is_same_v<T, float>) {
        return bits_as<uint32_t>(is.scale || is.clamp ? finished(value, is) : value);
    } else if constexpr (std::is_same_v<T, Half>) {
        return is.scale || is.clamp ? Half(finished(float(value), is)).bits : value.bits;
    } else if constexpr (IsPacked<T>::value) {
        return word_of(value.low, is) | word_of(value.high, is) << 16;
    } else if constexpr (sizeof(T) == 2) {
        return uint16_t(value);
    } else {
        return uint32_t(value);
    }
}

template <class T>
uint32_t word_of(Exact<T> exact, const Instruction& is) {
    int64_t value = exact.value;
    if (is.clamp) {
        const int64_t least = std::numeric_limits<T>::min(), most = std::numeric_limits<T>::max();
        value = value < least ? least : value > most ? most : value;
    }
    return word_of(T(value), is);
}

template <class T>
void put(Wave& wave, const Instruction& is, const T* results) {
    alignas(64) uint32_t low[LANES], high[LANES];
    if constexpr (std::is_same_v<T, bool>) {
        uint64_t bits = 0;
        for (int lane = 0; lane < LANES; ++lane) bits |= uint64_t(results[lane]) << lane;
        bits &= wave.exec();
        wave.set_pair(is.out.index, bits);
        if (is.masks) wave.set_pair(EXEC, bits);
    } else if constexpr (sizeof(T) == 8 && std::is_arithmetic_v<T>) {
        for (int lane = 0; lane < LANES; ++lane) {
            T value = results[lane];
            if constexpr (std::is_same_v<T, double>) value = finished(value, is);
            const auto bits = bits_as<uint64_t>(value);
            low[lane] = uint32_t(bits), high[lane] = uint32_t(bits >> 32);
        }
        put_words(wave, is.out.index, low);
        put_words(wave, is.out.index + 1, high);
    } else {
        for (int lane = 0; lane < LANES; ++lane) low[lane] = word_of(results[lane], is);
        if (is.out_select != Select::All)
            for (int lane = 0; lane < LANES; ++lane)
                low[lane] = placed(low[lane], wave.v[is.out.index][lane], is);
        put_words(wave, is.out.index, low);
    }
}

template <class T>
void put(Wave& wave, const Instruction& is, const Carried<T>* results) {
    T values[LANES];
    uint64_t bits = 0;
    for (int lane = 0; lane < LANES; ++lane) {
        values[lane] = results[lane].value;
        bits |= uint64_t(results[lane].carry) << lane;
    }
    const uint64_t exec = wave.exec();
    put(wave, is, values);
    wave.set_pair(is.carry.index, bits & exec);
}

template <class T>
struct IsCarried : std::false_type {};
template <class T>
struct IsCarried<Carried<T>> : std::true_type {};

// -- rows

template <class T>
struct Room {
    T lanes[LANES];
};

template <class R, class... A>
void run_lanes(Wave& wave, const Instruction& is, R (*function)(A...), const A*... in) {
    alignas(64) R results[LANES];
    for (int lane = 0; lane < LANES; ++lane) results[lane] = function(in[lane]...);
    put(wave, is, results);
}

template <class R, class... A, size_t... I>
void run_vector(Wave& wave, const Instruction& is, R (*function)(A...), std::index_sequence<I...>) {
    run_lanes(wave, is, function, lanes_of<A>(wave, is.in[I], Room<A>().lanes)...);
}

class Table {
public:
    std::unordered_map<std::string, Row> rows;

    // A vector instruction: lane by lane.
    template <class F>
    void vector(const std::string& name, F function) {
        add_vector(name, +function);
    }

    // A scalar one. It may take the wave first, and `bool& scc` last.
    template <class F>
    void scalar(const std::string& name, F function) {
        add_scalar(name, +function);
    }

    // Anything else: it finds its operands itself.
    void special(const std::string& name, Run run, Operation function = nullptr) {
        rows[name] = {run, function, false, false, false, {}};
    }

private:
    // One for all functions of a type, which the instruction has: each of its own takes a compiler
    // three times as long.
    template <class R, class... A>
    void add_vector(const std::string& name, R (*function)(A...)) {
        Run run = [](Wave& wave, const Instruction& is) {
            run_vector(wave, is, reinterpret_cast<R (*)(A...)>(is.function),
                       std::index_sequence_for<A...>{});
        };
        rows[name] = {run, Operation(function), true, true, IsCarried<R>::value, {}};
        (add_type<A>(rows[name]), ...);
    }

    template <class R, class... A>
    void add_scalar(const std::string& name, R (*function)(A...)) {
        Run run = [](Wave& wave, const Instruction& is) {
            run_scalar(wave, is, reinterpret_cast<R (*)(A...)>(is.function),
                       std::index_sequence_for<A...>{});
        };
        rows[name] = {run, Operation(function), true, !std::is_void_v<R>, false, {}};
        (add_type<A>(rows[name]), ...);
    }

    template <class A>
    static void add_type(Row& row) {
        if constexpr (!std::is_same_v<A, Wave&> && !std::is_same_v<A, bool&>)
            row.in.push_back(type_of<A>());
    }

    template <class A>
    static A scalar_argument(Wave& wave, const Operand& operand) {
        if constexpr (std::is_same_v<A, Wave&>) return wave;
        else if constexpr (std::is_same_v<A, bool&>) return wave.scc;
        else if constexpr (sizeof(A) == 8) return A(scalar_pair_of(wave, operand));
        else return A(scalar_of(wave, operand));
    }

    template <class R, class... A, size_t... I>
    static void run_scalar(Wave& wave, const Instruction& is, R (*function)(A...),
                           std::index_sequence<I...>) {
        constexpr bool WAVE = (std::is_same_v<A, Wave&> || ...);
        auto call = [&] { return function(scalar_argument<A>(wave, is.in[I - (I && WAVE)])...); };
        if constexpr (std::is_void_v<R>) call();
        else if constexpr (sizeof(R) == 8) wave.set_pair(is.out.index, uint64_t(call()));
        else wave.s[is.out.index] = uint32_t(call());
    }
};

// Each file of rows adds its own.
void add_float_rows(Table&);
void add_half_rows(Table&);
void add_integer_rows(Table&);
void add_bit_rows(Table&);
void add_convert_rows(Table&);
void add_compare_rows(Table&);
void add_scalar_rows(Table&);
void add_control_rows(Table&);
void add_lane_rows(Table&);
void add_memory_rows(Table&);
void add_shared_rows(Table&);
void add_private_rows(Table&);
void add_image_rows(Table&);

}  // namespace gfx9
