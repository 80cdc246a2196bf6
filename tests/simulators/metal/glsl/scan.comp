#version 450
layout(local_size_x = 64) in;
layout(std430, binding = 0) buffer X { int x[]; };
shared ivec2 pairs[64];
void main() {
    uint at = gl_LocalInvocationIndex;
    pairs[at] = ivec2(x[gl_GlobalInvocationID.x], 0);
    for (uint step_ = 1u; step_ < 64u; step_ *= 2u) {
        barrier();
        int before = at >= step_ ? pairs[at - step_].x : 0;
        barrier();
        pairs[at].x += before;
    }
    x[gl_GlobalInvocationID.x] = pairs[at].x;
}
