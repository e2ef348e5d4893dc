/* An object that is opened with dlopen and calls back. */
#include <stdlib.h>

#define KEEP __attribute__((noinline, noclone))
static void (*next)(void);
static volatile unsigned sink;

KEEP static unsigned inner(unsigned n)
{
	volatile unsigned buf[20];
	buf[n % 20] = n;
	if (n % 3)
		sink = inner(n / 3);
	else
		next();
	return buf[n % 20];
}

static int compare(const void *a, const void *b)
{
	sink = inner(*(const unsigned *)a);
	return *(const unsigned *)a < *(const unsigned *)b;
}

void plugin_call(void (*fn)(void), unsigned n)
{
	unsigned v[4] = {n, n + 1, n + 2, n + 3};
	next = fn;
	if (n & 1)
		qsort(v, 4, sizeof *v, compare);
	else
		sink = inner(n);
	sink += v[0];
}
