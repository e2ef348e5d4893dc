/* What the files of the programs jit and race share. */
#ifndef JIT_H
#define JIT_H

#include <stdbool.h>

typedef void code_fn(void (*fn)(int), int arg);
extern code_fn *code;

void through_copy(void); /* copy.c */

/* forbid.c */
bool no_query(void);
void forbid_query(void);

#endif
