// Exceptions of every shape. Each case prints what happened; the output is to be that with the system's libgcc.
#include <alloca.h>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cxxabi.h>
#include <exception>
#include <fcntl.h>
#include <future>
#include <new>
#include <pthread.h>
#include <stdexcept>
#include <string>
#include <sys/mman.h>
#include <sys/wait.h>
#include <thread>
#include <ucontext.h>
#include <unistd.h>
#include <unwind.h>
#include <vector>

#define NOINLINE __attribute__((noinline, noclone))
static volatile long sink;
struct Note {
	const char *text;
	NOINLINE explicit Note(const char *t) : text(t) {}
	NOINLINE ~Note() { std::printf("  ~%s\n", text); }
};
struct A { virtual ~A() {} int a = 1; };
struct B : virtual A { int b = 2; };
struct C : virtual A { int c = 3; };
struct D : B, C { int d = 4; };

NOINLINE static void thrower(int what)
{
	Note n("thrower");
	switch (what) {
	case 0: throw 7;
	case 1: throw std::runtime_error("runtime");
	case 2: throw D();
	case 3: throw static_cast<const char *>("text");
	case 4: throw new D;
	case 5: throw nullptr;
	case 6: throw std::string("a string that is long enough to be on the heap");
	}
}
NOINLINE static void middle(int what)
{
	Note n("middle");
	try {
		thrower(what);
	} catch (const std::logic_error &) {
		std::puts("  wrong");
	} catch (short) {
		std::puts("  wrong");
	}
}
static void types()
{
	for (int round = 0; round < 3; round++)
		for (int i = 0; i < 7; i++)
			try {
				middle(i);
			} catch (int n) {
				std::printf("  int %d\n", n);
			} catch (const std::exception &e) {
				std::printf("  exception %s\n", e.what());
			} catch (const C &c) {
				std::printf("  C %d %d\n", c.c, c.a);
			} catch (const char *s) {
				std::printf("  text %s\n", s ? s : "null");
			} catch (A *a) {
				std::printf("  A* %d\n", a->a);
				delete a;
			} catch (...) {
				std::printf("  other, %d uncaught\n", std::uncaught_exceptions());
			}
}
NOINLINE static void again(int n)
{
	Note note("again");
	try {
		if (n == 0)
			throw std::out_of_range("deep");
		again(n - 1);
	} catch (std::logic_error &e) {
		std::printf("  caught %s at %d\n", e.what(), n);
		if (n < 3)
			throw;
	}
}
static void rethrows()
{
	again(4);
	try {
		try {
			throw 1;
		} catch (...) {
			std::throw_with_nested(std::runtime_error("outer"));
		}
	} catch (const std::exception &e) {
		try {
			std::rethrow_if_nested(e);
		} catch (int n) {
			std::printf("  nested %d in %s\n", n, e.what());
		}
	}
}
struct ThrowsInside {
	NOINLINE ~ThrowsInside()
	{
		try {
			throw 5;
		} catch (int n) {
			std::printf("  inside a destructor %d, %d uncaught\n", n, std::uncaught_exceptions());
		}
	}
};
NOINLINE static void nested()
{
	ThrowsInside t;
	throw 6;
}
static void destructors()
{
	try {
		nested();
	} catch (int n) {
		std::printf("  and outside %d\n", n);
	}
	struct Makes {
		Note a{"first member"};
		Note b;
		Makes() : b((throw 3, "second member")) {}
	};
	try {
		Makes m;
	} catch (int n) {
		std::printf("  constructor %d\n", n);
	}
}

// Foreign exceptions.
static void foreign_cleanup(_Unwind_Reason_Code r, _Unwind_Exception *e)
{
	std::printf("  foreign deleted, reason %d\n", static_cast<int>(r));
	std::free(e);
}
NOINLINE static void raise_foreign()
{
	Note n("foreign thrower");
	auto *e = static_cast<_Unwind_Exception *>(aligned_alloc(16, sizeof(_Unwind_Exception)));
	std::memset(e, 0, sizeof *e);
	std::memcpy(&e->exception_class, "TESTTEST", 8);
	e->exception_cleanup = foreign_cleanup;
	std::printf("  came back with %d\n", static_cast<int>(_Unwind_RaiseException(e)));
}
NOINLINE static void foreign_middle()
{
	Note n("foreign middle");
	try {
		raise_foreign();
	} catch (const std::exception &) {
		std::puts("  wrong");
	}
}
static void foreign()
{
	try {
		foreign_middle();
	} catch (...) {
		std::puts("  foreign caught");
	}
	try {
		try {
			raise_foreign();
		} catch (...) {
			std::puts("  foreign rethrown");
			throw;
		}
	} catch (...) {
		std::puts("  foreign again");
	}
}

