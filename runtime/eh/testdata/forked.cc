// Children that throw, of a process whose other thread loads and unloads a library (its path is the second argument)
// and, with "throw" as the third, throws after each: a child has that thread's locks, and no thread that releases them.
// A child that waits for one is ended.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <stdexcept>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

static std::atomic<bool> stop;

__attribute__((noinline)) static int thrower(int n)
{
    if (n == 0)
        throw std::runtime_error("thrown");
    return thrower(n - 1) + 1;
}

static int caught(int n)
{
    try {
        return thrower(n);
    } catch (std::runtime_error &) {
        return -1;
    }
}

static int child(const char *library)
{
    alarm(60);
    int n = caught(5) + caught(5);
    if (library)
        if (void *h = dlopen(library, RTLD_NOW)) { /* loaded or not, it is in the list of objects */
            dlclose(h);
            n += caught(5);
        }
    return n;
}

int main(int, char **argv)
{
    int count = atoi(argv[1]), good = 0;
    bool throws = argv[3] && strcmp(argv[3], "throw") == 0;
    caught(3);
    std::thread loads([&] {
        while (!stop) {
            void *h = dlopen(argv[2], RTLD_NOW);
            if (throws)
                caught(2);
            if (h)
                dlclose(h);
            if (throws)
                caught(2);
        }
    });
    for (int i = 0; i < count; i++) {
        pid_t pid = fork();
        if (pid == 0)
            _exit(child(nullptr) == -2 ? 7 : 8);
        int status;
        if (waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 7)
            good++;
        else
            printf("child %d: status %x\n", i, status);
    }
    stop = true;
    loads.join();
    if (pid_t pid = fork()) { /* without another thread, the child loads, too */
        int status;
        waitpid(pid, &status, 0);
        printf("%d of %d, %x\n", good, count, status);
        return 0;
    }
    _exit(child(argv[2]) == -3 ? 0 : 9);
}
