#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "stacks.h"

/* What is counted, a line of the summary per scenario. */
static struct tally {
    const char *name;
    long stacks;    /* taken with eh_elfs, one step at a time */
    long walks;     /* the same by whole walks, on various memory */
    long frames;    /* compared with libunwind's */
    long registers; /* callee-saved ones among them */
    long libgcc;    /* frames compared with libgcc's */
    long known;     /* frames compared with what is known of the calls */
    long counts[16];
} tallies[32];
static int num_tallies;
static const char *counted[16];
static int num_failed;

int expected_end = EH_ELF_OUTERMOST;

static struct tally *now(void) { return &tallies[num_tallies - 1]; }

void scenario(const char *name)
{
    if (num_tallies == sizeof tallies / sizeof tallies[0])
        abort();
    tallies[num_tallies++].name = name;
}

/* count adds to a figure of the scenario's own. */
void count(const char *what, long n)
{
    int i = 0;
    while (counted[i] && strcmp(counted[i], what) != 0)
        if (++i == sizeof counted / sizeof counted[0])
            abort();
    counted[i] = what;
    now()->counts[i] += n;
}

void fail(const char *format, ...)
{
    va_list args;
    if (num_failed++ > 3)
        return;
    va_start(args, format);
    printf("FAIL %s: ", num_tallies ? now()->name : "start");
    vprintf(format, args);
    va_end(args);
    putchar('\n');
    fflush(stdout);
}

/* summary prints the figures and returns the exit status. */
int summary(void)
{
    for (int i = 0; i < num_tallies; i++) {
        struct tally *t = &tallies[i];
        printf("scenario %s stacks=%ld walks=%ld frames=%ld registers=%ld libgcc=%ld known=%ld", t->name, t->stacks,
               t->walks, t->frames, t->registers, t->libgcc, t->known);
        for (int c = 0; c < 16; c++)
            if (t->counts[c])
                printf(" %s=%ld", counted[c], t->counts[c]);
        putchar('\n');
    }
    printf("failures %d\n", num_failed);
    fflush(stdout);
    return num_failed ? 1 : 0;
}

static struct stack e, sample, other;
static void print_stack(const char *who, const struct stack *s, int wrong)
{
    printf("  %s: %d frames, end %d\n", who, s->len, s->end);
    for (int i = wrong > 2 ? wrong - 2 : 0; i < s->len; i++) {
        const eh_elf_regs_t *f = &s->frame[i];
        printf("  %c#%d ", i == wrong ? '>' : ' ', i);
        print_pc(stdout, f->reg[EH_ELF_RIP]);
        printf(" rsp %#lx exact %d", (unsigned long)f->reg[EH_ELF_RSP], f->exact);
        if (i == wrong || i == wrong - 1)
            for (int r = 0; r < EH_ELF_NUM_REGS; r++)
                if (f->valid & 1u << r)
                    printf(" r%d=%#lx", r, (unsigned long)f->reg[r]);
        putchar('\n');
        if (i > wrong + 1)
            break;
    }
    fflush(stdout);
}

static void differ(const char *what, int frame, const struct stack *eh_elf, const char *who, const struct stack *other)
{
    fail("%s, frame %d, against %s", what, frame, who);
    if (num_failed > 3)
        return;
    print_stack("eh_elf", eh_elf, frame);
    print_stack(who, other, frame);
}

static uint64_t pcs[MAX_FRAMES];

/*
 * stops_at_ms_abi is the one known fault of libunwind (1.6) here: it refuses a row
 * that saves a register above 16 (xmm6 to xmm15, which ms_abi functions preserve)
 * with UNW_EBADREG, though it needs none of them. Example: microsoft in shapes.c.
 * What comes below that frame is compared with libgcc's frames alone.
 */
static bool stops_at_ms_abi(void)
{
    const uint64_t pc = other.frame[other.len - 1].reg[EH_ELF_RIP];
    Dl_info info;
    return other.end == -3 && other.len < e.len && dladdr((void *)(uintptr_t)pc, &info) && info.dli_sname &&
           strcmp(info.dli_sname, "microsoft") == 0;
}

/*
 * compare compares the stack e with another unwinder's: as many frames, the same
 * pc, rsp and exactness, and every register that e knows the same. The callee-saved
 * registers must be known to both or to neither.
 */