// Other threads.
static void pointers()
{
	std::exception_ptr p;
	std::thread([&] {
		try {
			middle(1);
		} catch (...) {
			p = std::current_exception();
		}
	}).join();
	std::vector<std::thread> all;
	std::atomic<int> count{0};
	for (int t = 0; t < 4; t++)
		all.emplace_back([&] {
			for (int i = 0; i < 500; i++)
				try {
					std::rethrow_exception(p);
				} catch (const std::exception &e) {
					count += std::strcmp(e.what(), "runtime") == 0;
				}
		});
	for (auto &t : all)
		t.join();
	std::printf("  %d times\n", count.load());
	auto f = std::async(std::launch::async, [] { thrower(1); });
	try {
		f.get();
	} catch (const std::runtime_error &e) {
		std::printf("  future %s\n", e.what());
	}
}

// Frames of odd shapes.
NOINLINE static long realigned(int n)
{
	alignas(128) volatile char buffer[256];
	Note note("realigned");
	buffer[n] = 1;
	if (reinterpret_cast<long>(&buffer) % 128 != 0)
		std::puts("  not aligned");
	thrower(0);
	return buffer[0];
}
NOINLINE static long dynamic(int n)
{
	Note note("dynamic");
	volatile char *p = static_cast<char *>(alloca(static_cast<size_t>(n)));
	p[0] = 1;
	sink = realigned(n % 7);
	return p[n - 1];
}
struct Big { long x[20]; };
NOINLINE static long many(long a, long b, long c, long d, long e, long f, long g, Big big, long h)
{
	Note note("many");
	sink = a + b + c + d + e + f + g + h + big.x[3];
	return dynamic(static_cast<int>(sink) % 3000 + 10);
}
static void frames()
{
	for (int i = 0; i < 3; i++)
		try {
			sink = many(1, 2, 3, 4, 5, 6, 7 + i, Big{{1, 2, 3, i * 100}}, 9);
		} catch (int n) {
			std::printf("  frames %d\n", n);
		}
}
static ucontext_t here, there;
static void on_context()
{
	try {
		middle(0);
	} catch (int n) {
		std::printf("  on another stack %d\n", n);
	}
	swapcontext(&there, &here);
	try {
		frames();
	} catch (...) {
	}
}
static void contexts()
{
	static char stack[256 << 10];
	getcontext(&there);
	there.uc_stack.ss_sp = stack;
	there.uc_stack.ss_size = sizeof stack;
	there.uc_link = &here;
	makecontext(&there, on_context, 0);
	swapcontext(&here, &there);
	std::puts("  between");
	swapcontext(&here, &there);
}

// Signals.
static void on_fault(int) { throw std::runtime_error("fault"); }
NOINLINE static int fault(volatile int *p)
{
	Note n("fault");
	return *p;
}
static void signals()
{
	static char alternate[64 << 10];
	stack_t ss = {};
	ss.ss_sp = alternate;
	ss.ss_size = sizeof alternate;
	for (int on_alternate = 0; on_alternate < 2; on_alternate++) {
		struct sigaction sa = {};
		sa.sa_handler = on_fault;
		sa.sa_flags = SA_NODEFER | (on_alternate ? SA_ONSTACK : 0);
		if (on_alternate)
			sigaltstack(&ss, nullptr);
		sigaction(SIGSEGV, &sa, nullptr);
		for (int i = 0; i < 3; i++)
			try {
				fault(nullptr);
			} catch (const std::exception &e) {
				std::printf("  out of a handler: %s\n", e.what());
			}
	}
	signal(SIGSEGV, SIG_DFL);
}

