/* The library that calls dlopen for the program host. */
#include <dlfcn.h>

void *open_guest(const char *path);
void *open_guest(const char *path)
{
    void *volatile handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    return handle;
}
