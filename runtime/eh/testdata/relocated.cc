/* A program whose tables the loader relocates, by the flags that it is made with; LIBRARY: what throws and catches. */
#include <cstdio>
#include <stdexcept>
#include <execinfo.h>
#include "relocated.h"
#ifdef LIBRARY
struct D { const char *name; ~D() { std::printf("~%s\n", name); } };
__attribute__((noinline)) static void thrower(int x)
{
    D d{"thrower"};
    void *pcs[64];
    if (x > 1)
        throw std::invalid_argument("bad");
    if (x > 0)
        throw x;
    std::printf("%d frames\n", backtrace(pcs, 64) > 3);
}
__attribute__((noinline)) static int inner(int x)
{
    D d{"inner"};
    try {
        thrower(x);
    } catch (const std::bad_alloc &) {
        std::puts("WRONG: bad_alloc");
        return 1;
    } catch (const std::invalid_argument &e) {
        std::printf("right: %s\n", e.what());
        throw;
    }
    return 2;
}
int outer(int x)
{
    D d{"outer"};
    try {
        return inner(x);
    } catch (const std::exception &e) {
        std::printf("again: %s\n", e.what());
    } catch (...) {
        std::puts("any");
    }
    return 3;
}
#endif
#ifdef PROGRAM
static void boom() { throw 42; }
int main()
{
    int sum = 0;
    for (int i = 0; i < 6; i++) {
        sum += outer(i % 3);
        try {
            std::printf("catcher: %d\n", CATCHER(boom));
        } catch (int x) {
            std::printf("outer handler: %d\n", x);
        }
    }
    return sum;
}
#endif
