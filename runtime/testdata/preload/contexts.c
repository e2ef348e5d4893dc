/*
 * What _Unwind_Backtrace's callback may ask of a frame, and when: never, always, or from some frame on, in stacks of
 * few and of many frames. Prints what the frames are, without addresses that differ from run to run: the output is to
 * be that without the preload.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unwind.h>

enum { MAX = 256, NEVER = 1000 };

struct walk {
    int n, from, until; /* registers are asked for in frames from from on, before until */
    uintptr_t pc[MAX], cfa[MAX], rbx[MAX];
    int before[MAX];
};

static _Unwind_Reason_Code frame(struct _Unwind_Context *c, void *arg)
{
    struct walk *w = arg;
    int i = w->n++;
    if (i >= MAX)
        abort();
    w->pc[i] = _Unwind_GetIP(c);
    if (i < w->from || i >= w->until || w->pc[i] == 0)
        return _URC_NO_REASON;
    w->cfa[i] = _Unwind_GetCFA(c);
    w->rbx[i] = _Unwind_GetGR(c, 3);
    if (_Unwind_GetIPInfo(c, &w->before[i]) != w->pc[i])
        abort();
    return _URC_NO_REASON;
}

static void differ(const char *what, int from, int i)
{
    printf("%s of frame %d differs, asked from %d on\n", what, i, from);
    exit(1);
}

static struct walk all, some;

static void take(struct walk *w, int from, int until)
{
    memset(w, 0, sizeof *w);
    w->from = from;
    w->until = until;
    if (_Unwind_Backtrace(frame, w) != _URC_END_OF_STACK)
        abort();
}

static void look(void)
{
    static const int width[] = {1, 3, NEVER};
    for (int warm = 0; warm < 2; warm++)
        take(&all, 0, NEVER);
    for (int from = 0; from <= all.n; from++)
        for (int k = 0; k < 3; k++) {
            take(&some, from, from + width[k]);
            if (some.n != all.n)
                differ("number", from, some.n);
            for (int i = 1; i < all.n; i++) { /* the first is here, at another call */
                if (some.pc[i] != all.pc[i])
                    differ("pc", from, i);
                if (i >= from && i < some.until && (some.cfa[i] != all.cfa[i] || some.rbx[i] != all.rbx[i] ||
                    some.before[i] != all.before[i]))
                    differ("a register", from, i);
            }
        }
    printf("%d frames, %lu bytes\n", all.n, (unsigned long)(all.cfa[all.n - 2] - all.cfa[1]));
}

static __attribute__((noinline)) int deep(int n)
{
    volatile int kept = n;
    if (n == 0)
        look();
    else
        deep(n - 1);
    return kept;
}

int main(void)
{
    deep(3);
    deep(60); /* around the number of pcs that are kept */
    deep(150);
}
