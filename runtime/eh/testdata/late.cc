// A program without C++ that opens a library with it, for itself alone, as Python opens its extensions.
#include <dlfcn.h>
#include <stdio.h>
#ifdef LIBRARY
#include <exception>
#include <stdexcept>
#include <utility>
template <int N> struct Own : std::runtime_error {
	using std::runtime_error::runtime_error;
};
static volatile int sink;
struct Cleanup {
	~Cleanup() { sink = sink + 1; }
};
template <int N> __attribute__((noinline)) static int throws(int n)
{
	Cleanup c;
	if (n == 0)
		throw Own<N>("x");
	return throws<N>(n - 1) + sink;
}
template <int N> __attribute__((noinline)) static long caught()
{
	try {
		try {
			return throws<N>(5);
		} catch (const Own<N> &) {
			std::rethrow_exception(std::current_exception()); // as pybind11 does
		}
	} catch (const std::exception &e) {
		return e.what()[0] + N;
	}
}
template <int... N> static long all(std::integer_sequence<int, N...>) { return (caught<N>() + ...); }
extern "C" long caught(long rounds)
{
	long sum = 0;
	for (long i = 0; i < rounds; i++)
		sum += all(std::make_integer_sequence<int, 16>());
	return sum + sink;
}
#else
int main()
{
	void *library = dlopen("./late.so", RTLD_NOW | RTLD_LOCAL);
	if (!library) {
		puts(dlerror());
		return 1;
	}
	printf("%ld\n", ((long (*)(long))dlsym(library, "caught"))(100));
	return 0;
}
#endif
