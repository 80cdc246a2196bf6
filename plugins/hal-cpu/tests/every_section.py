"""A kernel in C whose object has every kind of section and symbol."""

EVERYTHING = """\
double exp(double), cos(double);
void *memset(void *, int, unsigned long);
static const double table[4] = {1, 2, 3, 4};
static int counter;                    /* .bss */
int shared = 5;                        /* .data */
int common_one;                        /* COMMON under -fcommon */
const char *const names[2] = {"a", "b"};   /* .data.rel.ro */
__attribute__((noinline)) double helper(double x) { return exp(x) + table[(int)x & 3]; }
void kernel(double *out) {
    char bytes[100];
    double (*through_pointer)(double) = cos;
    memset(bytes, counter, sizeof bytes);
    out[0] = helper(1.0);
    out[1] = ++counter;
    out[2] = shared++;
    out[3] = names[counter & 1][0];
    out[4] = bytes[5];
    common_one += 2;
    out[5] = common_one;
    out[6] = through_pointer(0.0);
}
"""
