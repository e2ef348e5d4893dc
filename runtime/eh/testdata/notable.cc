// Linked without .eh_frame_hdr: libgcc finds no table, and the program ends, though it has one.
#include <cstdio>
struct Cleanup { ~Cleanup() { std::puts("cleanup"); } };
__attribute__((noinline)) static void throws()
{
	Cleanup c;
	throw 1;
}
int main()
{
	std::puts("begins");
	std::fflush(stdout);
	try {
		throws();
	} catch (int) {
		std::puts("caught");
	}
}
