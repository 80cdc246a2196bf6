#version 450
layout(local_size_x = 32) in;
layout(std430, binding = 0) writeonly buffer Y { vec4 y[]; };
layout(std430, binding = 1) readonly buffer X { float x[]; };
void main() {
    float v = x[gl_GlobalInvocationID.x];
    vec2 both = vec2(v, -v);
    vec2 a = mix(smoothstep(vec2(-1.0), vec2(1.0), both), step(vec2(0.5), both), bvec2(v > 1.0, false));
    y[gl_GlobalInvocationID.x] = vec4(sin(v) + cos(v), exp2(v) * sign(v), a.x + a.y, fract(v));
}
