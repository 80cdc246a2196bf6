#version 450
layout(local_size_x = 16) in;
layout(std430, binding = 0) buffer Y { int y[]; };
layout(std430, binding = 1) buffer Turn { uint turn; };
int collatz(inout int n) {
    int steps = 0;
    while (n != 1) {
        switch (n & 1) {
            case 0: n /= 2; break;
            default: n = 3 * n + 1;
        }
        steps++;
        if (steps > 200) break;
    }
    return steps;
}
void main() {
    uint i = gl_GlobalInvocationID.x;
    int history[4] = int[](0, 0, 0, 0);
    int n = y[i];
    history[i & 3u] = collatz(n);
    y[i] = history[0] + 10 * history[1] + 100 * history[2] + 1000 * history[3] + n;
    uint seen = turn;
    for (int k = 0; k < 100; k++) {
        uint old = atomicCompSwap(turn, seen, seen + 1u);
        if (old == seen) break;
        seen = old;
    }
}
