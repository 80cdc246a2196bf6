/* The threads of a Metal kernel, on one thread of this process.

Each runs on a stack of its own, which the next one takes over when it ends. So only threads that
wait at a barrier keep a stack, and a kernel without barriers has one. Metal leaves undefined what
happens when not all threads of a block come to the same barrier; here it is an error. */
#define _GNU_SOURCE
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { STACK = 256 << 10, MOST_THREADS = 1024 };
enum { NO_ERROR, SOME_ENDED, NO_MEMORY, OTHER_BARRIER };

typedef struct {
    uint32_t global_id[3], block_id[3], thread_id[3], block_size[3], grid_size[3], threads[3];
    uint32_t number; /* of the thread in its block */
} Place;
typedef void (*Kernel)(void *const *arguments, const Place *place);

typedef struct {
    void *sp;
    void *barrier; /* the code behind it, where the thread waits */
    char *stack;
    Place place;
} Fiber;

static Fiber fibers[MOST_THREADS];
static Fiber *running;
static void *scheduler;
static int waits; /* the running thread stopped at a barrier, and did not end */
static Kernel kernel;
static void *const *arguments;

void metal_switch(void **from, void *to);
#if defined(__x86_64__)
__asm__(".text\n.globl metal_switch\n.type metal_switch, @function\nmetal_switch:\n"
        "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
        "mov %rsp, (%rdi)\nmov %rsi, %rsp\n"
        "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n");
enum { SAVED = 6 };
#elif defined(__aarch64__)
__asm__(".text\n.globl metal_switch\nmetal_switch:\n"
        "sub sp, sp, #176\nstp x19, x20, [sp]\nstp x21, x22, [sp, #16]\nstp x23, x24, [sp, #32]\n"
        "stp x25, x26, [sp, #48]\nstp x27, x28, [sp, #64]\nstp x29, x30, [sp, #80]\n"
        "stp d8, d9, [sp, #96]\nstp d10, d11, [sp, #112]\nstp d12, d13, [sp, #128]\n"
        "stp d14, d15, [sp, #144]\nmov x9, sp\nstr x9, [x0]\nmov sp, x1\n"
        "ldp x19, x20, [sp]\nldp x21, x22, [sp, #16]\nldp x23, x24, [sp, #32]\n"
        "ldp x25, x26, [sp, #48]\nldp x27, x28, [sp, #64]\nldp x29, x30, [sp, #80]\n"
        "ldp d8, d9, [sp, #96]\nldp d10, d11, [sp, #112]\nldp d12, d13, [sp, #128]\n"
        "ldp d14, d15, [sp, #144]\nadd sp, sp, #176\nret\n");
enum { SAVED = 22 };
#endif

static void body(void) {
    for (;;) {
        kernel(arguments, &running->place);
        waits = 0;
        metal_switch(&running->sp, scheduler);
    }
}

void metal_wait(void) {
    waits = 1;
    running->barrier = __builtin_return_address(0);
    metal_switch(&running->sp, scheduler);
}

/* What clang 14 calls for conversions of half where the processor has no instruction. */
float __gnu_h2f_ieee(uint16_t half) {
    uint32_t rest = (uint32_t)(half & 0x7fff) << 13, sign = (uint32_t)(half & 0x8000) << 16;
    uint32_t bits = rest + ((rest & 0x0f800000) == 0x0f800000 ? 0x70000000 : 0x38000000);
    float value;
    if (rest < 0x00800000) { /* denormal: a number of 2 to the power of -24 */
        value = (float)(rest >> 13) * 0x1p-24f;
        memcpy(&bits, &value, sizeof bits);
    }
    bits |= sign;
    memcpy(&value, &bits, sizeof value);
    return value;
}

