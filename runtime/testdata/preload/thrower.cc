// What throws loads and unloads: exceptions go through it, and out of it.
#include <stdexcept>

#include "throws.h"

namespace {
volatile int cleaned;
struct Cleanup {
    ~Cleanup() { cleaned = cleaned + 1; }
};
} // namespace

extern "C" pass_fn pass;

extern "C" __attribute__((noinline)) void pass(int what, void (*callback)(int))
{
    Cleanup c;
    try {
        if (what == 1)
            throw std::runtime_error("plugin");
        if (what == 2)
            throw Special(2);
        callback(4);
    } catch (const Special &) {
        Cleanup again;
        throw;
    }
}
