#include "replace.h"
struct Mine : PARENT { ~Mine() override; };
Mine::~Mine() {}
struct Cleanup { ~Cleanup(); };
static volatile int sink;
Cleanup::~Cleanup() { sink = PLUS; }
__attribute__((noinline)) static void inner() { Cleanup c; throw Mine(); }
extern "C" __attribute__((noinline)) void dl_throw()
{
	Cleanup c;
#ifdef MORE
	try { inner(); } catch (int) {}
#else
	inner();
#endif
}
