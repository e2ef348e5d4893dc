/* An exception on a stack of 8 KB, the first since an object was loaded. */
#include <dlfcn.h>
#include <stdio.h>
#include <sys/mman.h>
#include <ucontext.h>

enum { SIZE = 8192, GUARD = 1 << 20 };
static ucontext_t outside, inside;
static int caught;

extern "C" __attribute__((noinline)) void thrower(int n)
{
    if (n)
        throw n;
}

static void body()
{
    try {
        thrower(3);
    } catch (int n) {
        caught = n;
    }
}

int main()
{
    try {
        thrower(1); /* all functions are bound */
    } catch (int) {
    }
    if (!dlopen("libresolv.so.2", RTLD_NOW))
        return puts(dlerror());
    char *memory = (char *)mmap(nullptr, GUARD + SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || mprotect(memory + GUARD, SIZE, PROT_READ | PROT_WRITE) != 0 || getcontext(&inside) != 0)
        return 1;
    inside.uc_stack.ss_sp = memory + GUARD;
    inside.uc_stack.ss_size = SIZE;
    inside.uc_link = &outside;
    makecontext(&inside, body, 0);
    swapcontext(&outside, &inside);
    printf("caught %d\n", caught);
}
