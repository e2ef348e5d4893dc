// Stacks that are left in the middle of an exception and gone on with in another thread: between the phases, and in a
// landing pad.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <ucontext.h>
#include <unwind.h>

enum { STACKS = 8, ROUNDS = 200, DEPTH = 6 };
struct Green {
	ucontext_t context, *back;
	char stack[64 << 10];
	int number, caught, switches;
	bool done;
};
static Green greens[STACKS];
static __thread Green *running;

// Thread pointers are not to be kept over a switch.
__attribute__((noinline)) static Green *self() { return running; }
__attribute__((noinline)) static void yield()
{
	Green *g = self();
	g->switches++;
	swapcontext(&g->context, g->back);
}
struct Switches {
	int n;
	__attribute__((noinline)) ~Switches() { yield(); }
};
struct Thrown { int n; };
__attribute__((noinline)) static int deep(int n)
{
	Switches s{n};
	if (n == 0)
		throw Thrown{self()->number};
	return deep(n - 1) + s.n;
}
// A personality routine that goes to another stack in each phase: its function is called by code below.
extern "C" _Unwind_Reason_Code switching_personality(int, _Unwind_Action, unsigned long, _Unwind_Exception *,
    _Unwind_Context *)
{
	yield();
	return _URC_CONTINUE_UNWIND;
}
extern "C" int through(int (*f)(int), int n);
__asm__(".text\n.globl through\n.type through, @function\nthrough:\n.cfi_startproc\n.cfi_personality 0x9b, pointer_to_it\n.cfi_lsda 0x1b, area\n"
        "push %rbx\n.cfi_def_cfa_offset 16\n.cfi_offset %rbx, -16\nmov %rdi, %rax\nmov %esi, %edi\ncall *%rax\npop %rbx\n.cfi_def_cfa_offset 8\nret\n.cfi_endproc\n"
        ".size through, .-through\n.section .gcc_except_table, \"a\"\narea: .byte 0xff, 0xff, 1, 0\n"
        ".section .data.rel, \"aw\"\n.balign 8\npointer_to_it: .quad switching_personality\n.text\n");

static void run(unsigned low, unsigned high)
{
	auto *g = reinterpret_cast<Green *>(static_cast<unsigned long>(high) << 32 | low);
	for (int i = 0; i < ROUNDS; i++)
		try {
			through(deep, 1 + (i + g->number) % DEPTH);
		} catch (const Thrown &t) {
			g->caught += t.n == g->number;
		}
	g->done = true;
	swapcontext(&g->context, g->back);
}
static void turns(int first)
{
	ucontext_t here;
	for (int i = first; i < STACKS; i += 2) {
		Green *g = &greens[i];
		if (g->done)
			continue;
		g->back = &here;
		running = g;
		swapcontext(&here, &g->context);
	}
}
int main()
{
	for (int i = 0; i < STACKS; i++) {
		Green *g = &greens[i];
		getcontext(&g->context);
		g->context.uc_stack.ss_sp = g->stack;
		g->context.uc_stack.ss_size = sizeof g->stack;
		g->number = i;
		auto p = reinterpret_cast<unsigned long>(g);
		makecontext(&g->context, reinterpret_cast<void (*)()>(run), 2, static_cast<unsigned>(p),
		    static_cast<unsigned>(p >> 32));
	}
	bool done = false;
	for (int i = 0; !done; i++) { // each goes on in one thread, then in the other
		std::thread other([i] { turns(i % 2); });
		turns((i + 1) % 2);
		other.join();
		done = true;
		for (auto &g : greens)
			done = done && g.done;
	}
	for (auto &g : greens)
		std::printf("%d: %d caught, %d switches\n", g.number, g.caught, g.switches);
}
