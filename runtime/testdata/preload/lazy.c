/*
 * Loads and unloads a library (argv[1]) many times, then takes stacks where the loader's lock is not free: in a
 * callback of dl_iterate_phdr, and while another thread is in one that ends only after the stack.
 */
#include <dlfcn.h>
#include <execinfo.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static pthread_barrier_t inside, taken;

__attribute__((noinline)) static void stack(const char *where)
{
    void *pcs[64];
    printf("%s: %d frames\n", where, backtrace(pcs, 64));
}

static int in_callback(struct dl_phdr_info *info, size_t size, void *arg)
{
    (void)info;
    (void)size;
    stack(arg);
    return 1;
}

static int holding(struct dl_phdr_info *info, size_t size, void *arg)
{
    (void)info;
    (void)size;
    (void)arg;
    pthread_barrier_wait(&inside);
    pthread_barrier_wait(&taken);
    return 1;
}

static void *holder(void *arg)
{
    dl_iterate_phdr(holding, NULL);
    return arg;
}

static void *load(const char *path)
{
    void *handle = dlopen(path, RTLD_NOW);
    if (!handle)
        abort();
    return handle;
}

int main(int argc, char **argv)
{
    pthread_t thread;
    if (argc != 2)
        return 2;
    alarm(60); /* a stack that waits for the lock waits for ever */
    for (int i = 0; i < 100; i++)
        dlclose(load(argv[1]));
    stack("first");
    void *handle = load(argv[1]);
    dl_iterate_phdr(in_callback, "in a callback");
    pthread_barrier_init(&inside, NULL, 2);
    pthread_barrier_init(&taken, NULL, 2);
    if (pthread_create(&thread, NULL, holder, NULL) != 0)
        return 3;
    pthread_barrier_wait(&inside);
    stack("beside a callback");
    pthread_barrier_wait(&taken);
    pthread_join(thread, NULL);
    stack("after it");
    dlclose(handle);
    stack("last");
}
