// Types made at run time, as by compilers in a program, one after the other at the same address: each is caught by its
// own base. Then exceptions, in a sandbox that allows writing, waking other threads, and ending.
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <cxxabi.h>
#include <initializer_list>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <typeinfo>
#include <unistd.h>
struct A { virtual ~A() {} int n = 1; };
struct B { virtual ~B() {} int n = 2; };
struct OfA : A {};
struct OfB : B {};
static void *place;
__attribute__((noinline)) static void throws(const void *object, size_t size)
{
	void *e = abi::__cxa_allocate_exception(size);
	std::memcpy(e, object, size);
	abi::__cxa_throw(e, static_cast<std::type_info *>(place), nullptr);
}
__attribute__((noinline)) static const char *caught(const void *object, size_t size)
{
	try {
		throws(object, size);
	} catch (const A &a) {
		return a.n == 1 ? "A\n" : "B as A\n";
	} catch (const B &b) {
		return b.n == 2 ? "B\n" : "A as B\n";
	}
	return "no\n";
}
static void make(const std::type_info &like)
{
	const char *name = "4Made";
	std::memcpy(place, &like, 3 * sizeof(void *)); // abi::__si_class_type_info
	std::memcpy(static_cast<const char **>(place) + 1, &name, sizeof name);
}
static bool sandbox()
{
	sock_filter f[16] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
	unsigned short n = 1;
	for (int call : {SYS_write, SYS_futex, SYS_exit_group}) {
		f[n++] = BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(call), 0, 1);
		f[n++] = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	}
	f[n++] = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
	sock_fprog p = {n, f};
	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &p) == 0;
}
int main()
{
	OfA a;
	OfB b;
	place = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	std::puts("types");
	std::fflush(stdout);
	if (!sandbox()) {
		std::puts("no sandbox");
		return 1;
	}
	for (int round = 0; round < 4; round++) {
		const char *as = "";
		make(round % 2 ? typeid(OfB) : typeid(OfA));
		for (int i = 0; i < 200; i++)
			as = round % 2 ? caught(&b, sizeof b) : caught(&a, sizeof a);
		if (write(1, as, std::strlen(as)) < 0)
			_exit(1);
	}
	_exit(0);
}
