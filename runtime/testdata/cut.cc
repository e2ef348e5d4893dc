/* The file of a plug-in that is not called, its first argument, is cut to the size of the second between dlopen and the first stack. */
#include <dlfcn.h>
#include <execinfo.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

__attribute__((noinline)) static int throws(int depth)
{
    void *pcs[64];
    if (depth == 0) {
        printf("frames %d\n", backtrace(pcs, 64));
        throw 1;
    }
    int n = throws(depth - 1);
    asm volatile("");
    return n;
}

int main(int, char **argv)
{
    if (!dlopen(argv[1], RTLD_NOW) || truncate(argv[1], atol(argv[2])) != 0 || !dlopen("libanl.so.1", RTLD_NOW))
        return 2;
    try {
        throws(3);
    } catch (int n) {
        printf("caught %d\n", n);
    }
    fflush(stdout);
    _exit(0); /* the plug-in's destructors are gone, too */
}
