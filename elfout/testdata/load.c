/* Loads the eh_elf argv[1] and unwinds a made-up stack with it; with a second
   argument, also prints the lines of /proc/self/maps that name the file. Built against
   any libc, so it declares what it needs itself; -DSTART adds the entry point
   where the compiler has no start files for that libc. */
typedef unsigned long word;
typedef struct { word reg[17]; unsigned valid; unsigned short exact; short status; } regs_t;
typedef struct { word lo, size; const void *bytes; int (*read)(void *, word, word *); void *arg; } memory_t;
typedef struct { unsigned char flags; word rip, rsp, rbp, rbx; } context_t;

void *dlopen(const char *, int);
void *dlsym(void *, const char *);
char *dlerror(void);
int dlclose(void *);
int printf(const char *, ...);
void *fopen(const char *, const char *);
char *fgets(char *, int, void *);
int fclose(void *);
char *strstr(const char *, const char *);

static word stack[] = {0x1100, 7, 0x1002, 8, 0x9999, 9};

__attribute__((noinline)) int read_word(void *arg, word addr, word *out) {
	(void)arg;
	*out = *(word *)addr;
	return 0;
}

__attribute__((noinline)) void loaded(void) { __asm__ volatile(""); }

static void print_maps(const char *name) {
	static char line[8192];
	void *f = fopen("/proc/self/maps", "r");
	while (f && fgets(line, sizeof line, f))
		if (strstr(line, name))
			printf("%s", line);
	if (f)
		fclose(f);
}

int main(int argc, char **argv) {
	void *h = argc > 1 ? dlopen(argv[1], 2) : 0;
	if (!h) {
		printf("dlopen: %s\n", argc > 1 ? dlerror() : "no argument");
		return 1;
	}
	word (*walk)(regs_t *, const memory_t *, word, word *, word) = dlsym(h, "_eh_elf_walk");
	context_t (*step)(context_t, word, word (*)(word)) = dlsym(h, "_eh_elf");
	if (!walk || !step || dlsym(h, "eh_elf_load") || dlsym(h, "no such name")) {
		printf("dlsym\n");
		return 1;
	}
	dlerror();
	loaded();
	regs_t r = {.valid = 0x1ffff, .exact = 1};
	r.reg[16] = 0x1234;
	r.reg[7] = (word)stack;
	memory_t m = {.read = read_word};
	word pcs[9];
	word n = walk(&r, &m, 0, pcs, 9);
	printf("walk %lu status %d pcs %lx %lx %lx rbp %lx\n", n, r.status, pcs[0], pcs[1], pcs[2], r.reg[6]);
	context_t c = {0, 0x1234, (word)stack, 3, 4};
	c = step(c, 0x1234, 0);
	printf("step %x rip %lx rsp+%ld rbp %lx rbx %lx\n", c.flags, c.rip, c.rsp - (word)stack, c.rbp, c.rbx);
	if (argc > 2)
		print_maps(argv[1]);
	return dlclose(h);
}

#ifdef START
int __libc_start_main(int (*)(int, char **), int, char **, void (*)(void), void (*)(void), void (*)(void));
__attribute__((used)) static void start(long *sp) {
	__libc_start_main((int (*)(int, char **))main, (int)sp[0], (char **)(sp + 1), 0, 0, 0);
}
__asm__(".globl _start\n_start:\n\txor %ebp,%ebp\n\tmov %rsp,%rdi\n\tand $-16,%rsp\n\tcall start\n");
#endif
