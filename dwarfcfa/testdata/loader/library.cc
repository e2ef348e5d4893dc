/* A library whose tables the loader relocates. */
#include <cstdio>
#include <stdexcept>
struct D { const char *name; ~D() { std::puts(name); } };
extern "C" void unknown(int) __attribute__((weak));
__attribute__((noinline)) void thrower(int x)
{
    D d{"thrower"};
    if (x)
        throw std::invalid_argument("bad");
    if (unknown)
        unknown(x);
}
extern "C" int caught(int x)
{
    D d{"caught"};
    try {
        thrower(x);
    } catch (const std::bad_alloc &) {
        return 1;
    } catch (const std::invalid_argument &) {
        return 2;
    }
    return 3;
}