uint16_t __gnu_f2h_ieee(float value) {
    uint32_t bits, rest;
    memcpy(&bits, &value, sizeof bits);
    rest = bits & 0x7fffffff;
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    if (rest > 0x7f800000)
        return sign | 0x7e00;
    if (rest >= 0x477ff000)
        return sign | 0x7c00;
    if (rest < 0x38800000) { /* denormal: adding 0.5 leaves the rounded number in the low bits */
        float denormal;
        memcpy(&denormal, &rest, sizeof rest);
        denormal += 0.5f;
        memcpy(&rest, &denormal, sizeof rest);
        return sign | (uint16_t)(rest - 0x3f000000);
    }
    return sign | (uint16_t)((rest + 0xc8000fff + (rest >> 13 & 1)) >> 13);
}

static int ready(Fiber *fiber) {
    if (fiber->stack)
        return 1;
    char *stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (stack == MAP_FAILED)
        return 0;
    fiber->stack = stack;
    return 1;
}

static void reset(Fiber *fiber) {
    void **top = (void **)(fiber->stack + STACK - 64);
#if defined(__x86_64__)
    *--top = 0; /* where a caller's return address would lie */
    *--top = (void *)body;
    top -= SAVED;
    memset(top, 0, SAVED * sizeof *top);
#else
    top -= SAVED;
    memset(top, 0, SAVED * sizeof *top);
    top[11] = (void *)body; /* x30 */
#endif
    fiber->sp = top;
}

static int resume(Fiber *fiber) {
    running = fiber;
    metal_switch(&scheduler, fiber->sp);
    return waits;
}

static int one_block(const Place *first) {
    uint32_t count = first->block_size[0] * first->block_size[1] * first->block_size[2];
    uint32_t waiting = 0;
    for (uint32_t number = 0; number < count; number++) {
        Fiber *fiber = &fibers[waiting];
        if (!ready(fiber))
            return NO_MEMORY;
        if (!fiber->sp)
            reset(fiber);
        Place *place = &fiber->place;
        *place = *first;
        place->number = number;
        place->thread_id[0] = number % first->block_size[0];
        place->thread_id[1] = number / first->block_size[0] % first->block_size[1];
        place->thread_id[2] = number / first->block_size[0] / first->block_size[1];
        for (int axis = 0; axis < 3; axis++)
            place->global_id[axis] += place->thread_id[axis];
        waiting += resume(fiber);
    }
    while (waiting) {
        uint32_t again = 0;
        if (waiting != count)
            return SOME_ENDED;
        for (uint32_t number = 1; number < count; number++)
            if (fibers[number].barrier != fibers[0].barrier)
                return OTHER_BARRIER;
        for (uint32_t number = 0; number < count; number++)
            again += resume(&fibers[number]);
        waiting = again;
    }
    return NO_ERROR;
}

/* Runs all blocks. `threads` are those of the whole launch; the last blocks may be smaller. */
int metal_run(Kernel entry, void *const *given, const uint32_t *threads, const uint32_t *block) {
    int error = NO_ERROR;
    uint32_t at[3];
    Place place = {0};
    kernel = entry, arguments = given;
    for (int axis = 0; axis < 3; axis++) {
        place.threads[axis] = threads[axis];
        place.grid_size[axis] = (threads[axis] + block[axis] - 1) / block[axis];
    }
    for (at[2] = 0; at[2] < place.grid_size[2]; at[2]++)
        for (at[1] = 0; at[1] < place.grid_size[1]; at[1]++)
            for (at[0] = 0; at[0] < place.grid_size[0]; at[0]++) {
                for (int axis = 0; axis < 3; axis++) {
                    uint32_t start = at[axis] * block[axis], left = threads[axis] - start;
                    place.block_id[axis] = at[axis];
                    place.global_id[axis] = start;
                    place.block_size[axis] = left < block[axis] ? left : block[axis];
                }
                error = one_block(&place);
                if (error) {
                    for (int number = 0; number < MOST_THREADS; number++)
                        fibers[number].sp = NULL; /* those in the middle are given up */
                    return error;
                }
            }
    return error;
}
