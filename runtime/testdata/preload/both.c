/*
 * Takes each stack of the program stacks twice from the same place: with the functions
 * that the program is linked with, which a preload may replace, and with the originals,
 * got from the libraries themselves. All that can be asked must be equal.
 */
#define UNW_LOCAL_ONLY
#include <dlfcn.h>
#include <execinfo.h>
#include <libunwind.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unwind.h>

#include "../check.h"

/* The libraries whose backtrace and _Unwind_Backtrace come first in the program's scope. */
#ifdef LIBUNWIND_FIRST
static const char backtrace_of[] = "libunwind.so.8", unwind_of[] = "libunwind.so.8";
#else
static const char backtrace_of[] = "libc.so.6", unwind_of[] = "libgcc_s.so.1";
#endif

/* ---------------------------------------------------------------------------- functions */

typedef int array_fn(void **, int);
typedef _Unwind_Reason_Code trace_fn(_Unwind_Trace_Fn, void *);
struct cursors {
    int (*init)(unw_cursor_t *, unw_context_t *);
    int (*init2)(unw_cursor_t *, unw_context_t *, int);
    int (*step)(unw_cursor_t *);
    int (*get_reg)(unw_cursor_t *, int, unw_word_t *);
    int (*get_proc_name)(unw_cursor_t *, char *, size_t, unw_word_t *);
    int (*get_proc_info)(unw_cursor_t *, unw_proc_info_t *);
    int (*is_signal_frame)(unw_cursor_t *);
    int (*get_save_loc)(unw_cursor_t *, int, unw_save_loc_t *);
    int (*get_fpreg)(unw_cursor_t *, int, unw_fpreg_t *);
};

/* [0] is what the program is linked with, [1] the original. */
static array_fn *volatile arrays[2] = {backtrace}, *volatile unw_arrays[2] = {unw_backtrace};
static trace_fn *volatile traces[2] = {_Unwind_Backtrace};
static struct cursors cursors[2] = {{unw_init_local, unw_init_local2, unw_step, unw_get_reg, unw_get_proc_name,
                                     unw_get_proc_info, unw_is_signal_frame, unw_get_save_loc, unw_get_fpreg}};

static void *original(const char *library, const char *symbol)
{
    void *handle = dlopen(library, RTLD_NOW), *found = handle ? dlsym(handle, symbol) : NULL;
    if (!found) {
        fprintf(stderr, "%s: %s\n", library, dlerror());
        abort();
    }
    return found;
}

__attribute__((constructor)) static void find_originals(void)
{
    static const char libunwind[] = "libunwind.so.8";
    *(void **)&arrays[1] = original(backtrace_of, "backtrace");
    *(void **)&unw_arrays[1] = original(libunwind, "unw_backtrace");
    *(void **)&traces[1] = original(unwind_of, "_Unwind_Backtrace");
    *(void **)&cursors[1].init = original(libunwind, "_ULx86_64_init_local");
    *(void **)&cursors[1].init2 = original(libunwind, "_ULx86_64_init_local2");
    *(void **)&cursors[1].step = original(libunwind, "_ULx86_64_step");
    *(void **)&cursors[1].get_reg = original(libunwind, "_ULx86_64_get_reg");
    *(void **)&cursors[1].get_proc_name = original(libunwind, "_ULx86_64_get_proc_name");
    *(void **)&cursors[1].get_proc_info = original(libunwind, "_ULx86_64_get_proc_info");
    *(void **)&cursors[1].is_signal_frame = original(libunwind, "_ULx86_64_is_signal_frame");
    *(void **)&cursors[1].get_save_loc = original(libunwind, "_ULx86_64_get_save_loc");
    *(void **)&cursors[1].get_fpreg = original(libunwind, "_ULx86_64_get_fpreg");
    bool preloaded = getenv("LD_PRELOAD") != NULL;
    check((arrays[0] != arrays[1]) == preloaded, "backtrace is the original or not");
    check((unw_arrays[0] != unw_arrays[1]) == preloaded, "unw_backtrace is the original or not");
    check((traces[0] != traces[1]) == preloaded, "_Unwind_Backtrace is the original or not");
    check((cursors[0].step != cursors[1].step) == preloaded, "unw_step is the original or not");
}

/* allocate: some stacks that are checked are small. */
static void *allocate(size_t size)
{
    void *p = calloc(1, size);
    if (!p)
        abort();
    return p;
}

/* ------------------------------------------------------------------------------- arrays */

