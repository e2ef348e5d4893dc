/*
 * The program jit: code of the program's own, mapped a second time. Its tables hold there,
 * too; it has no frame pointer to be left by.
 */
#include <fcntl.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "check.h"
#include "jit.h"

enum { PAGE = 4096, FRAMES = 64 };

static void *pcs[FRAMES];
static size_t num;
static int status, guessed;

static void take(int arg)
{
    ehu_cursor_t c;
    (void)arg;
    num = ehu_backtrace(pcs, FRAMES);
    ehu_cursor_init(&c);
    while ((status = ehu_step(&c)) == 1)
        ;
    guessed = ehu_is_guessed(&c);
    num_stacks++;
    num_frames += (long)num;
}

/* It refers to nothing by its own address, and keeps something else in rbp. */
__attribute__((noinline, noclone, aligned(64), optimize("no-stack-protector"))) static void to_copy(void (*fn)(int),
    int arg)
{
    char buffer[200];
    register long other __asm__("rbp") = 12345;
    __asm__ volatile("" : "+r"(other) : "r"(buffer) : "memory");
    fn(arg);
    __asm__ volatile("" : "+r"(other) : "r"(buffer) : "memory");
}

static int text_of_program(struct dl_phdr_info *info, size_t size, void *arg)
{
    uint64_t *origin = arg; /* where the file's first byte would be mapped, by its executable segment */
    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_LOAD && info->dlpi_phdr[i].p_flags & PF_X)
            *origin = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr - info->dlpi_phdr[i].p_offset;
    return 1;
}

void through_copy(void)
{
    void *first[FRAMES];
    uint64_t origin = 0, at = (uint64_t)(uintptr_t)to_copy & ~(uint64_t)(PAGE - 1);
    code_fn *volatile run = to_copy;
    dl_iterate_phdr(text_of_program, &origin);
    int fd = open("/proc/self/exe", O_RDONLY);
    char *copy = mmap(NULL, 2 * PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, (off_t)(at - origin));
    if (copy == MAP_FAILED)
        abort();
    close(fd);
    uint64_t shift = (uint64_t)(uintptr_t)copy - at;
    size_t expected = 0;
    for (volatile int i = 0; i < 2; i++) { /* one call of both */
        run(take, 0);
        check(status == 0 && !guessed, "%s: status %d, guessed %d", i == 0 ? "the original" : "the copy", status,
            guessed);
        if (i == 0) {
            memcpy(first, pcs, sizeof first);
            expected = num;
            run = (code_fn *)((uintptr_t)to_copy + shift);
        }
    }
    check(num == expected && num > 3, "%zu frames, %zu in the original", num, expected);
    for (size_t i = 1; i < num; i++)
        check((char *)pcs[i] == (char *)first[i] + (i == 1 ? shift : 0), "frame %zu: %p, %p in the original", i, pcs[i],
            first[i]);
    munmap(copy, 2 * PAGE);
}
