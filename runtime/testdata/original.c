/*
 * Walks its own stack as the original project's unwinders do (docs/abi.md, section 1): for each mapping of a file that
 * is executable, NAME.eh_elf.so is opened by the name in /proc/self/maps; without one nothing is unwound. A pc is
 * the address less what the file's start would have, and is looked up as it is. Compares with backtrace(3).
 */
#include <dlfcn.h>
#include <execinfo.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    uint8_t flags;
    uintptr_t rip, rsp, rbp, rbx;
} context;
typedef uintptr_t deref(uintptr_t);
typedef context step(context, uintptr_t, deref *);

enum { RIP = 1 << 0, RSP = 1 << 1, RBP = 1 << 2, RBX = 1 << 3, FAILED = 1 << 7, MOST = 300 };

static struct {
    uintptr_t low, high, start;
    char name[512];
    step *unwind;
} mapped[64];
static int mappings, walks, differ;
static long frames;

static void read_maps(void)
{
    char line[1000];
    FILE *f = fopen("/proc/self/maps", "r");
    while (f && fgets(line, sizeof line, f) && mappings < 64) {
        unsigned long low, high, offset, inode;
        char mode[5], path[500];
        if (sscanf(line, "%lx-%lx %4s %lx %*s %lu %499s", &low, &high, mode, &offset, &inode, path) != 6 ||
            mode[2] != 'x' || inode == 0)
            continue;
        snprintf(mapped[mappings].name, sizeof mapped[0].name, "%s.eh_elf.so", strrchr(path, '/') + 1);
        mapped[mappings].low = low;
        mapped[mappings].high = high;
        mapped[mappings++].start = low - offset;
    }
    fclose(f);
    for (int i = 0; i < mappings; i++) {
        void *opened = dlopen(mapped[i].name, RTLD_LAZY);
        mapped[i].unwind = opened ? (step *)dlsym(opened, "_eh_elf") : NULL;
        if (!mapped[i].unwind) {
            printf("%s\n", dlerror());
            exit(1);
        }
    }
}

static uintptr_t word(uintptr_t at) { return *(uintptr_t *)at; }

static int walk(context c, uintptr_t *pcs)
{
    int n = 0;
    while (n < MOST) {
        int i = 0;
        while (i < mappings && (c.rip < mapped[i].low || c.rip >= mapped[i].high))
            i++;
        if (i == mappings)
            return -1;
        context next = mapped[i].unwind(c, c.rip - mapped[i].start, word);
        if (next.flags & FAILED)
            return -2;
        if (!(next.flags & RIP))
            return n;
        c.rip = pcs[n++] = next.rip;
        c.rsp = next.flags & RSP ? next.rsp : c.rsp;
        c.rbp = next.flags & RBP ? next.rbp : c.rbp;
        c.rbx = next.flags & RBX ? next.rbx : c.rbx;
    }
    return n;
}

static __attribute__((noinline)) void compare(void)
{
    void *want[MOST];
    uintptr_t got[MOST];
    context c = {0};
    int m = backtrace(want, MOST);
    __asm__ volatile("leaq 0(%%rip), %0; movq %%rsp, %1; movq %%rbp, %2; movq %%rbx, %3" : "=&r"(c.rip), "=&r"(c.rsp),
        "=&r"(c.rbp), "=&r"(c.rbx));
    int n = walk(c, got);
    int same = n == m - 1; /* want begins in this function */
    for (int i = 0; same && i < n; i++)
        same = got[i] == (uintptr_t)want[i + 1];
    walks++;
    frames += n;
    if (!same && differ++ < 5)
        printf("differs: %d frames, backtrace has %d behind this one\n", n, m - 1);
}

static int order(const void *a, const void *b)
{
    compare();
    return *(const int *)a - *(const int *)b;
}

void last(void);
void leave(void);
void leave(void)
{
    compare();
    if (differ == 0)
        printf("%d walks, %s frames\n", walks, frames > 20L * walks ? "more than 20 times as many" : "few");
    exit(differ != 0);
}

/* last ends in a call that does not return: its return address is in the padding after it. */
__asm__(".text\n"
        ".p2align 4\n"
        "last: .cfi_startproc\n"
        "subq $8, %rsp\n"
        ".cfi_adjust_cfa_offset 8\n"
        "call leave\n"
        ".cfi_endproc\n"
        ".p2align 4\n"
        "behind: .cfi_startproc\n"
        "ret\n"
        ".cfi_endproc\n");

static __attribute__((noinline)) int down(int n, volatile int *p)
{
    char room[n * 7 % 300 + 1];
    *(volatile char *)room = (char)n;
    if (n == 0) {
        int a[40];
        for (int i = 0; i < 40; i++)
            a[i] = i * 37 % 41;
        qsort(a, 40, sizeof a[0], order);
        last();
        return a[3];
    }
    return down(n - 1, p) + room[0] + *p;
}

int main(void)
{
    volatile int zero = 0;
    void *first[2];
    backtrace(first, 2); /* loads libgcc_s.so.1 */
    read_maps();
    return down(25, &zero);
}
