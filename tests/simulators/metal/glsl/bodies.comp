#version 450
layout(local_size_x = 32) in;
struct Body { vec4 place; vec3 speed; float mass; };
layout(std430, binding = 0) buffer Bodies { Body bodies[]; };
layout(std140, binding = 1) uniform Values { vec3 pull; float dt; };
const float weights[4] = float[](0.5, 0.25, 2.0, 4.0);
vec3 limited(vec3 v) { float l = length(v); return l > 2.0 ? v * (2.0 / l) : v; }
void main() {
    uint i = gl_GlobalInvocationID.x;
    Body body = bodies[i];
    body.speed = limited(body.speed + pull * dt * weights[i & 3u]);
    body.place.xyz += body.speed * dt;
    body.place.w = dot(body.place.xyz, body.place.zyx) + clamp(body.mass, -1.0, 1.0);
    body.speed = mix(body.speed, cross(body.speed, pull), 0.25).zxy;
    bodies[i] = body;
}
