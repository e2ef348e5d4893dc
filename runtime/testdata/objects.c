/* Says how many objects there are and which way its own stack ends. */
#include <stdio.h>

#include "ehunwind.h"

int main(void)
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
    return n > 100;
}
