#version 450
layout(local_size_x = 32) in;
layout(std430, binding = 0) writeonly buffer Y { uvec4 y[]; };
layout(std430, binding = 1) readonly buffer X { uint x[]; };
void main() {
    uint v = x[gl_GlobalInvocationID.x];
    y[gl_GlobalInvocationID.x] = uvec4(bitfieldExtract(v, 5, 9), uint(bitCount(v)),
                                       bitfieldReverse(v), bitfieldInsert(v, 21u, 3, 5));
}
