/* What the files of the program stacks share. */
#ifndef STACKS_H
#define STACKS_H

#define NOINLINE __attribute__((noinline))

extern volatile long sink;
extern void (*bottom)(void); /* what the innermost function of a chain calls */
void chain(int depth);

/* trouble.c */
void overflow(void);
void forks(void);
void forbid_readv(void);

#endif
