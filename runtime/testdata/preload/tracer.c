/* A library that a launcher puts into a program, as heaptrack does: it takes a stack of each call of puts. */
#include <dlfcn.h>
#include <execinfo.h>
#include <stdio.h>

int puts(const char *text)
{
    void *pcs[64];
    int (*original)(const char *);
    *(void **)&original = dlsym(RTLD_NEXT, "puts");
    backtrace(pcs, 64);
    return original(text);
}
