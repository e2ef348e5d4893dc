/* Comparison of stacks with others' (check.c, preload/both.c), and counting what was compared (verdict.c). */
#ifndef CHECK_H
#define CHECK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <ucontext.h>

#include "ehunwind.h"

enum { MAX_FRAMES = 1024 };

/* The stacks of the caller as each has them, frame by frame with registers, and the whole arrays. */
void check_here(void);
/* The same from a context of a signal. */
void check_context(const ucontext_t *context);

void check(bool ok, const char *format, ...) __attribute__((format(printf, 2, 3)));
int summary(const char *name); /* prints the figures; the exit status */

extern bool expect_guesses; /* frames may be guessed: only pcs are compared */
extern int expected_end;     /* what a step at the last frame may also say */
extern bool theirs_may_go_on; /* libunwind may not notice the outermost frame */
extern _Atomic long num_stacks, num_frames, num_registers, num_guessed;

#endif
