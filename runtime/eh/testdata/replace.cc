// Objects that replace each other at the same address: an answer that was remembered of the one must not be used of the
// other. With an argument, that many rounds, and throws from other threads all the while.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <thread>
#include "replace.h"
Base::~Base() {}
Other::~Other() {}
static Other keep;
static volatile long sink;
__attribute__((noinline)) static int caught(void (*f)())
{
	try {
		f();
	} catch (Base &) {
		return 1;
	} catch (Other &) {
		return 2;
	} catch (...) {
		return 3;
	}
	return 0;
}
struct Cleanup {
	~Cleanup() { sink = sink + 1; }
};
__attribute__((noinline)) static long resumes(int n)
{
	Cleanup c;
	if (n == 0)
		throw 1L;
	return resumes(n - 1) + sink;
}
int main(int argc, char **argv)
{
	long rounds = argc > 1 ? std::atol(argv[1]) : 6, wrong = 0, same = 0;
	std::atomic<bool> done{false};
	std::atomic<long> count{0};
	std::thread other([&] {
		while (argc > 1 && !done)
			try {
				resumes(20);
			} catch (long) {
				count += 21;
			}
	});
	void *last = nullptr;
	for (long i = 0; i < rounds; i++) {
		void *h = dlopen(i % 2 ? "./two.so" : "./one.so", RTLD_NOW);
		if (!h) {
			std::printf("%s\n", dlerror());
			return 1;
		}
		auto f = reinterpret_cast<void (*)()>(dlsym(h, "dl_throw"));
		for (int k = 0; k < 3; k++)
			wrong += caught(f) != (i % 2 ? 2 : 1);
		same += reinterpret_cast<void *>(f) == last;
		last = reinterpret_cast<void *>(f);
		dlclose(h);
	}
	done = true;
	other.join();
	std::printf("%ld wrong\n", wrong);
	if (argc > 1)
		std::fprintf(stderr, "%ld rounds, %ld at the same address as before, %ld resumes meanwhile\n", rounds, same,
		    count.load());
}
