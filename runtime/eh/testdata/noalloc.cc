// A throw must not need malloc: it is how one says that there is no memory.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <pthread.h>
static bool empty;
static char pool[1 << 20];
static size_t used;
extern "C" void *malloc(size_t n)
{
	if (empty)
		return nullptr;
	n = (n + 15) & ~size_t{15};
	if (used + n > sizeof pool)
		return nullptr;
	used += n;
	return pool + used - n;
}
extern "C" void free(void *) {}
extern "C" void *calloc(size_t n, size_t m)
{
	void *p = malloc(n * m);
	return p ? std::memset(p, 0, n * m) : p;
}
extern "C" void *realloc(void *p, size_t n)
{
	void *q = malloc(n);
	return q && p ? std::memcpy(q, p, n) : q;
}
struct Cleanup { ~Cleanup() { if (empty) used++; } };
__attribute__((noinline)) static void f(int n)
{
    Cleanup c; if (n == 0) (void)::operator new(1 << 30); else f(n - 1); asm volatile("");
}
static void *in_thread(void *)
{
	empty = true;
	for (int i = 0; i < 3; i++)
		try { f(10); } catch (const std::bad_alloc &e) { std::fputs("bad_alloc\n", stderr); }
	return nullptr;
}
int main()
{
	pthread_t t;
	pthread_create(&t, nullptr, in_thread, nullptr);
	pthread_join(t, nullptr);
	in_thread(nullptr);
}
