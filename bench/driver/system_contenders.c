/* Unwinders that people have today. Each is opened with dlopen, apart from the
 * others, so that names shared by two of them do not meet. */
#define _GNU_SOURCE
#define UNW_LOCAL_ONLY
#include <dlfcn.h>
#include <elfutils/libdwfl.h>
#include <execinfo.h>
#include <libunwind.h>
#include <stdio.h>
#include <string.h>
#include <sys/ucontext.h>
#include <unistd.h>
#include <unwind.h>

#include "bench.h"

/* nongnu libunwind: one copy of the library for each caching policy. */
enum { GLOBAL, PER_THREAD, NONE, POLICIES };
static struct {
	int (*init_local)(unw_cursor_t *, unw_context_t *);
	int (*step)(unw_cursor_t *);
	int (*get_reg)(unw_cursor_t *, int, unw_word_t *);
	int (*backtrace)(void **, int);
} nongnu[POLICIES];

static inline size_t unw_step_with(int policy, const struct stack *s, uint64_t *pcs, size_t max)
{
	unw_context_t uc;
	unw_cursor_t c;
	unw_word_t ip;
	greg_t *g = uc.uc_mcontext.gregs;
	size_t n = 0;
	g[REG_RBX] = (greg_t)s->regs.reg[DW_RBX];
	g[REG_RBP] = (greg_t)s->regs.reg[DW_RBP];
	g[REG_RSP] = (greg_t)s->regs.reg[DW_RSP];
	g[REG_R12] = (greg_t)s->regs.reg[DW_R12];
	g[REG_R13] = (greg_t)s->regs.reg[DW_R13];
	g[REG_R14] = (greg_t)s->regs.reg[DW_R14];
	g[REG_R15] = (greg_t)s->regs.reg[DW_R15];
	g[REG_RIP] = (greg_t)s->regs.reg[DW_RIP];
	nongnu[policy].init_local(&c, &uc);
	while (n < max && nongnu[policy].step(&c) > 0) {
		nongnu[policy].get_reg(&c, UNW_REG_IP, &ip);
		pcs[n++] = ip;
	}
	return n;
}

static size_t unw_step_global(const struct stack *s, uint64_t *p, size_t max)
{
    return unw_step_with(GLOBAL, s, p, max);
}
static size_t unw_step_thread(const struct stack *s, uint64_t *p, size_t max)
{
    return unw_step_with(PER_THREAD, s, p, max);
}
static size_t unw_step_none(const struct stack *s, uint64_t *p, size_t max) { return unw_step_with(NONE, s, p, max); }

static size_t unw_backtrace_(const struct stack *s, uint64_t *pcs, size_t max)
{
	(void)s;
	return (size_t)nongnu[GLOBAL].backtrace((void **)pcs, (int)max);
}

/* libgcc calls back for each frame. */
struct trace {
	uint64_t *pcs;
	size_t n, max;
};

static _Unwind_Reason_Code libgcc_frame(struct _Unwind_Context *c, void *arg)
{
	struct trace *t = arg;
	if (t->n == t->max)
		return _URC_END_OF_STACK;
	t->pcs[t->n++] = _Unwind_GetIP(c);
	return _URC_NO_REASON;
}

static size_t libgcc(const struct stack *s, uint64_t *pcs, size_t max)
{
	struct trace t = {pcs, 0, max};
	(void)s;
	_Unwind_Backtrace(libgcc_frame, &t);
	return t.n;
}

static size_t glibc_backtrace(const struct stack *s, uint64_t *pcs, size_t max)
{
	(void)s;
	return (size_t)backtrace((void **)pcs, (int)max);
}

size_t bench_frame_count(void)
{
	uint64_t pcs[MAX_FRAMES];
	return libgcc(NULL, pcs, MAX_FRAMES);
}

/* LLVM's libunwind has no caching policies; its contexts and cursors have their own size. */
static struct {
	int (*getcontext)(void *);
	int (*init_local)(void *, void *);
	int (*step)(void *);
	int (*get_reg)(void *, int, uint64_t *);
} llvm;

static size_t llvm_step(const struct stack *s, uint64_t *pcs, size_t max)
{
	uint64_t context[64], cursor[128], ip;
	size_t n = 0;
	(void)s;
	llvm.getcontext(context);
	llvm.init_local(cursor, context);
	while (n < max && llvm.step(cursor) > 0) {
		llvm.get_reg(cursor, -1, &ip); /* UNW_REG_IP */
		pcs[n++] = ip;
	}
	return n;
}

/* elfutils: the process reads its own registers and memory. */
static Dwfl *dwfl;
static const struct stack *dwfl_stack;
static struct trace dwfl_trace;

