// What a throw costs, by shape: prints "NAME N NANOSECONDS" a line, thread CPU time per throw, the best of some rounds.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <exception>
#include <functional>
#include <pthread.h>
#include <stdexcept>
#include <typeinfo>
#include <unwind.h>
#include <vector>

#define NOINLINE __attribute__((noinline, noclone))
static volatile long sink;
struct Cleanup {
	long n;
	NOINLINE explicit Cleanup(long n) : n(n) {}
	~Cleanup() { sink = n; }
};
struct Own { int n; };

NOINLINE static int plain(int n)
{
	if (n <= 1)
		throw Own{1};
	int r = plain(n - 1);
	return r + static_cast<int>(sink);
}
NOINLINE static int cleanups(int n)
{
	Cleanup c(n);
	if (n <= 1)
		throw Own{1};
	return cleanups(n - 1) + static_cast<int>(sink);
}
NOINLINE static int rethrows(int n)
{
	if (n <= 1)
		throw Own{1};
	try {
		return rethrows(n - 1) + 1;
	} catch (const Own &) {
		sink = n;
		throw;
	}
}
NOINLINE static int others(int n)
{
	if (n <= 1)
		throw Own{1};
	try {
		return others(n - 1) + 1;
	} catch (const std::exception &) {
		sink = n;
	}
	return 0;
}
NOINLINE static int base(int n)
{
	if (n <= 1)
		throw std::runtime_error("x");
	return base(n - 1) + static_cast<int>(sink);
}

static double now()
{
	timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return static_cast<double>(t.tv_sec) * 1e9 + static_cast<double>(t.tv_nsec);
}
template <class F> static double best(F f)
{
	long n = 1;
	for (int enough = 0; enough < 2;) { // twice: the first calls of a process take longer
		double t = now();
		for (long i = 0; i < n; i++)
			f();
		if (now() - t > 3e5) {
			enough++;
		} else {
			enough = 0;
			n *= 2;
		}
	}
	double least = 1e18;
	for (int round = 0; round < 40; round++) {
		double t = now();
		for (long i = 0; i < n; i++)
			f();
		t = (now() - t) / static_cast<double>(n);
		least = t < least ? t : least;
	}
	return least;
}
static void show(const char *name, int n, double t) { std::printf("%s %d %.1f\n", name, n, t); }

template <class E> static void caught(int (*f)(int), int n)
{
	try {
		sink = f(n);
	} catch (const E &e) {
		sink = reinterpret_cast<long>(&e);
	}
}

// The floor: what is left of a throw without finding anything: the exception is made, caught and freed, the stack is
// left by a jump.
extern "C" {
void *__cxa_allocate_exception(size_t) noexcept;
void __cxa_free_exception(void *) noexcept;
#ifdef __GLIBCXX__
void *__cxa_init_primary_exception(void *, std::type_info *, void (*)(void *)) noexcept;
void *__cxa_begin_catch(void *) noexcept;
void __cxa_end_catch();
struct Globals {
	void *caught;
	unsigned uncaught;
};
Globals *__cxa_get_globals() noexcept;
#endif
}
static void *place[5];
NOINLINE static int jumps(int n)
{
	if (n <= 1)
		__builtin_longjmp(place, 1);
	return jumps(n - 1) + static_cast<int>(sink);
}
NOINLINE static void floor_of(int n)
{
	void *e = __cxa_allocate_exception(sizeof(Own));
#ifdef __GLIBCXX__ // as __cxa_throw does, and a handler
	auto *header = static_cast<_Unwind_Exception *>(e) - 1;
	__cxa_get_globals()->uncaught++;
	*static_cast<int *>(__cxa_init_primary_exception(e, const_cast<std::type_info *>(&typeid(Own)), nullptr)) = 1;
	std::memcpy(&header->exception_class, "\0++CCUNG", 8);
#endif
	if (__builtin_setjmp(place) == 0)
		sink = jumps(n);
#ifdef __GLIBCXX__
	sink = __cxa_begin_catch(header) != nullptr;
	__cxa_end_catch();
#else
	__cxa_free_exception(e);
#endif
}

