/* Linked with AddressSanitizer: throws through frames whose redzones it knows, then does what its arguments say. */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <execinfo.h>
#include <stdexcept>

#ifdef OWN_DEFAULTS
extern "C" const char *__asan_default_options() { return "detect_leaks=0"; }
#endif

__attribute__((noinline)) static int thrower(int n)
{
    volatile char room[300];
    memset(const_cast<char *>(room), n, sizeof room);
    if (n == 0)
        throw std::runtime_error("thrown");
    try {
        return thrower(n - 1) + room[n];
    } catch (std::logic_error &) {
        return 1;
    } catch (...) {
        throw;
    }
}

__attribute__((noinline)) static int fill(int n)
{
    volatile char room[4000]; /* over the redzones of the frames that are gone */
    for (int i = 0; i < 4000; i++)
        room[i] = char(i + n);
    return room[n];
}

int main(int argc, char **argv)
{
    void *pcs[16];
    int frames = backtrace(pcs, 16), caught = 0;
    for (int i = 0; i < 100; i++)
        try {
            thrower(i % 20);
        } catch (std::runtime_error &) {
            caught += 1 + 0 * fill(i);
        }
    printf("%s frames, %d caught\n", frames > 2 ? "some" : "few", caught);
    fflush(stdout);
    volatile char *heap = static_cast<char *>(malloc(10));
    if (argc > 1 && strcmp(argv[1], "overflow") == 0)
        heap[10] = 1;
    free(const_cast<char *>(heap));
    return 0;
}
