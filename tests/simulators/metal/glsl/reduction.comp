#version 450
layout(local_size_x = 128) in;
layout(std430, binding = 0) writeonly buffer Sums { int sums[]; };
layout(std430, binding = 1) readonly buffer X { int x[]; };
shared int part[128];
void main() {
    uint at = gl_LocalInvocationIndex;
    part[at] = x[gl_GlobalInvocationID.x];
    for (uint half_ = 64u; half_ > 0u; half_ >>= 1u) {
        barrier();
        if (at < half_) part[at] += part[at + half_];
    }
    if (at == 0u) sums[gl_WorkGroupID.x] = part[0];
}