static pid_t next_thread(Dwfl *d, void *arg, void **thread)
{
	(void)d, (void)arg;
	if (*thread)
		return 0;
	*thread = &dwfl;
	return getpid();
}
static bool memory_read(Dwfl *d, Dwarf_Addr addr, Dwarf_Word *word, void *arg)
{
	(void)d, (void)arg;
	if (addr < dwfl_stack->regs.reg[DW_RSP] || addr + 8 > dwfl_stack->hi)
		return false;
	*word = *(uint64_t *)addr;
	return true;
}
static bool set_initial(Dwfl_Thread *t, void *arg)
{
	(void)arg;
	/* It takes the innermost pc for one that was executing: one less than the return address. */
	dwfl_thread_state_register_pc(t, dwfl_stack->regs.reg[DW_RIP] - 1);
	return dwfl_thread_state_registers(t, 0, 17, dwfl_stack->regs.reg);
}
static int dwfl_frame(Dwfl_Frame *f, void *arg)
{
	Dwarf_Addr pc;
	bool exact;
	(void)arg;
	if (dwfl_trace.n == dwfl_trace.max || !dwfl_frame_pc(f, &pc, &exact))
		return DWARF_CB_ABORT;
	dwfl_trace.pcs[dwfl_trace.n++] = pc;
	return DWARF_CB_OK;
}

static size_t libdw(const struct stack *s, uint64_t *pcs, size_t max)
{
	dwfl_stack = s;
	dwfl_trace = (struct trace){pcs, 0, max};
	dwfl_getthread_frames(dwfl, getpid(), dwfl_frame, NULL);
	return dwfl_trace.n;
}

static int libdw_init(void)
{
	static char *no_path = "";
	static const Dwfl_Callbacks calls = {
		.find_elf = dwfl_linux_proc_find_elf,
		.find_debuginfo = dwfl_standard_find_debuginfo,
		.debuginfo_path = &no_path,
	};
	static const Dwfl_Thread_Callbacks threads = {
		.next_thread = next_thread, .memory_read = memory_read, .set_initial_registers = set_initial,
	};
	dwfl = dwfl_begin(&calls);
	return dwfl && dwfl_linux_proc_report(dwfl, getpid()) == 0 && dwfl_report_end(dwfl, NULL, NULL) == 0 &&
	       dwfl_attach_state(dwfl, NULL, getpid(), &threads, NULL);
}

struct contender bench_system[] = {
	{"unw-backtrace", unw_backtrace_, 0},
	{"unw-step-global", unw_step_global, 0},
	{"unw-step-thread", unw_step_thread, 0},
	{"unw-step-none", unw_step_none, 0},
	{"libgcc", libgcc, 0},
	{"glibc-backtrace", glibc_backtrace, 0},
	{"llvm-libunwind", llvm_step, 0},
	{"libdw", libdw, 0},
	{0, 0, 0},
};

static void absent(const char *prefix, const char *why)
{
	for (struct contender *c = bench_system; c->name; c++)
		if (strncmp(c->name, prefix, strlen(prefix)) == 0)
			c->absent = why;
}

#define GET(h, to, name) ((to) = (__typeof__(to))dlsym(h, name))

static int nongnu_init(const char *folder)
{
	static const char *files[] = {"libunwind-global.so", "libunwind-thread.so", "libunwind-none.so"};
	static const int policies[] = {UNW_CACHE_GLOBAL, UNW_CACHE_PER_THREAD, UNW_CACHE_NONE};
	for (int i = 0; i < POLICIES; i++) {
		char path[1024];
		snprintf(path, sizeof path, "%s/%s", folder, files[i]);
		void *h = dlopen(path, RTLD_NOW | RTLD_LOCAL);
		int (*set_policy)(unw_addr_space_t, unw_caching_policy_t);
		unw_addr_space_t *space;
		if (!h || !GET(h, nongnu[i].init_local, "_ULx86_64_init_local") || !GET(h, nongnu[i].step, "_ULx86_64_step") ||
		    !GET(h, nongnu[i].get_reg, "_ULx86_64_get_reg") || !GET(h, nongnu[i].backtrace, "unw_backtrace") ||
		    !GET(h, set_policy, "_ULx86_64_set_caching_policy") || !GET(h, space, "_ULx86_64_local_addr_space"))
			return 0;
		if (i != GLOBAL && set_policy(*space, policies[i]) != 0)
			return 0;
	}
	return 1;
}

void bench_system_init(const char *libs, const char *llvm_path)
{
	if (!nongnu_init(libs))
		absent("unw-", "nongnu libunwind cannot be opened or lacks a function");
	void *h = dlopen(llvm_path, RTLD_NOW | RTLD_LOCAL);
	if (!h || !GET(h, llvm.getcontext, "unw_getcontext") || !GET(h, llvm.init_local, "unw_init_local") ||
	    !GET(h, llvm.step, "unw_step") || !GET(h, llvm.get_reg, "unw_get_reg"))
		absent("llvm", "LLVM's libunwind cannot be opened");
	if (!libdw_init())
		absent("libdw", "elfutils refuses");
}
