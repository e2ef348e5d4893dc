/* Says how many objects there are and which way its own stack ends; with an argument,
   also the lines of /proc/self/maps that have it. */
#include <stdio.h>
#include <string.h>

#include "ehunwind.h"

static void print_maps(const char *name)
{
    char line[8192];
    FILE *f = fopen("/proc/self/maps", "r");
    while (f && fgets(line, sizeof line, f))
        if (strstr(line, name))
            fputs(line, stdout);
    if (f)
        fclose(f);
}

int main(int argc, char **argv)
{
    ehu_stats_t s;
    ehu_cursor_t c;
    int n = 0;
    if (ehu_refresh() != 1 || ehu_init() != 0) /* the first may come first, and has to obey the same rules */
        return 2;
    ehu_cursor_init(&c);
    while (ehu_step(&c) == 1)
        n++;
    ehu_stats(&s);
    printf("objects=%d eh_elfs=%d\n", (int)s.objects, (int)s.eh_elfs);
    if (argc > 1)
        print_maps(argv[1]);
    return n > 100;
}
