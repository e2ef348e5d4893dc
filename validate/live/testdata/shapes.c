/*
 * Call chains through frames of all the shapes that gcc makes. Every function
 * calls chain again, and has something to do after the call, so that the frame
 * stays; what it computes is folded into sink.
 */
#define _GNU_SOURCE
#include <alloca.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "stacks.h"

#define SHAPE __attribute__((noinline, noclone)) static void

void (*at_bottom)(void);
static volatile long sink;

static void use(void *p) { __asm__ volatile("" : : "r"(p) : "memory"); }
static long opaque(long x)
{
    __asm__ volatile("" : "+r"(x));
    return x;
}

SHAPE many_saved(long depth)
{
    long a = opaque(1), b = opaque(2), c = opaque(3), d = opaque(4), e = opaque(5), f = opaque(6), g = opaque(7);
    chain(depth - 1);
    sink += a ^ b ^ c ^ d ^ e ^ f ^ g ^ depth;
}

SHAPE variable_length(long depth)
{
    char buf[opaque(depth * 8 + 1)];
    memset(buf, 1, sizeof buf);
    chain(depth - 1);
    use(buf);
    sink += buf[0];
}

SHAPE alloca_loop(long depth)
{
    char *last = NULL;
    for (long i = 0; i < 3; i++) {
        char *p = alloca((size_t)opaque(i * 40 + 8));
        p[0] = (char)i;
        use(p);
        last = p;
    }
    chain(depth - 1);
    sink += last[0];
}

SHAPE large_frame(long depth)
{
    char buf[20000];
    memset(buf, 2, sizeof buf);
    use(buf);
    chain(depth - 1);
    sink += buf[opaque(17)];
}

SHAPE over_aligned(long depth)
{
    _Alignas(128) char buf[256];
    memset(buf, 3, sizeof buf);
    use(buf);
    chain(depth - 1);
    sink += buf[1] + ((uintptr_t)buf & 127);
}

SHAPE aligned_and_variable(long depth)
{
    _Alignas(64) char fixed[64];
    char buf[opaque(depth + 3)];
    memset(buf, 4, sizeof buf);
    memset(fixed, 5, sizeof fixed);
    use(fixed);
    chain(depth - 1);
    use(buf);
    sink += buf[0] + fixed[3];
}

__attribute__((force_align_arg_pointer)) SHAPE realigned(long depth)
{
    _Alignas(32) char buf[32];
    use(buf);
    chain(depth - 1);
    sink++;
}

SHAPE tail(long depth) { chain(depth - 1); } /* a jump at -O2 */

__attribute__((noinline, noclone)) static long twelve(long a, long b, long c, long d, long e, long f, long g, long h,
                                                      long i, long j, long k, long depth)
{
    chain(depth - 1);
    return a + b + c + d + e + f + g + h + i + j + k;
}

SHAPE arguments(long depth)
{
    sink += twelve(depth, 2, 3, 4, 5, 6, 7, 8, 9, 10, depth, depth);
    sink += opaque(depth);
}

__attribute__((noinline, noclone)) static long variadic_sum(long depth, int n, ...)
{
    va_list ap;
    long sum = 0;
    va_start(ap, n);
    chain(depth - 1);
    while (n--)
        sum += va_arg(ap, long);
    va_end(ap);
    return sum;
}

SHAPE variadic(long depth) { sink += variadic_sum(depth, 7, 1L, 2L, 3L, 4L, 5L, 6L, depth) + 1; }

struct big {
    long v[20];
};
__attribute__((noinline, noclone)) static struct big by_value(struct big in, long depth)
{
    chain(depth - 1);
    in.v[3] += depth;
    return in;
}

SHAPE structures(long depth)
{
    struct big b = {{1, 2, 3, 4}};
    b = by_value(b, depth);
    sink += b.v[3];
}

/* The prologue comes after the test. */
SHAPE shrink_wrapped(long depth)
{
    if (opaque(depth) < 0)
        return;
    long a = opaque(depth), b = opaque(8), c = opaque(9);
    chain(depth - 1);
    sink += a * b + c;
}

__attribute__((optimize("no-omit-frame-pointer"))) SHAPE frame_pointer(long depth)
{
    long a = opaque(depth);
    chain(depth - 1);
    sink += a;
}

void microsoft(long depth) __attribute__((ms_abi));
/* rdi, rsi and xmm6 to xmm15 are callee-saved in this convention. */
__attribute__((ms_abi, noinline, noclone)) void microsoft(long depth)
{
    chain(depth - 1);
    sink += depth;
}

SHAPE through_library(long depth) { sink += lib_bounce(chain, depth - 1); }
SHAPE through_qsort(long depth) { lib_sort(depth - 1, chain); sink++; }

static void (*search_fn)(long);
static int found(const void *key, const void *element)
{
    if (search_fn) {
        void (*fn)(long) = search_fn;
        search_fn = NULL;
        fn(*(const long *)key);
    }
    return (int)(*(const long *)key - *(const long *)element);
}

SHAPE through_bsearch(long depth)
{
    long table[8], key = depth - 1;
    for (int i = 0; i < 8; i++)
        table[i] = i * 10;
    search_fn = chain;
    void *(*volatile search)(const void *, const void *, size_t, size_t, int (*)(const void *, const void *)) = bsearch;
    sink += search(&key, table, 8, sizeof table[0], found) != NULL;
}

static long moved_depth;
static void moved(void) { chain(moved_depth); sink++; }

SHAPE odd_rules(long depth)
{
    moved_depth = depth - 1;
    cfa_in_r11(moved);
    sink++;
}

/* Another stack, below which the call goes on. */
SHAPE other_stack(long depth)
{
    static _Alignas(16) char room[4][256 << 10];
    static int used;
    if (used == 4) {
        many_saved(depth);
        return;
    }
    int mine = used++;
    add_stack(room[mine], sizeof room[0]);
    on_stack(room[mine] + sizeof room[0], chain, depth - 1);
    used--;
}

SHAPE switched(long depth)
{
    switch (opaque(depth) % 6) {
    case 0: sink += 3; chain(depth - 1); sink++; break;
    case 1: sink ^= 5; chain(depth - 1); sink += 2; break;
    case 2: sink -= 7; many_saved(depth); sink += 3; break;
    case 3: sink *= 3; chain(depth - 1); sink += 4; break;
    default: chain(depth - 1); sink += 5;
    }
}

void chain(long depth)
{
    static void (*const shapes[])(long) = {
        many_saved, variable_length, alloca_loop, large_frame, over_aligned, aligned_and_variable, realigned, tail,
        arguments, variadic, structures, shrink_wrapped, frame_pointer, through_library, through_qsort,
        through_bsearch, odd_rules, other_stack, switched,
    };
    enum { N = sizeof shapes / sizeof shapes[0] };
    if (depth <= 0)
        at_bottom();
    else if (depth % (N + 1) == N)
        microsoft(depth);
    else
        shapes[depth % (N + 1)](depth);
    sink++;
}

/* Functions that end in a call which does not return: its return address is the
 * address of whatever comes next. */
static jmp_buf back;
__attribute__((noinline, noclone, noreturn)) static void gone(long depth)
{
    chain(depth);
    longjmp(back, 1);
}
__attribute__((noinline, noclone, noreturn)) static void going(long depth)
{
    char buf[64];
    memset(buf, 1, sizeof buf);
    use(buf);
    gone(depth);
}
__attribute__((noinline, noclone, noreturn, cold)) static void leaving(long depth)
{
    sink++;
    going(depth - 1);
}

void jumps(long depth)
{
    if (setjmp(back) == 0)
        leaving(depth);
    sink++;
}
