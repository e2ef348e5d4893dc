// Exceptions that cross a library or program with its own libstdc++ and libgcc, whose personality routine reads
// libgcc's contexts only. With -DLIBRARY it is the library, ./crossing-static.so or ./crossing-shared.so.
#include <cstdio>
#include <dlfcn.h>
#include <stdexcept>

struct Cleanup {
	const char *name;
	~Cleanup() { std::printf("~%s ", name); }
};

#ifdef LIBRARY
extern "C" int through(int (*f)(int), int n)
{
	Cleanup cleanup{"library"};
	try {
		return f(n) + 100;
	} catch (std::logic_error &) {
		return -1;
	}
}
#else
__attribute__((noinline)) static int thrower(int n)
{
	Cleanup cleanup{"thrower"};
	if (n > 1)
		throw std::runtime_error("thrown");
	if (n == 1)
		throw 5;
	return n;
}

static void cross(const char *library)
{
	void *handle = dlopen(library, RTLD_NOW);
	auto through = reinterpret_cast<int (*)(int (*)(int), int)>(dlsym(handle, "through"));
	for (int n = 0; n < 6; n++) {
		try {
			Cleanup cleanup{"program"};
			std::printf("%d ", through(thrower, n % 3));
		} catch (std::exception &e) {
			std::printf("%s ", e.what());
		} catch (int i) {
			std::printf("int %d ", i);
		}
	}
	std::puts("");
}

int main()
{
	cross("./crossing-static.so");
	cross("./crossing-shared.so");
}
#endif
