#include "replace.h"
struct Mine : PARENT { ~Mine() override; };
Mine::~Mine() {}
struct Cleanup { ~Cleanup(); };
static volatile int sink;
Cleanup::~Cleanup() { sink = PLUS; }
// Both are at the same offset in either object.
__attribute__((noinline, aligned(1024))) static void inner() { Cleanup c; throw Mine(); }
extern "C" __attribute__((noinline, aligned(1024))) void dl_throw()
{
	Cleanup c;
#ifdef MORE
	try { inner(); } catch (int) {}
#else
	inner();
#endif
}
