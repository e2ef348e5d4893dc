#include <ehunwind.h>
#include <stdio.h>

__attribute__((noinline)) static int report(void) {
    void *pcs[64];
    size_t n = ehu_backtrace(pcs, 64); /* may be called in a signal handler */
    for (size_t i = 0; i < n; i++)
        printf("%p\n", pcs[i]);
    if (n < 2) {
        fprintf(stderr, "no tables were found: run 'ehasm build --cache --deps backtrace' first\n");
        return 1;
    }
    return 0;
}

int main(void) {
    ehu_init();
    return report();
}