__attribute__((noinline)) static void check_arrays(const char *name, array_fn *volatile functions[2], int size)
{
    void **pcs[2] = {allocate(MAX_FRAMES * sizeof(void *)), allocate(MAX_FRAMES * sizeof(void *))};
    int n[2];
    for (volatile int i = 0; i < 2; i++) /* volatile: one call, and not two in a row */
        n[i] = functions[i](pcs[i], size);
    check(n[0] == n[1], "%s(%d): %d frames, original %d", name, size, n[0], n[1]);
    for (int i = 0; i < n[0] && i < n[1]; i++)
        check(pcs[0][i] == pcs[1][i], "%s(%d) %d: %p, original %p", name, size, i, pcs[0][i], pcs[1][i]);
    if (n[0] > 0)
        num_frames += n[0];
    free(pcs[0]);
    free(pcs[1]);
}

/* ----------------------------------------------------------------------------- contexts */

enum { NUM_SAVED = 6, ASK = 6 /* frames that are asked for what takes another walk */ };
struct frame {
    uint64_t ip, ip2, cfa, saved[NUM_SAVED], region, lsda, bases, function;
    int before;
};
struct walk {
    struct frame frame[MAX_FRAMES];
    int n, stop, result;
};

static _Unwind_Reason_Code record(struct _Unwind_Context *c, void *arg)
{
    static const int saved[NUM_SAVED] = {3, 6, 12, 13, 14, 15};
    struct walk *w = arg;
    struct frame *f = &w->frame[w->n];
    if (w->n == MAX_FRAMES)
        return _URC_END_OF_STACK;
    memset(f, 0, sizeof *f);
    f->ip = _Unwind_GetIP(c);
    f->ip2 = _Unwind_GetIPInfo(c, &f->before);
    f->cfa = _Unwind_GetCFA(c);
    if (f->ip != 0)
        for (int i = 0; i < NUM_SAVED && !expect_guesses; i++)
            f->saved[i] = _Unwind_GetGR(c, saved[i]);
    if (w->n < ASK && f->ip != 0 && strcmp(unwind_of, "libgcc_s.so.1") == 0) {
        f->region = _Unwind_GetRegionStart(c);
        f->lsda = (uint64_t)(uintptr_t)_Unwind_GetLanguageSpecificData(c);
        f->bases = _Unwind_GetTextRelBase(c) + _Unwind_GetDataRelBase(c);
        f->function = (uint64_t)(uintptr_t)_Unwind_FindEnclosingFunction((void *)(uintptr_t)f->ip);
    }
    return ++w->n == w->stop ? _URC_NORMAL_STOP : _URC_NO_REASON;
}

__attribute__((noinline)) static void check_contexts(int stop)
{
    struct walk *walks = allocate(2 * sizeof *walks);
    for (volatile int i = 0; i < 2; i++) {
        walks[i].stop = stop;
        walks[i].result = traces[i](record, &walks[i]);
    }
    const struct walk *a = &walks[0], *b = &walks[1];
    check(a->result == b->result && a->n == b->n, "_Unwind_Backtrace (to %d): %d calls, result %d; original %d, %d",
        stop, a->n,
          a->result, b->n, b->result);
    for (int i = 0; i < a->n && i < b->n; i++) {
        const struct frame *f = &a->frame[i], *g = &b->frame[i];
        check(memcmp(f, g, sizeof *f) == 0,
              "_Unwind_Backtrace %d of %d: ip %#lx cfa %#lx before %d region %#lx, original %#lx %#lx %d %#lx", i, a->n,
              (long)f->ip, (long)f->cfa, f->before, (long)f->region, (long)g->ip, (long)g->cfa, g->before,
              (long)g->region);
    }
    num_frames += a->n;
    free(walks);
}

/* ------------------------------------------------------------------------------ cursors */

struct answers {
    unw_word_t reg[UNW_REG_LAST + 2], offset;
    unw_proc_info_t info;
    unw_save_loc_t place;
    int got[UNW_REG_LAST + 4], name, proc, signal, bad, fpreg, saved;
    char text[40];
};

enum { PLAIN, NAME = 1, ALL = 2 }; /* the name costs libunwind a look into the file; all takes a libunwind cursor */

static void ask(const struct cursors *f, unw_cursor_t *u, int what, struct answers *a)
{
    unw_fpreg_t fp;
    unw_word_t word;
    memset(a, 0, sizeof *a);
    for (int r = 0; r <= UNW_REG_LAST + 1; r++)
        a->got[r] = f->get_reg(u, r, &a->reg[r]);
    a->signal = f->is_signal_frame(u);
    if (what & NAME)
        a->name = f->get_proc_name(u, a->text, sizeof a->text, &a->offset);
    a->proc = f->get_proc_info(u, &a->info);
    a->info.unwind_info = NULL; /* each has its own */
    if (what & ALL) {
        a->bad = f->get_reg(u, 99, &word);
        a->fpreg = f->get_fpreg(u, 20, &fp);
        a->saved = f->get_save_loc(u, UNW_X86_64_RBP, &a->place);
    }
}

