// What the tracer must follow: threads, signals on both stacks, longjmp, callbacks.
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static jmp_buf env;
static volatile int caught;

static int compare(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

static void handler(int sig) { caught += sig; }

__attribute__((noinline)) static void jump(int n) {
	if (n == 0)
		longjmp(env, 1);
	jump(n - 1);
	caught++; // no tail call
}

static void *work(void *arg) {
	int v[40];
	for (int i = 0; i < 40; i++)
		v[i] = (i * 37 + (int)(long)arg) % 41;
	qsort(v, 40, sizeof *v, compare);
	char b[64];
	snprintf(b, sizeof b, "%d %g", v[3], v[7] / 3.0);
	return 0;
}

int main(void) {
	static char other[1 << 16];
	stack_t alt = {.ss_sp = other, .ss_size = sizeof other};
	sigaltstack(&alt, 0);
	struct sigaction sa = {.sa_handler = handler};
	sigaction(SIGUSR1, &sa, 0);
	sa.sa_flags = SA_ONSTACK;
	sigaction(SIGUSR2, &sa, 0);
	for (int i = 0; i < 3; i++) {
		raise(SIGUSR1);
		raise(SIGUSR2);
		if (!setjmp(env))
			jump(5);
		pthread_t t[2];
		for (long k = 0; k < 2; k++)
			pthread_create(&t[k], 0, work, (void *)k);
		for (int k = 0; k < 2; k++)
			pthread_join(t[k], 0);
	}
	return caught != 3 * (SIGUSR1 + SIGUSR2);
}
