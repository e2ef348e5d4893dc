/*
 * Objects that differ in their tables alone, or nearly: -DROOM is the size of a frame, -DPAD=first or second a landing
 * pad. As a program it says which pad an exception came to, and how many frames a stack has. With arguments it does so
 * in a plug-in: before each time that it is loaded, the next file is written into its place.
 */
#include <dlfcn.h>
#include <execinfo.h>
#include <stdio.h>
#include <stdlib.h>
#include <unwind.h>

extern "C" {
void calls(void);
void throws(void)
{
    void *pcs[64];
    printf("frames %d\n", backtrace(pcs, 64));
    throw 1;
}
void first(_Unwind_Exception *e)
{
    puts("first");
    _Unwind_Resume(e);
}
void second(_Unwind_Exception *e)
{
    puts("second");
    _Unwind_Resume(e);
}
void work(void)
{
    try {
        calls();
    } catch (int n) {
        printf("caught %d\n", n);
    }
}
}

#define TEXT(x) #x
#define LITERAL(x) TEXT(x)

__asm__(".text\n"
        "calls: .cfi_startproc\n"
        "  .cfi_personality 0x9b, DW.ref.__gxx_personality_v0\n"
        "  .cfi_lsda 0x1b, .Larea\n"
        "  sub $8 + " LITERAL(ROOM) ", %rsp\n"
        "  .cfi_def_cfa_offset 16 + " LITERAL(ROOM) "\n"
        ".Lcall: call throws@PLT\n"
        ".Lreturn: ud2\n"
        ".Lfirst: mov %rax, %rdi\n"
        "  call first@PLT\n"
        ".Lsecond: mov %rax, %rdi\n"
        "  call second@PLT\n"
        ".Lafter: ud2\n"
        "  .cfi_endproc\n"
        ".section .gcc_except_table, \"a\", @progbits\n"
        ".Larea: .byte 0xff, 0xff, 1\n"
        "  .uleb128 .Lend - .Lbegin\n"
        ".Lbegin: .uleb128 .Lcall - calls\n"
        "  .uleb128 .Lreturn - .Lcall\n"
        "  .uleb128 .L" LITERAL(PAD) " - calls\n"
        "  .uleb128 0\n"
        "  .uleb128 .Lfirst - calls, .Lafter - .Lfirst, 0, 0\n"
        ".Lend: .text\n");

#ifdef MORE
extern "C" int more(int x) { return x + 1; }
#endif
#ifdef STILL_MORE
extern "C" int still_more(int x) { return x + 2; }
#endif

#ifndef PLUGIN
static void copy(const char *to, const char *from)
{
    static char bytes[1 << 20];
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    size_t n = in && out ? fread(bytes, 1, sizeof bytes, in) : 0;
    if (n == 0 || n == sizeof bytes || fwrite(bytes, 1, n, out) != n || fclose(out) != 0 || fclose(in) != 0)
        abort();
}

int main(int argc, char **argv)
{
    if (argc == 1)
        work();
    void *place = nullptr;
    for (int i = 2; i < argc; i++) {
        copy(argv[1], argv[i]);
        void *plugin = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
        void *function = plugin ? dlsym(plugin, "work") : nullptr;
        if (!function)
            return 2;
        if (place && place != function)
            puts("elsewhere");
        place = function;
        ((void (*)())function)();
        if (dlclose(plugin) != 0 || dlopen(argv[1], RTLD_NOW | RTLD_NOLOAD))
            return 3;
    }
}
#endif
