/*
 * Two programs (-DPAD=first, -DPAD=second) that differ in the landing pad of one function alone: their code and
 * .eh_frame are the same. The pads say which they are.
 */
#include <stdio.h>
#include <unwind.h>

extern "C" {
void calls(void);
void throws(void) { throw 1; }
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
}

#define TEXT(x) #x
#define LITERAL(x) TEXT(x)

__asm__(".text\n"
        "calls: .cfi_startproc\n"
        "  .cfi_personality 0x9b, DW.ref.__gxx_personality_v0\n"
        "  .cfi_lsda 0x1b, .Larea\n"
        "  sub $8, %rsp\n"
        "  .cfi_def_cfa_offset 16\n"
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

int main()
{
    try {
        calls();
    } catch (int n) {
        printf("caught %d\n", n);
    }
}
