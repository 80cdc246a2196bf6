#version 450
#extension GL_EXT_shader_explicit_arithmetic_types : require
layout(local_size_x = 32) in;
layout(std430, binding = 0) writeonly buffer Y { int64_t y[]; };
layout(std430, binding = 1) readonly buffer A { int8_t a[]; };
layout(std430, binding = 2) readonly buffer B { uint16_t b[]; };
void main() {
    uint i = gl_GlobalInvocationID.x;
    int64_t wide = int64_t(a[i]) * int64_t(b[i]);
    y[i] = (wide << 20) - int64_t(b[i]) / 3l;
}
