/*
 * A C program that loads guest.so by what its argument says, and prints how many frames
 * that found: host PATH. A name without a slash is found through the program's own
 * DT_RUNPATH, which does not apply to calls by another object.
 */
#include <dlfcn.h>
#include <stdio.h>

#ifdef BY_LIBRARY /* through whose DT_RPATH a name is found */
void *open_guest(const char *path);
#else
static void *open_guest(const char *path) { return dlopen(path, RTLD_NOW | RTLD_LOCAL); }
#endif

int main(int argc, char **argv)
{
    int (*guest)(int);
    void *handle = argc > 1 ? open_guest(argv[1]) : NULL;
    if (!handle) {
        printf("%s\n", dlerror());
        return 1;
    }
    *(void **)&guest = dlsym(handle, "guest");
    int n = guest(3);
    printf("frames=%d\n", n + guest(2) - n);
    dlclose(handle);
    return n < 3;
}
