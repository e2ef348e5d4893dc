// Asks libstdc++'s personality routine about pcs of a file that is not loaded: oracle FILE, which gets lines of
// function, area and pc, link-time addresses in hexadecimal, and answers each with the reasons of both phases, the
// landing pad and the selector. The context is our own: the routine calls the accessors below instead of libgcc's.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct Context { unsigned long function, lsda, pc, landed, rax, rdx; };
struct Exception { unsigned long long kind; void *cleanup; unsigned long p1, p2; } __attribute__((aligned(16)));
extern "C" {
unsigned long _Unwind_GetIPInfo(Context *c, int *before) { *before = 1; return c->pc; }
unsigned long _Unwind_GetIP(Context *c) { return c->pc + 1; }
void _Unwind_SetIP(Context *c, unsigned long pc) { c->landed = pc; }
void _Unwind_SetGR(Context *c, int r, unsigned long v) { (r == 0 ? c->rax : c->rdx) = v; }
unsigned long _Unwind_GetRegionStart(Context *c) { return c->function; }
unsigned long _Unwind_GetLanguageSpecificData(Context *c) { return c->lsda; }
unsigned long _Unwind_GetTextRelBase(Context *) { return 0; }
unsigned long _Unwind_GetDataRelBase(Context *) { return 0; }
int __gxx_personality_v0(int, int, unsigned long long, Exception *, Context *);
}

int main(int, char **argv)
{
	int fd = open(argv[1], O_RDONLY);
	struct stat st;
	if (fd < 0 || fstat(fd, &st) != 0)
		return 1;
	auto *file = static_cast<char *>(mmap(nullptr, st.st_size, PROT_READ, MAP_PRIVATE, fd, 0));
	auto *head = reinterpret_cast<Elf64_Ehdr *>(file);
	auto *ph = reinterpret_cast<Elf64_Phdr *>(file + head->e_phoff);
	unsigned long end = 0, low = -1ul;
	for (int i = 0; i < head->e_phnum; i++)
		if (ph[i].p_type == PT_LOAD) {
			end = ph[i].p_vaddr + ph[i].p_memsz > end ? ph[i].p_vaddr + ph[i].p_memsz : end;
			low = ph[i].p_vaddr < low ? ph[i].p_vaddr : low;
		}
	// Where it was linked to, if that is not 0: absolute pointers are then as they are.
	void *want = low ? reinterpret_cast<void *>(low & -4096ul) : nullptr;
	auto *image = static_cast<char *>(mmap(want, end - (low & -4096ul), PROT_READ | PROT_WRITE,
	    MAP_PRIVATE | MAP_ANONYMOUS | (want ? MAP_FIXED_NOREPLACE : 0), -1, 0));
	if (image == MAP_FAILED)
		return 1;
	unsigned long bias = reinterpret_cast<unsigned long>(image) - (low & -4096ul);
	for (int i = 0; i < head->e_phnum; i++)
		if (ph[i].p_type == PT_LOAD)
			std::memcpy(reinterpret_cast<void *>(bias + ph[i].p_vaddr), file + ph[i].p_offset, ph[i].p_filesz);
	// What the loader would write is not there: a type is 0, which catches all.
	for (int i = 0; i < head->e_phnum; i++)
		if (ph[i].p_type == PT_LOAD && ph[i].p_flags & PF_W)
			std::memset(reinterpret_cast<void *>(bias + ph[i].p_vaddr), 0, ph[i].p_filesz);
	unsigned long function, lsda, pc;
	while (std::scanf("%lx %lx %lx", &function, &lsda, &pc) == 3) {
		Exception e = {0x5445535454455354ull, nullptr, 0, 0};
		Context c = {function + bias, lsda + bias, pc + bias, 0, 0, 0};
		int search = __gxx_personality_v0(1, 1, e.kind, &e, &c), clean = 0;
		if (search == 8) {
			clean = __gxx_personality_v0(1, 2, e.kind, &e, &c);
		} else {
			// A handler, or the end of the program, which is not to be called.
			Context probe = c;
			std::fflush(stdout);
			clean = 0;
			c = probe;
		}
		std::printf("%d %d %lx %ld\n", search, clean, c.landed ? c.landed - bias : 0, static_cast<long>(c.rdx));
	}
}
