// Threads that stay where they are: in a lock, in a read, in a handler on an alternate stack, below a
// large stack, in inlined functions. It writes a line when all are there.
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

static int quiet[2], ready[2];
static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;

static void here(void) { (void)!write(ready[1], "x", 1); }

static void wait_forever(void) {
	char c;
	here();
	while (read(quiet[0], &c, 1) != 1)
		;
}

static void *in_read(void *_) {
	prctl(PR_SET_NAME, "reader");
	wait_forever();
	return _;
}

static void *in_lock(void *_) {
	prctl(PR_SET_NAME, "locker");
	here();
	pthread_mutex_lock(&held);
	return _;
}

static void handler(int signal) {
	(void)signal;
	wait_forever();
}

__attribute__((noinline)) static void interrupted(void) {
	raise(SIGUSR1);
	__asm__ volatile("");
}

static void *in_handler(void *_) {
	prctl(PR_SET_NAME, "handler");
	stack_t s = {.ss_sp = malloc(1 << 16), .ss_size = 1 << 16};
	sigaltstack(&s, 0);
	interrupted();
	return _;
}

__attribute__((noinline)) static int deep(int n) {
	volatile char room[4096];
	memset((void *)room, n, sizeof room);
	if (n == 0)
		wait_forever();
	else
		deep(n - 1);
	return room[n];
}

static void *in_deep(void *_) {
	prctl(PR_SET_NAME, "deep");
	deep(300); // 1.2 MB
	return _;
}

static inline __attribute__((always_inline)) void inner(void) { wait_forever(); }
static inline __attribute__((always_inline)) void outer(void) { inner(); }

static void *in_inlined(void *_) {
	prctl(PR_SET_NAME, "a;\x1b[1mb");
	outer();
	return _;
}

int main(int argc, char **argv) {
	void *(*kinds[])(void *) = {in_read, in_lock, in_handler, in_deep, in_inlined};
	struct sigaction a = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
	int more = argc > 1 ? atoi(argv[1]) : 0;
	if (pipe(quiet) || pipe(ready))
		return 1;
	sigaction(SIGUSR1, &a, 0);
	pthread_mutex_lock(&held);
	pthread_attr_t attributes;
	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, 2 << 20);
	for (int i = 0; i < 5 + more; i++) {
		pthread_t t;
		char c;
		if (pthread_create(&t, &attributes, kinds[i < 5 ? i : 0], 0) || read(ready[0], &c, 1) != 1)
			return 1;
	}
	puts("ready");
	fflush(stdout);
	pause();
}
