// Exceptions through code made at run time, whose table is registered: first unregistered, where the program would
// end, then registered, unregistered and another one at the same place.
#include <cstdio>
#include <initializer_list>
#include <cstring>
#include <sys/mman.h>
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
int main()
{
	auto *p = static_cast<unsigned char *>(mmap(nullptr, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
	int caught = 0;
	for (unsigned char size : {8, 24, 40}) {
		unsigned char code[] = {0x48, 0x83, 0xec, size, 0xff, 0xd7, 0x48, 0x83, 0xc4, size, 0xc3};
		std::memcpy(p, code, sizeof code);
		describe(tables[size & 16 ? 1 : 0], p, sizeof code, size);
		__register_frame(tables[size & 16 ? 1 : 0]);
		for (int i = 0; i < 100; i++)
			try {
				reinterpret_cast<void (*)(void (*)())>(p)(thrower);
			} catch (const Thrown &t) {
				caught += t.n;
			}
		__deregister_frame(tables[size & 16 ? 1 : 0]);
	}
	std::printf("%d\n", caught);
}
