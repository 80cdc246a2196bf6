#version 450
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_EXT_shader_16bit_storage : require
layout(local_size_x = 32) in;
layout(std430, binding = 0) buffer Y { float16_t y[]; };
layout(std430, binding = 1) readonly buffer X { float x[]; };
void main() {
    uint i = gl_GlobalInvocationID.x;
    f16vec2 both = f16vec2(float16_t(x[i]), y[i]);
    y[i] = both.x * float16_t(0.5) + both.y;
}