// Threads that end in the middle.
NOINLINE static void end_here(int n)
{
	Note note("end_here");
	if (n > 0)
		end_here(n - 1);
	else
		pthread_exit(nullptr);
	sink = n;
}
static void *ends(void *)
{
	Note n("thread");
	try {
		end_here(3);
	} catch (const std::exception &) {
		std::puts("  wrong");
	} catch (abi::__forced_unwind &) {
		std::puts("  forced unwinding seen");
		throw;
	}
	return nullptr;
}
static void *waits(void *arg)
{
	Note n("waiting");
	auto *fds = static_cast<int *>(arg);
	char c = 0;
	if (write(fds[1], "x", 1) != 1)
		return nullptr;
	for (;;)
		sink = read(fds[2], &c, 1);
}
static void cancels()
{
	pthread_t t;
	pthread_create(&t, nullptr, ends, nullptr);
	pthread_join(t, nullptr);
	int fds[4];
	if (pipe(fds) != 0 || pipe(fds + 2) != 0)
		return;
	pthread_create(&t, nullptr, waits, fds);
	char c;
	if (read(fds[0], &c, 1) != 1)
		return;
	pthread_cancel(t);
	void *result;
	pthread_join(t, &result);
	std::printf("  cancelled %d\n", result == PTHREAD_CANCELED);
}
static _Unwind_Reason_Code count_stop(int, _Unwind_Action actions, _Unwind_Exception_Class, _Unwind_Exception *,
    _Unwind_Context *c, void *arg)
{
	if (actions & _UA_END_OF_STACK)
		_exit(42);
	int before = 0;
	char *pc = reinterpret_cast<char *>(_Unwind_GetIPInfo(c, &before));
	bool starts = reinterpret_cast<void *>(_Unwind_GetRegionStart(c)) == _Unwind_FindEnclosingFunction(pc + before);
	std::printf("  stop: function %d area %d\n", starts, _Unwind_GetLanguageSpecificData(c) != nullptr);
	std::fflush(stdout);
	++*static_cast<int *>(arg);
	return _URC_NO_REASON;
}
NOINLINE static void own_force(int *count)
{
	static _Unwind_Exception e;
	std::memset(&e, 0, sizeof e);
	Note n("own_force");
	_Unwind_ForcedUnwind(&e, count_stop, count);
}
NOINLINE static int forced_noexcept(int *count) noexcept(true)
{
	own_force(count);
	return 1;
}

// Programs that end badly.
NOINLINE static void never() noexcept
{
	Note n("never");
	thrower(0);
}
NOINLINE static int deep(int n)
{
	Note note("deep");
	return n > 0 ? deep(n - 1) + 1 : (thrower(1), 0);
}
extern char __executable_start, etext;
static int depth_at_end()
{
	int n = 0;
	_Unwind_Backtrace([](_Unwind_Context *c, void *arg) { /* unwinders have as many frames as they like */
		auto pc = _Unwind_GetIP(c);
		*static_cast<int *>(arg) += pc >= reinterpret_cast<unsigned long>(&__executable_start) &&
		    pc < reinterpret_cast<unsigned long>(&etext);
		return _URC_NO_REASON;
	}, &n);
	return n;
}
template <class F> static void child(const char *name, F f)
{
	std::fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		std::set_terminate([] {
			std::printf("  terminate, %d frames of the program on the stack, %d uncaught\n", depth_at_end(),
			    std::uncaught_exceptions());
			std::fflush(stdout);
			_exit(3);
		});
		f();
		std::fflush(stdout);
		_exit(0);
	}
	int status = 0;
	waitpid(pid, &status, 0);
	std::printf("  %s: status %#x\n", name, static_cast<unsigned>(status));
}
static void ends_badly()
{
	child("noexcept", never);
	child("uncaught", [] { sink = deep(5); });
	child("thread", [] { std::thread([] { sink = deep(2); }).join(); });
	child("forced", [] { int n = 0; own_force(&n); });
	child("forced through noexcept", [] { int n = 0; sink = forced_noexcept(&n); });
	child("rethrow of nothing", [] { throw; });
	child("out of a destructor", [] {
		struct Bad { ~Bad() noexcept(false) { throw 1; } };
		try { Bad b; throw 2; } catch (...) {}
	});
}

// Stack overflow by depth, many frames.
NOINLINE static int far(int n) { return n > 0 ? far(n - 1) + static_cast<int>(sink) : (thrower(0), 0); }
static void depths()
{
	for (int n : {0, 1, 100, 5000})
		try {
			sink = far(n);
		} catch (int k) {
			std::printf("  from %d frames below: %d\n", n, k);
		}
}

int main()
{
	struct { const char *name; void (*f)(); } cases[] = {
		{"types", types}, {"rethrows", rethrows}, {"destructors", destructors}, {"foreign", foreign}, {"pointers", pointers},
		{"frames", frames}, {"contexts", contexts}, {"signals", signals}, {"cancels", cancels}, {"depths", depths},
		{"ends badly", ends_badly}};
	for (auto &c : cases) {
		std::printf("%s\n", c.name);
		c.f();
	}
}
