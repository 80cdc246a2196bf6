// Handlers made of an operation and a type, and the choice among them by type.
//
// An operation is a class with a static `of`, which takes and gives numbers.
#pragma once

#include "machine.h"

namespace ptx {

template <class Op, class T>
void unary(Thread& t, const Instruction& i) {
    put<T>(t, i.d, Op::of(get<T>(t, i.a)));
}

template <class Op, class T>
void binary(Thread& t, const Instruction& i) {
    put<T>(t, i.d, Op::of(get<T>(t, i.a), get<T>(t, i.b)));
}

template <class Op, class T>
void ternary(Thread& t, const Instruction& i) {
    put<T>(t, i.d, Op::of(get<T>(t, i.a), get<T>(t, i.b), get<T>(t, i.c)));
}

// Shapes for the choices below: Unary<Op>::run<T> is a Handler.
template <class Op>
struct Unary {
    template <class T> static constexpr Handler run = unary<Op, T>;
};
template <class Op>
struct Binary {
    template <class T> static constexpr Handler run = binary<Op, T>;
};
template <class Op>
struct Ternary {
    template <class T> static constexpr Handler run = ternary<Op, T>;
};

// Null for every other type.
template <class Shape>
Handler among_integers(Type type) {
    switch (type) {
        case Type::u16: return Shape::template run<uint16_t>;
        case Type::u32: return Shape::template run<uint32_t>;
        case Type::u64: return Shape::template run<uint64_t>;
        case Type::s16: return Shape::template run<int16_t>;
        case Type::s32: return Shape::template run<int32_t>;
        case Type::s64: return Shape::template run<int64_t>;
        default: return nullptr;
    }
}

template <class Shape>
Handler among_bits(Type type) {
    switch (type) {
        case Type::b16: return Shape::template run<uint16_t>;
        case Type::b32: return Shape::template run<uint32_t>;
        case Type::b64: return Shape::template run<uint64_t>;
        default: return nullptr;
    }
}

template <class Shape>
Handler among_floats(Type type) {
    switch (type) {
        case Type::f32: return Shape::template run<float>;
        case Type::f64: return Shape::template run<double>;
        default: return nullptr;
    }
}

}  // namespace ptx