/*
 * compare_cursors steps both up. At the frame number hand_over all is asked, also what only
 * libunwind knows, and beyond the end; with NEVER only there, with -1 nowhere.
 */
enum { NEVER = MAX_FRAMES };
static void compare_cursors(unw_cursor_t *u, int hand_over)
{
    struct answers *a = allocate(2 * sizeof *a);
    int result[2];
    for (int depth = 0; depth < MAX_FRAMES; depth++) {
        for (int i = 0; i < 2; i++)
            ask(&cursors[i], &u[i], (depth < 5 ? NAME : PLAIN) | (depth == hand_over ? ALL : PLAIN), &a[i]);
        check(memcmp(a[0].reg, a[1].reg, sizeof a[0].reg) == 0, "unw %d: registers at %#lx, original %#lx", depth,
              (long)a[0].reg[UNW_REG_IP], (long)a[1].reg[UNW_REG_IP]);
        for (int r = 0; r <= UNW_REG_LAST + 1; r++)
            check(a[0].reg[r] == a[1].reg[r], "register %d: %#lx, original %#lx", r, (long)a[0].reg[r],
                (long)a[1].reg[r]);
        check(memcmp(&a[0], &a[1], sizeof a[0]) == 0, "unw %d: %s+%#lx signal %d name %d, original %s+%#lx %d %d",
            depth,
              a[0].text, (long)a[0].offset, a[0].signal, a[0].name, a[1].text, (long)a[1].offset, a[1].signal,
              a[1].name);
        num_frames++;
        unw_cursor_t copy = u[0]; /* cursors may be copied */
        u[0] = copy;
        for (int i = 0; i < 2; i++)
            result[i] = cursors[i].step(&u[i]);
        check(result[0] == result[1], "unw_step %d: %d, original %d", depth, result[0], result[1]);
        if (result[0] <= 0 || result[1] <= 0)
            break;
    }
    for (int i = 0; i < 2 && hand_over >= 0; i++)
        ask(&cursors[i], &u[i], NAME | ALL, &a[i]);
    check(memcmp(&a[0], &a[1], sizeof a[0]) == 0, "unw beyond the end: at %#lx, original %#lx",
        (long)a[0].reg[UNW_REG_IP],
          (long)a[1].reg[UNW_REG_IP]);
    for (int i = 0; i < 2 && hand_over >= 0; i++)
        result[i] = cursors[i].step(&u[i]);
    check(result[0] == result[1], "unw_step beyond the end: %d, original %d", result[0], result[1]);
    free(a);
}

static void check_cursors(unw_context_t *context, int flags, int hand_over)
{
    unw_cursor_t u[2];
    for (int i = 0; i < 2; i++)
        if ((flags == 0 ? cursors[i].init(&u[i], context) : cursors[i].init2(&u[i], context, flags)) != 0)
            check(false, "no cursor");
    compare_cursors(u, hand_over);
}

/* ---------------------------------------------------------------------------------------- */

__attribute__((noinline)) void check_here(void)
{
    static const int sizes[] = {-1, 0, 1, 2, 5, MAX_FRAMES};
    void *pcs[2];
    ehu_backtrace(pcs, 2); /* the scenarios count system calls of libehunwind at stacks that it has seen */
    num_stacks++;
    num_guessed += expect_guesses; /* here the originals have to manage */
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        check_arrays("backtrace", arrays, sizes[i]);
        if (sizes[i] > 0)
            check_arrays("unw_backtrace", unw_arrays, sizes[i]);
    }
    check_contexts(0);
    check_contexts(1);
    check_contexts(3);
    unw_context_t context;
    unw_getcontext(&context);
    check_cursors(&context, 0, -1);
    check_cursors(&context, 0, num_stacks % 6 == 5 ? NEVER : (int)(num_stacks % 6));
}

void check_context(const ucontext_t *interrupted)
{
    unw_context_t context = *interrupted;
    unw_cursor_t u;
    void *pcs[2];
    ehu_backtrace_from(interrupted, pcs, 2);
    num_stacks++;
    check_cursors(&context, UNW_INIT_SIGNAL_FRAME, -1);
    check_cursors(&context, UNW_INIT_SIGNAL_FRAME, num_stacks % 2 ? 2 : NEVER);
    for (int i = 0; i < 2; i++)
        check(cursors[i].init2(&u, &context, 77) == -UNW_EINVAL, "flag 77 is none");
}
