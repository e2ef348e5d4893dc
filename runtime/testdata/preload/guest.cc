// A C++ library that is loaded into a program that has no libgcc in its scope: it throws, and
// takes its stack with its own libgcc, which is in no scope but the library's.
#include <unwind.h>

extern "C" int guest(int depth);

namespace {
_Unwind_Reason_Code count(_Unwind_Context *context, void *arg)
{
    *static_cast<int *>(arg) += _Unwind_GetIP(context) != 0;
    return _URC_NO_REASON;
}

__attribute__((noinline)) int deep(int depth)
{
    if (depth == 0)
        throw 1;
    return deep(depth - 1) + 1;
}
} // namespace

extern "C" __attribute__((noinline)) int guest(int depth)
{
    int frames = 0;
    try {
        deep(depth);
    } catch (int) {
        _Unwind_Backtrace(count, &frames);
    }
    return frames;
}
