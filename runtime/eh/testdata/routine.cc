// Personality routines that count their calls. -DPLUGIN: a library with frames of each kind; -DINTERPOSER: a library
// with a routine of libstdc++'s name. The program has own_personality_v0, which a plug-in may name instead; with
// -DDEFINES libstdc++'s name, too.
#include <cstdio>
#include <dlfcn.h>
#include <stdexcept>
#include <unwind.h>

struct Cleanup {
	volatile int *n;
	~Cleanup() { *n = *n + 1; }
};

#ifdef PLUGIN
extern "C" __attribute__((noinline)) int passes(int (*f)(int), int n, volatile int *)
{
	try {
		n += 1;
	} catch (...) {
		return 0;
	}
	return f(n) + 1; // in its table, without a pad
}
extern "C" __attribute__((noinline)) int cleans(int (*f)(int), int n, volatile int *cleaned)
{
	Cleanup c{cleaned};
	return passes(f, n, cleaned) + 1;
}
extern "C" __attribute__((noinline)) int through(int (*f)(int), int n, volatile int *cleaned)
{
	Cleanup c{cleaned};
	try {
		return cleans(f, n, cleaned) + 1;
	} catch (std::logic_error &) {
		return -1;
	}
}
#else
typedef _Unwind_Reason_Code Routine(int, _Unwind_Action, _Unwind_Exception_Class, _Unwind_Exception *,
    _Unwind_Context *);
static int search, clean;
static _Unwind_Reason_Code count(int version, _Unwind_Action actions, _Unwind_Exception_Class kind,
    _Unwind_Exception *e, _Unwind_Context *c)
{
	static Routine *next = reinterpret_cast<Routine *>(dlsym(dlopen("libstdc++.so.6", RTLD_LAZY), "__gxx_personality_v0"));
	++(actions & _UA_SEARCH_PHASE ? search : clean);
	return next(version, actions, kind, e, c);
}
#ifndef INTERPOSER
extern "C" _Unwind_Reason_Code own_personality_v0(int version, _Unwind_Action actions, _Unwind_Exception_Class kind,
    _Unwind_Exception *e, _Unwind_Context *c)
{
	return count(version, actions, kind, e, c);
}
#endif
#if defined INTERPOSER || defined DEFINES
extern "C" _Unwind_Reason_Code __gxx_personality_v0(int version, _Unwind_Action actions, _Unwind_Exception_Class kind,
    _Unwind_Exception *e, _Unwind_Context *c)
{
	return count(version, actions, kind, e, c);
}
#endif
__attribute__((destructor)) static void show() { std::printf("asked %d to search, %d to clean up\n", search, clean); }
#ifndef INTERPOSER
static int thrower(int n)
{
	if (n > 1)
		throw std::runtime_error("thrown");
	throw std::logic_error("thrown");
}

int main(int, char **argv)
{
	void *plugin = dlopen(argv[1], RTLD_NOW);
	auto through = reinterpret_cast<int (*)(int (*)(int), int, volatile int *)>(dlsym(plugin, "through"));
	volatile int cleaned = 0;
	for (int n = 0; n < 6; n++) {
		try {
			std::printf("%d ", through(thrower, n % 3, &cleaned));
		} catch (std::exception &) {
			std::printf("caught ");
		}
	}
	std::printf("cleaned %d\n", cleaned);
}
#endif
#endif