static bool compare(const char *who, uint32_t known_to_other, long *frames, long *registers)
{
    bool who_is_libunwind = registers != NULL;
    for (int i = 0; i < e.len && i < other.len; i++) {
        const eh_elf_regs_t *a = &e.frame[i], *b = &other.frame[i];
        const char *what = NULL;
        uint32_t both = a->valid & known_to_other;
        if (a->reg[EH_ELF_RIP] != b->reg[EH_ELF_RIP])
            what = "pc";
        else if (a->reg[EH_ELF_RSP] != b->reg[EH_ELF_RSP])
            what = "rsp";
        else if (a->exact != b->exact)
            what = "exactness";
        else if (both & ~b->valid)
            what = "a register that it does not know";
        else if (b->valid & SAVED_BITS & ~a->valid)
            what = "a register that eh_elf does not know";
        for (int r = 0; r < EH_ELF_NUM_REGS && !what; r++)
            if (both & 1u << r && a->reg[r] != b->reg[r])
                what = "a register";
        if (what) {
            differ(what, i, &e, who, &other);
            return false;
        }
        ++*frames;
        if (registers)
            *registers += __builtin_popcount(both & SAVED_BITS);
    }
    if (e.len != other.len && !(who_is_libunwind && stops_at_ms_abi())) {
        differ("length", e.len < other.len ? e.len : other.len, &e, who, &other);
        return false;
    }
    return true;
}

/* check_walks takes the stack e again by whole walks, on every kind of memory. */
static void check_walks(const eh_elf_regs_t *start)
{
    static struct stack w;
    for (int kind = 0; kind < MEM_SAMPLE; kind++)
        for (int want_pcs = 0; want_pcs < 2; want_pcs++) {
            walk_eh_elf(start, kind, want_pcs, &w, pcs);
            now()->walks++;
            if (w.end != e.end || w.len != e.len - 1) {
                fail("walk, memory %d: %d frames, end %d; single steps: %d, end %d", kind, w.len + 1, w.end, e.len,
                    e.end);
                return;
            }
            for (int i = 0; want_pcs && i < w.len; i++)
                if (pcs[i] != e.frame[i + 1].reg[EH_ELF_RIP]) {
                    fail("walk, memory %d: pc of frame %d is %#lx, in single steps %#lx", kind, i + 1,
                         (unsigned long)pcs[i], (unsigned long)e.frame[i + 1].reg[EH_ELF_RIP]);
                    return;
                }
            const eh_elf_regs_t *a = &w.frame[0], *b = &e.frame[e.len - 1];
            bool same = a->valid == b->valid && a->exact == b->exact;
            for (int r = 0; r < EH_ELF_NUM_REGS; r++)
                same = same && (!(a->valid & 1u << r) || a->reg[r] == b->reg[r]);
            if (!same) {
                fail("walk, memory %d: the last frame differs from single steps'", kind);
                return;
            }
        }
}

/*
 * check_sample takes the stack e again from a sample, which ends at rsp. The frames
 * must be the same. Where an epilogue of a frame with an rbp pops registers, their
 * slots are below rsp and the table still says to read them until rbp is popped,
 * too: those registers become unknown, the frame pointer must not.
 */
static void check_sample(const eh_elf_regs_t *start)
{
    take_eh_elf(start, MEM_SAMPLE, &sample);
    now()->walks++;
    long lost = 0;
    bool same = sample.len == e.len && sample.end == e.end;
    for (int i = 0; same && i < e.len; i++) {
        const eh_elf_regs_t *a = &sample.frame[i], *b = &e.frame[i];
        uint32_t must = 1u << EH_ELF_RIP | 1u << EH_ELF_RSP | 1u << EH_ELF_RBP;
        same = a->exact == b->exact && !(must & ~a->valid) && !(a->valid & ~b->valid);
        for (int r = 0; r < EH_ELF_NUM_REGS; r++)
            same = same && (!(a->valid & 1u << r) || a->reg[r] == b->reg[r]);
        lost += __builtin_popcount(b->valid & SAVED_BITS & ~a->valid);
        if (!same)
            differ("a sample", i, &e, "sample", &sample);
    }
    if (sample.len != e.len || sample.end != e.end)
        differ("length of a sample", sample.len < e.len ? sample.len : e.len, &e, "sample", &sample);
    if (lost > 0)
        count("samples-with-unknown-registers", 1);
}

/*
 * wrong_table knows the places where the tables themselves are wrong, so that every
 * unwinder goes wrong together, and returns which registers of the caller are right
 * all the same; 0 if the table is not known to be wrong.
 */
