#version 450
layout(local_size_x = 64) in;
layout(std430, binding = 0) buffer Bins { uint bins[16]; uint most; int least; };
layout(std430, binding = 1) readonly buffer X { uint x[]; };
shared uint counts[16];
void main() {
    uint at = gl_LocalInvocationIndex;
    if (at < 16u) counts[at] = 0u;
    barrier();
    uint value = x[gl_GlobalInvocationID.x];
    atomicAdd(counts[value & 15u], 1u);
    atomicMax(most, value);
    atomicMin(least, int(value) - 100);
    barrier();
    if (at < 16u) atomicAdd(bins[at], counts[at]);
}
