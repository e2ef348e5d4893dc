// Calls malloc, openat and nanosleep known numbers of times, in itself, a thread and a child. With an argument it waits
// for a line on standard input first, and with "forever" it goes on calling malloc.
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline))

static void *volatile kept;

NOINLINE void take(int n) {
	for (int i = 0; i < n; i++) {
		kept = malloc(24 + i);
		free(kept);
	}
}

NOINLINE void look(int n) {
	for (int i = 0; i < n; i++)
		close(open("/dev/null", i % 2 ? O_WRONLY : O_RDONLY));
}

NOINLINE void rest(int n) {
	for (int i = 0; i < n; i++)
		nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
}

NOINLINE int deep(int n) {
	if (n > 0)
		return deep(n - 1) + 1;
	take(300);
	look(100);
	rest(20);
	return 0;
}

static void *thread(void *unused) {
	deep(10);
	return unused;
}

int main(int argc, char **argv) {
	if (argc > 1 && !strcmp(argv[1], "forever"))
		for (;;)
			take(100), usleep(1000);
	if (argc > 1)
		getchar();
	pthread_t t;
	pthread_create(&t, NULL, thread, NULL);
	pthread_join(t, NULL);
	pid_t child = fork();
	deep(child ? 20 : 30);
	if (child)
		waitpid(child, NULL, 0);
	return 0;
}