// Forced unwinding by the program itself, up to a frame.
static _Unwind_Word up_to;
static _Unwind_Reason_Code stop(int, _Unwind_Action actions, _Unwind_Exception_Class, _Unwind_Exception *,
    _Unwind_Context *c, void *)
{
	if (_Unwind_GetCFA(c) > up_to || (actions & _UA_END_OF_STACK))
		__builtin_longjmp(place, 1);
	return _URC_NO_REASON;
}
NOINLINE static int forces(int n)
{
	static _Unwind_Exception e;
	if (n <= 1) {
		std::memset(&e, 0, sizeof e);
		_Unwind_ForcedUnwind(&e, stop, nullptr);
		std::abort();
	}
	return forces(n - 1) + static_cast<int>(sink);
}
NOINLINE static int forces_cleanups(int n)
{
	Cleanup c(n);
	if (n <= 1)
		forces(1);
	return forces_cleanups(n - 1) + static_cast<int>(sink);
}
template <int (*f)(int)> NOINLINE static void forced_up_to_here(int n)
{
	up_to = reinterpret_cast<_Unwind_Word>(__builtin_frame_address(0)) - 64;
	if (__builtin_setjmp(place) == 0)
		sink = f(n);
}

// Threads that end by pthread_exit, less threads that return: the clock takes most of their time.
static int depth;
NOINLINE static int returns(int) { return 0; }
NOINLINE static int exits(int n)
{
	if (n <= 1)
		pthread_exit(nullptr);
	return exits(n - 1) + static_cast<int>(sink);
}
NOINLINE static int exits_cleanups(int n)
{
	Cleanup c(n);
	if (n <= 1)
		pthread_exit(nullptr);
	return exits_cleanups(n - 1) + static_cast<int>(sink);
}
static double ended;
static double began;
template <int (*f)(int)> static void *thread(void *)
{
	struct AtEnd {
		~AtEnd() { ended = now() - began; }
	} at_end;
	began = now();
	sink = f(depth);
	return nullptr;
}
template <int (*f)(int)> static double forced(int n)
{
	depth = n;
	double least = 1e18;
	for (int i = 0; i < 400; i++) {
		pthread_t t;
		if (pthread_create(&t, nullptr, thread<f>, nullptr) != 0)
			std::abort();
		pthread_join(t, nullptr);
		least = ended < least ? ended : least;
	}
	return least;
}

int main(int argc, char **argv)
{
	setvbuf(stdout, nullptr, _IOLBF, 0);
	if (argc > 1 && std::strcmp(argv[1], "first") == 0) {
		double t = now();
		caught<Own>(cleanups, 16);
		show("first-throw-16-cleanups", 16, now() - t);
		return 0;
	}
	for (int n : {1, 16, 64})
		show("floor", n, best([n] { floor_of(n); }));
	for (int n : {1, 16, 64})
		show("plain", n, best([n] { caught<Own>(plain, n); }));
	for (int n : {1, 16, 64})
		show("cleanups", n, best([n] { caught<Own>(cleanups, n); }));
	show("catch-and-rethrow", 16, best([] { caught<Own>(rethrows, 16); }));
	show("catch-of-another-type", 64, best([] { caught<Own>(others, 64); }));
	for (int n : {1, 16, 64})
		show("runtime_error-by-base", n, best([n] { caught<std::exception>(base, n); }));
	for (int n : {1, 64})
		show("pthread_exit-plain", n, forced<exits>(n) - forced<returns>(n));
	for (int n : {1, 64})
		show("pthread_exit-cleanups", n, forced<exits_cleanups>(n) - forced<returns>(n));
	for (int n : {1, 64})
		show("forced-plain", n, best([n] { forced_up_to_here<forces>(n); }));
	for (int n : {1, 64})
		show("forced-cleanups", n, best([n] { forced_up_to_here<forces_cleanups>(n); }));
}