static uint32_t wrong_table(const eh_elf_regs_t *start, const char **what)
{
    enum { NONE_RIGHT = 1 << 30 };
    const uint32_t place = 1u << EH_ELF_RIP | 1u << EH_ELF_RSP;
    const uint8_t *pc = (const uint8_t *)(uintptr_t)start->reg[EH_ELF_RIP];
    if (!start->exact)
        return 0;

    /*
     * A function that realigns its stack by way of r10 ends in
     *     pop %r10; pop %rbp; lea -8(%r10),%rsp; ret
     * gcc (12) leaves the rules "rbp is at (rbp)", "rbx is at (rbp-16)" standing
     * after the pop of rbp: wrong at the last two instructions. Example:
     * aligned_and_variable in shapes.c.
     */
    static const uint8_t lea[] = {0x49, 0x8d, 0x62, 0xf8, 0xc3};
    if (memcmp(pc, lea, 5) == 0 || (*pc == 0xc3 && memcmp(pc - 4, lea, 5) == 0)) {
        *what = "wrong-table-gcc-realigned-epilogue";
        return place | 0xf000;
    }

    /*
     * glibc's __mpn_addmul_1 and __mpn_submul_1 (assembly, called by printf of
     * floating point) begin with
     *     push %rbx; push %rbp; lea (%rdx),%rbx; neg %rbx
     * under a table that says rsp+8 throughout: the caller's pc is taken from a
     * pushed register. Seen in glibc 2.36.
     */
    static const uint8_t mpn[] = {0x53, 0x55, 0x48, 0x8d, 0x1a, 0x48, 0xf7, 0xdb};
    const struct object *o = object_of(start->reg[EH_ELF_RIP]);
    for (int back = 1; o && strncmp(o->name, "libc.so", 7) == 0 && back < 0xeb; back++)
        if (memcmp(pc - back, mpn, sizeof mpn) == 0) {
            *what = "wrong-table-glibc-mpn";
            return NONE_RIGHT;
        }
    return 0;
}

/* check_wrong_table compares the first step with libunwind's and, as far as it is
 * right, with what is known. */
static void check_wrong_table(const eh_elf_regs_t *start, uint32_t right, const struct known *known)
{
    const uint32_t both = 1u << EH_ELF_RIP | 1u << EH_ELF_RSP | 0xf000;
    take_libunwind(start, &other);
    const eh_elf_regs_t *got = &e.frame[1];
    bool same = e.len > 1 && (other.len > 1 || got->reg[EH_ELF_RIP] == 0);
    for (int r = 0; same && r < EH_ELF_NUM_REGS; r++) {
        if (both & 1u << r && other.len > 1)
            same = got->valid & 1u << r && got->reg[r] == other.frame[1].reg[r];
        if (right & 1u << r && known)
            same = same && got->reg[r] == known->frame[0].reg[r];
    }
    if (!same)
        differ("a frame whose table is wrong", 1, &e, "libunwind", &other);
}

/*
 * check_stack takes the stack that begins at start and compares: single steps
 * with whole walks, with libunwind, with libgcc where asked, and with the frames
 * that are known: frame[i] of those is frame i+1 of the stack. It returns whether
 * what the stack is compared with goes all the way.
 */
bool check_stack(const eh_elf_regs_t *start, const struct known *known, bool libgcc)
{
    struct tally *t = now();
    take_eh_elf(start, MEM_WINDOW, &e);
    t->stacks++;
    const char *what;
    uint32_t right = wrong_table(start, &what);
    if (right) {
        count(what, 1);
        check_wrong_table(start, right, known);
        return false;
    }
    if (e.end != expected_end) {
        take_libunwind(start, &other);
        differ("the end", e.len - 1, &e, "libunwind", &other);
    }
    check_walks(start);
    check_sample(start);

    other.len = 0;
    for (int i = 0; known && i < known->len; i++) {
        const eh_elf_regs_t *want = &known->frame[i], *got = &e.frame[i + 1];
        bool same = i + 1 < e.len && !(want->valid & ~got->valid);
        for (int r = 0; r < EH_ELF_NUM_REGS; r++)
            same = same && (!(want->valid & 1u << r) || want->reg[r] == got->reg[r]);
        if (!same) {
            other.frame[0] = *start;
            memcpy(other.frame + 1, known->frame, (size_t)known->len * sizeof known->frame[0]);
            other.len = known->len + 1;
            differ("a known frame", i + 1, &e, "known", &other);
            return true;
        }
        t->known++;
    }

    take_libunwind(start, &other);
    compare("libunwind", (1u << EH_ELF_NUM_REGS) - 1, &t->frames, &t->registers);
    bool stops = stops_at_ms_abi();
    if (stops)
        count("libunwind-stops-at-ms_abi", 1);

    if (libgcc || stops) {
        if (!take_libgcc(start, &other))
            fail("libgcc does not find the frame");
        else
            compare("libgcc", SAVED_BITS, &t->libgcc, NULL);
    }
    return true;
}
