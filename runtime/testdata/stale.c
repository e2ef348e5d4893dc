/*
 * A program whose frames have a size that is a matter of the compilation (-DROOM), while its
 * file keeps its own. With an argument it prints the XXH64 of the first 0 to 99 bytes of 0, 1, 2...
 */
#include <inttypes.h>
#include <stdio.h>

#include "ehunwind.h"

#ifdef HASHES
uint64_t ehu_xxh64_(const void *bytes, size_t n);
#endif

__attribute__((noinline)) int leaf(void)
{
    void *pcs[64];
    size_t n = ehu_backtrace(pcs, 64);
    ehu_stats_t s;
    ehu_stats(&s);
    printf("frames=%zu eh_elfs=%d\n", n, (int)s.eh_elfs);
    return (int)n;
}

__attribute__((noinline)) int middle(int k)
{
    volatile char room[ROOM];
    room[k % ROOM] = 1;
    int n = leaf();
    return n + room[k % ROOM];
}

__attribute__((noinline)) int top(int k)
{
    volatile char room[ROOM / 2];
    room[0] = room[k % 50] = 1;
    int n = middle(k);
    return n + room[0];
}

int main(int argc, char **argv)
{
    (void)argv;
    ehu_init();
#ifdef HASHES
    unsigned char bytes[100];
    for (int i = 0; i < 100; i++)
        bytes[i] = (unsigned char)i;
    for (size_t n = 0; n < 100; n++)
        printf("%" PRIx64 "\n", ehu_xxh64_(bytes, n));
#endif
    return top(argc) == 0;
}
