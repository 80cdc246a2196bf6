#version 450
layout(local_size_x = 8, local_size_y = 8) in;
layout(std430, binding = 0) writeonly buffer C { float c[]; };
layout(std430, binding = 1) readonly buffer A { float a[]; };
layout(std430, binding = 2) readonly buffer B { float b[]; };
layout(std140, binding = 3) uniform Values { uint n; };
shared float left[8][8];
shared float right[8][8];
void main() {
    uvec2 at = gl_LocalInvocationID.xy, place = gl_GlobalInvocationID.xy;
    float total = 0.0;
    for (uint tile = 0u; tile < n; tile += 8u) {
        left[at.y][at.x] = a[place.y * n + tile + at.x];
        right[at.y][at.x] = b[(tile + at.y) * n + place.x];
        barrier();
        for (uint k = 0u; k < 8u; k++) total += left[at.y][k] * right[k][at.x];
        barrier();
    }
    c[place.y * n + place.x] = total;
}
