#version 450
layout(local_size_x = 8, local_size_y = 4) in;
layout(std430, binding = 0) writeonly buffer Out { float result[]; };
layout(std430, binding = 1) readonly buffer In { float image[]; };
layout(std140, binding = 2) uniform Values { ivec2 size; };
void main() {
    ivec2 at = ivec2(gl_GlobalInvocationID.xy);
    if (any(greaterThanEqual(at, size))) return;
    float total = 0.0;
    for (int y = -1; y <= 1; y++)
        for (int x = -1; x <= 1; x++) {
            ivec2 near = clamp(at + ivec2(x, y), ivec2(0), size - 1);
            total += image[near.y * size.x + near.x];
        }
    result[at.y * size.x + at.x] = total;
}
