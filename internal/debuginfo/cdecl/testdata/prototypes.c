/* Functions of many types, for tests of what reads them back. */
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define KEEP __attribute__((noinline, noclone, used))

struct point {
	int x, y;
	union {
		long l;
		char c[8];
	} u;
};
typedef struct point point_t;
typedef struct {
	int a;
} untagged_t;
union value {
	int i;
	double d;
};
enum colour { RED, GREEN };
struct opaque;
typedef int (*compare_fn)(const void *, const void *);
typedef int row_t[4];
typedef void handler_t(int);

KEEP int none(void) { return 1; }
KEEP void several(struct point *p, const char *const *names, compare_fn cmp, int (*raw)(const void *a, const void *b),
    enum colour c)
{
    p->x = cmp(p, names) + raw(p, names) + c;
}
KEEP int variable(const char *format, ...)
{
    va_list ap; va_start(ap, format); int n = va_arg(ap, int); va_end(ap); return n;
}
KEEP long arrays(int (*m)[4][5], row_t *rows, point_t list[3], char (*const names)[16])
{
    return (*m)[1][2] + rows[1][2] + list[1].x + names[0][1];
}
KEEP void (*returns(int sig, void (*handler)(int)))(int) { return sig ? handler : 0; }
KEEP int (*returns_array(row_t *r))[4] { return r; }
KEEP struct point by_value(struct point p, union value v, untagged_t u) { p.x += v.i + u.a; return p; }
KEEP const volatile int *qualified(const volatile int *v, int *restrict a, int *const *volatile *b)
{
    return v + *a + ***b;
}
KEEP unsigned long long numbers(signed char a, unsigned char b, short c, unsigned short d, unsigned e, long f,
    unsigned long long g, float h, double i, long double j, _Bool k)
{
    return a + b + c + d + e + f + g + h + i + j + k;
}
KEEP struct opaque *hidden(struct opaque **o, FILE *f, size_t n) { return n ? *o : (struct opaque *)f; }
KEEP handler_t *deep(handler_t *(*get)(handler_t **list, size_t n), int (*(*table)[3])(char, double))
{
    return (*table)[1](1, 2) ? get(0, 1) : 0;
}
KEEP int old(a, b)
int a;
char *b;
{
	return a + *b;
}
KEEP int unspecified() { return 2; }
KEEP time_t typed(struct tm *t, const struct timespec *ts) { return t->tm_sec + ts->tv_sec; }
static KEEP int by_x(const void *a, const void *b)
{
    return ((const struct point *)a)->x - ((const struct point *)b)->x;
}

__attribute__((always_inline)) static inline int inner(const struct point *p, int factor)
{
    return p->x * factor + p->y;
}
KEEP int outer(struct point *list, size_t n) {
	int sum = 0;
	for (size_t i = 0; i < n; i++)
		sum += inner(&list[i], sum);
	return sum;
}

int main(int argc, char **argv) {
	struct point list[4] = {{argc}};
	const char *names[2] = {argv[0], "x"};
	qsort(list, 4, sizeof *list, by_x);
	several(list, names, by_x, by_x, RED);
	return none() + outer(list, 4) + variable("%d", 1);
}
