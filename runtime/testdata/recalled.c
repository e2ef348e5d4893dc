/* Calls back from a frame of FRAME bytes. */
void plugin_calls(void (*f)(void));
__asm__(".text\n.globl plugin_calls\n.type plugin_calls, @function\nplugin_calls:\n.cfi_startproc\n.rept " FRAME " / 8\npush %rbx\n.cfi_adjust_cfa_offset 8\n.endr\n"
        ".skip 200 - " FRAME " / 8, 0x90\ncall *%rdi\nadd $" FRAME ", %rsp\n.cfi_adjust_cfa_offset -" FRAME "\nret\n.cfi_endproc\n.size plugin_calls, .-plugin_calls\n");
