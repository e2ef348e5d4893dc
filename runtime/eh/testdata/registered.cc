// Exceptions through code made at run time, whose table is registered: first unregistered, where the program would
// end, then registered, unregistered and another one at the same place; last, where an object was.
#include <cstdio>
#include <dlfcn.h>
#include <initializer_list>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>
#include "replace.h"
Base::~Base() {} // for the object
extern "C" void __register_frame(void *);
extern "C" void __deregister_frame(void *);
struct Thrown { int n; };
__attribute__((noinline)) static void thrower() { throw Thrown{3}; }
alignas(16) static unsigned char tables[2][128];
// a CIE and an FDE of code that moves the stack pointer by size in its first 4 bytes
static void describe(unsigned char *at, const void *code, unsigned long length, unsigned char size)
{
	unsigned char *p = at;
	auto put = [&](const void *b, size_t n) { std::memcpy(p, b, n); p += n; };
	auto close = [&](unsigned char *entry) {
		while ((p - entry) % 8 != 4)
			*p++ = 0;
		unsigned n = static_cast<unsigned>(p - entry - 4);
		std::memcpy(entry, &n, 4);
	};
	unsigned char cie[] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 'z', 'R', 0, 1, 0x78, 16, 1, 0, 0x0c, 7, 8, 0x90, 1};
	put(cie, sizeof cie);
	close(at);
	unsigned char *fde = p;
	unsigned zero = 0, back = static_cast<unsigned>(fde + 4 - at);
	put(&zero, 4);
	put(&back, 4);
	put(&code, 8);
	put(&length, 8);
	unsigned char rest[] = {0, 0x44, 0x0e, static_cast<unsigned char>(size + 8)};
	put(rest, sizeof rest);
	close(fde);
	put(&zero, 4);
}
// A return address that is on the stack, but belongs to no frame.
static void *elsewhere;
__attribute__((noinline)) static void note() { elsewhere = __builtin_return_address(0); }
static void (*volatile called)() = note;
__attribute__((noinline)) static void catches()
{
	try {
		called();
	} catch (const Thrown &) {
		if (write(1, "caught elsewhere\n", 17))
			_exit(1);
	}
}
static int throws_through(unsigned char *p, unsigned char size)
{
	// sub $size-8,%rsp; push %rsi; call *%rdi; add $size,%rsp; ret
	unsigned char code[] = {0x48, 0x83, 0xec, static_cast<unsigned char>(size - 8), 0x56, 0xff, 0xd7, 0x48, 0x83, 0xc4,
	    size, 0xc3};
	unsigned char *table = tables[size & 16 ? 1 : 0];
	int caught = 0;
	std::memcpy(p, code, sizeof code);
	describe(table, p, sizeof code, size);
	__register_frame(table);
	for (int i = 0; i < 100; i++)
		try {
			reinterpret_cast<void (*)(void (*)(), void *)>(p)(thrower, elsewhere);
		} catch (const Thrown &t) {
			caught += t.n;
		}
	__deregister_frame(table);
	return caught;
}
static unsigned char *memory(void *at, int flags)
{
	void *p = mmap(at, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
	return p == MAP_FAILED ? nullptr : static_cast<unsigned char *>(p);
}
int main()
{
	unsigned char *p = memory(nullptr, 0);
	int caught = 0;
	catches();
	for (unsigned char size : {8, 24, 40})
		caught += throws_through(p, size);
	std::printf("%d\n", caught);
	void *object = dlopen("./one.so", RTLD_NOW);
	if (!object) {
		std::printf("%s\n", dlerror());
		return 1;
	}
	auto f = reinterpret_cast<void (*)()>(dlsym(object, "dl_throw"));
	for (int i = 0; i < 3; i++)
		try {
			f();
		} catch (...) {
			caught++;
		}
	std::fflush(stdout);
	void *last = dlsym(object, "_ZN7CleanupD1Ev"); // exceptions pass over it
	dlclose(object);
	auto address = static_cast<unsigned char *>(last);
	p = memory(address - reinterpret_cast<unsigned long>(address) % 4096, MAP_FIXED_NOREPLACE);
	if (!p) {
		std::printf("its memory is not free\n");
		return 1;
	}
	for (unsigned char size : {8, 56, 104})
		caught += throws_through(address, size);
	std::printf("%d\n", caught);
}
