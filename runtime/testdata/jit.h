/* What the files of the program jit share. */
#ifndef JIT_H
#define JIT_H

typedef void code_fn(void (*fn)(int), int arg);
extern code_fn *code;

void through_copy(void); /* copy.c */

#endif
