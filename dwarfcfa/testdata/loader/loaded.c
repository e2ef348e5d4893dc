/* loaded loads each library that a line of its input names, in a child, and prints what is then in memory: "PATH ADDRESS SIZE..."
 * gives the load bias and the bytes of each range of link-time addresses, in hexadecimal, or "-" if the library does
 * not load. With a size of 0, it gives the link-time address of the FDE that libgcc finds for a pc; 0: none. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

const void *_Unwind_Find_FDE(void *pc, void *bases);

int main(void)
{
    static char line[1 << 16];
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    while (fgets(line, sizeof line, stdin)) {
        pid_t child = fork();
        if (child == 0) {
            alarm(5);
            freopen("/dev/null", "w", stderr);
            void *library = dlopen(strtok(line, " \n"), RTLD_NOW | RTLD_LOCAL);
            struct link_map *map;
            if (!library || dlinfo(library, RTLD_DI_LINKMAP, &map) != 0)
                _exit(1);
            static char out[1 << 20];
            char *to = out + sprintf(out, "%lx", (unsigned long)map->l_addr);
            for (char *address; (address = strtok(NULL, " \n"));) {
                unsigned char *from = (unsigned char *)(map->l_addr + strtoul(address, NULL, 16));
                unsigned long n = strtoul(strtok(NULL, " \n"), NULL, 16);
                *to++ = ' ';
                if (n == 0) {
                    void *bases[3];
                    const char *fde = _Unwind_Find_FDE(from, bases);
                    to += sprintf(to, "%016lx", fde ? (unsigned long)fde - map->l_addr : 0);
                }
                for (; n > 0; n--)
                    to += sprintf(to, "%02x", *from++);
            }
            puts(out);
            fflush(stdout);
            _exit(0);
        }
        int status;
        if (child < 0 || waitpid(child, &status, 0) < 0)
            return 1;
        if (status != 0)
            puts("-");
        fflush(stdout);
    }
    return 0;
}
