// CUDA C for what NVRTC makes of it: library functions, calls, structs, tables, warps.
typedef unsigned long long u64;

extern "C" {

__global__ void singles(float *to, const float *from, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const float x = from[i], size = fabsf(x);
    const float results[] = {sinf(x), cosf(x), tanf(x), expf(x), logf(size), powf(size, 1.5f), sqrtf(size),
                             rsqrtf(size), atan2f(x, 2), fmodf(x, 0.5f), cbrtf(x), log2f(size), sinhf(x),
                             tanhf(x), rintf(x), hypotf(x, 3), __sinf(x), __expf(x)};
    for (int k = 0; k < sizeof results / sizeof *results; ++k) to[k * n + i] = results[k];
}

__global__ void doubles(double *to, const double *from, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const double x = from[i], size = fabs(x);
    const double results[] = {sin(x), cos(x), tan(x), exp(x), log(size), pow(size, 1.5), sqrt(size), rsqrt(size),
                              atan2(x, 2.0), fmod(x, 0.5), cbrt(x), 1 / x, tanh(x), sin(x * 1e9)};
    for (int k = 0; k < sizeof results / sizeof *results; ++k) to[k * n + i] = results[k];
}

__device__ __noinline__ int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }

__global__ void recursion(int *to) { to[threadIdx.x] = fibonacci(threadIdx.x); }

struct Record {
    int a;
    float b;
    double c;
    char d[5];
};

__device__ __noinline__ Record changed(Record record, int k) {
    record.a += k;
    record.b *= 2;
    record.c -= k;
    record.d[k % 5] += k;
    return record;
}

__global__ void records(double *to, Record record) {
    const Record made = changed(record, threadIdx.x);
    to[threadIdx.x] = made.a + made.b + made.c + made.d[threadIdx.x % 5];
}

__constant__ float factors[4] = {1, 2, 3, 4};
__device__ int counter;
__device__ const char *names[3] = {"ab", "cde", "f"};

__global__ void tables(float *to, int *counts) {
    const int t = threadIdx.x;
    to[t] = factors[t & 3];
    atomicAdd(&counter, t);
    __syncthreads();
    counts[t] = counter * 1000 + names[t % 3][t / 3 % 2];
}

__global__ void choices(int *to) {
    const int t = threadIdx.x;
    int result = 0;
    switch (t) {
        case 0: result = 5; break;
        case 1: result = t * 7; break;
        case 2: result = 9;
        case 3: result += 4; break;
        case 4: result = 44; break;
        case 5: result = t ^ 21; break;
        case 6: result = -1; break;
        case 7: result = t * t; break;
        default: result = 100;
    }
    to[t] = result;
}

__global__ void warps(int *to) {
    const int t = threadIdx.x;
    int sum = t;
    for (int step = 16; step; step >>= 1) sum += __shfl_down_sync(~0u, sum, step);
    to[t] = __shfl_sync(~0u, sum, 0) + __popc(__ballot_sync(~0u, t & 1)) + __reduce_add_sync(~0u, 1) +
            __popc(__match_any_sync(~0u, t % 4)) + __any_sync(~0u, t == 40);
}

__global__ void turned(float *to, const float *from) {
    extern __shared__ float whole[];
    __shared__ float one[33];
    const int t = threadIdx.x;
    whole[t] = from[t];
    one[t % 33] = 1;
    __syncthreads();
    to[t] = whole[blockDim.x - 1 - t] + one[t % 33];
}

__global__ void printing(int n) { printf("t%d %f %s %llu %c\n", threadIdx.x, n * 0.5, "text", 1ull << 40, 'x'); }

__global__ void local(int *to, int n) {
    int kept[50];
    for (int k = 0; k < 50; ++k) kept[k] = k * n;
    int sum = 0;
    for (int k = 0; k < 50; ++k) sum += kept[(k * 7 + threadIdx.x) % 50] * k;
    to[threadIdx.x] = sum;
}

__global__ void lock(int *to) {
    __shared__ int taken, count;
    if (!threadIdx.x) taken = count = 0;
    __syncthreads();
    for (bool done = false; !done;) {
        if (atomicCAS(&taken, 0, 1)) continue;
        ++count;
        __threadfence_block();
        atomicExch(&taken, 0);
        done = true;
    }
    __syncthreads();
    to[threadIdx.x] = count;
}

__global__ void vectors(uchar4 *to, const uchar4 *from) {
    uchar4 v = from[threadIdx.x];
    v.x += 1;
    v.y = v.z * 3;
    v.w = min(v.w, (unsigned char)9);
    to[threadIdx.x] = v;
}

__global__ void wide(long long *to, const long long *x, const long long *y) {
    const int t = threadIdx.x;
    to[t] = x[t] / y[t] + x[t] % y[t] * 3 + __mul64hi(x[t], y[t]) + (x[t] >> 3) + __popcll(x[t]);
}
}
