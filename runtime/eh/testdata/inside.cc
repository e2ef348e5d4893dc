// Throws while the library looks for eh_elfs of what was loaded: out of an openat of the program's, and out of a
// handler that comes meanwhile, through an object that lies where another one did; and through code that was not
// registered, where an object was.
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <exception>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include "replace.h"
Base::~Base() {}
Other::~Other() {}
static Other keep;
static void (*thrower)();
static int want;
static volatile int inside, wrong, checks;
__attribute__((noinline)) static int caught(void (*f)())
{
	try {
		f();
	} catch (Base &) {
		return 1;
	} catch (Other &) {
		return 2;
	} catch (...) {
		return 3;
	}
	return 0;
}
__attribute__((noinline)) static void check()
{
	checks = checks + 1;
	wrong = wrong + (caught(thrower) != want);
}
static void handler(int) { check(); }
extern "C" int openat(int folder, const char *path, int flags, ...)
{
	va_list args;
	va_start(args, flags);
	int mode = flags & O_CREAT ? va_arg(args, int) : 0;
	va_end(args);
	if (inside == 1) {
		inside = 0;
		check();
	} else if (inside == 2) {
		inside = 0;
		raise(SIGUSR1);
	}
	return static_cast<int>(syscall(SYS_openat, folder, path, flags, mode));
}
// A thread that throws while it holds the loader's lock, and one that has to wait for that to look for eh_elfs.
static volatile int waiting;
static int throws_in_callback(dl_phdr_info *, size_t, void *)
{
	waiting = 1;
	usleep(50000);
	check();
	return 1;
}
static void locked()
{
	waiting = 0;
	std::thread other([] { dl_iterate_phdr(throws_in_callback, nullptr); });
	while (!waiting)
		usleep(100);
	try {
		throw 1;
	} catch (int) {
	}
	other.join();
}
struct Image {
	unsigned char *start, *end, *copy;
	unsigned long address;
};
static int find_image(dl_phdr_info *info, size_t, void *arg)
{
	auto *image = static_cast<Image *>(arg);
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) &p = info->dlpi_phdr[i];
		if (p.p_type != PT_LOAD)
			continue;
		auto *low = reinterpret_cast<unsigned char *>(info->dlpi_addr + p.p_vaddr / 4096 * 4096);
		auto *high = reinterpret_cast<unsigned char *>(info->dlpi_addr + (p.p_vaddr + p.p_memsz + 4095) / 4096 * 4096);
		if (!image->start)
			image->start = low;
		image->end = high;
	}
	if (image->address >= reinterpret_cast<unsigned long>(image->start) &&
	    image->address < reinterpret_cast<unsigned long>(image->end))
		return 1;
	image->start = nullptr;
	return 0;
}
// The bytes of an object that has gone, as if another program had made them: no table says how to unwind them.
static void gone()
{
	void *h = dlopen("./one.so", RTLD_NOW);
	thrower = reinterpret_cast<void (*)()>(dlsym(h, "dl_throw"));
	want = 1;
	for (int i = 0; i < 3; i++)
		check();
	Image image = {nullptr, nullptr, nullptr, reinterpret_cast<unsigned long>(thrower)};
	dl_iterate_phdr(find_image, &image);
	auto size = static_cast<size_t>(image.end - image.start);
	image.copy = static_cast<unsigned char *>(std::malloc(size));
	std::memcpy(image.copy, image.start, size);
	dlclose(h);
	void *p = mmap(image.start, size, PROT_READ | PROT_WRITE | PROT_EXEC,
	    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	if (p != image.start) {
		std::puts("its memory is not free");
		return;
	}
	std::memcpy(image.start, image.copy, size);
	std::printf("came back with %d\n", caught(thrower));
}
int main()
{
	signal(SIGUSR1, handler);
	for (int i = 0; i < 6; i++) {
		void *h = dlopen(i % 2 ? "./two.so" : "./one.so", RTLD_NOW);
		if (!h) {
			std::printf("%s\n", dlerror());
			return 1;
		}
		thrower = reinterpret_cast<void (*)()>(dlsym(h, "dl_throw"));
		want = i % 2 ? 2 : 1;
		inside = i % 3;
		if (i == 3)
			locked();
		for (int k = 0; k < 3; k++)
			check();
		if (inside == 1 || inside == 2) // the system's libgcc opens nothing
			inside = 0, check();
		dlclose(h);
	}
	std::printf("%d wrong\n", wrong);
	std::fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		std::set_terminate([] { _exit(3); });
		gone();
		std::fflush(stdout);
		_exit(0);
	}
	int status = 0;
	waitpid(pid, &status, 0);
	std::printf("through code that has no table: status %#x\n", static_cast<unsigned>(status));
}
