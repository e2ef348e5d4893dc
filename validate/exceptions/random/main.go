// Command random writes C++ programs that throw in random ways: call graphs with cleanups, handlers of related
// types, rethrows, noexcept functions, foreign exceptions, forced unwinding, exception_ptr over threads and odd
// frames. Each program logs what happens and is run in a child process with several seeds, so that the output of a
// file is to be the same with any libgcc.
//
//	random SEED PROGRAMS >file.cc
package main

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
)

const prelude = `#include <alloca.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cxxabi.h>
#include <exception>
#include <pthread.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <unwind.h>
#define NOINLINE __attribute__((noinline))
static unsigned long long state;
static int fuel;
static unsigned draw(unsigned n) { state ^= state << 13; state ^= state >> 7; state ^= state << 17; return (unsigned)(state >> 33) % n; }
static unsigned long hash;
static int events;
static void note(int n) { hash = hash * 1000003 + (unsigned)n; if (++events < 40) std::printf(" %d", n); }
struct Guard { int n; NOINLINE explicit Guard(int n) : n(n) {} NOINLINE ~Guard() { note(n); } };
struct Busy { int n; NOINLINE explicit Busy(int n) : n(n) {} NOINLINE ~Busy() { try { if (draw(2)) throw n; note(n); } catch (int k) { note(-k); } } };
struct T0 { virtual ~T0() {} int a = 10; };
struct T1 : T0 { int b = 11; };
struct T2 : virtual T0 { int c = 12; };
struct T3 : virtual T0 { int d = 13; };
struct T4 : T2, T3 { int e = 14; };
struct T5 { int f = 15; };
struct T6 : private T0 { int g = 16; };
struct T7 : T1, T5 { int h = 17; };
static T4 object;
static void gone(_Unwind_Reason_Code, _Unwind_Exception *e) { note(777); std::free(e); }
static void foreign()
{
	auto *e = static_cast<_Unwind_Exception *>(aligned_alloc(16, sizeof(_Unwind_Exception)));
	std::memset(e, 0, sizeof *e);
	std::memcpy(&e->exception_class, "RANDOM\0\0", 8);
	e->exception_cleanup = gone;
	note(_Unwind_RaiseException(e));
}
NOINLINE static void throws(int what)
{
	Guard g(900 + what);
	note(what);
	switch (what) {
	case 0: throw T0(); case 1: throw T1(); case 2: throw T2(); case 3: throw T3(); case 4: throw T4(); case 5: throw T5(); case 6: throw T6(); case 7: throw T7();
	case 8: throw 8; case 9: throw static_cast<T0 *>(&object); case 10: throw &object; case 11: throw nullptr; case 12: throw 1.5; case 13: foreign(); break;
	case 14: std::rethrow_exception(std::make_exception_ptr(T7())); case 15: pthread_exit(nullptr);
	}
}
// A function: g++ would take most of its time for a thread's templates in each handler.
NOINLINE static void elsewhere()
{
	auto p = std::current_exception();
	std::exception_ptr q;
	std::thread([&] { try { if (p) std::rethrow_exception(p); } catch (...) { q = std::current_exception(); } }).join();
	if (q && draw(2))
		std::rethrow_exception(q);
}
__attribute__((noipa)) static int wide(int, int, int, int, int, int, int what, int) { Guard g(950); throws(what); return what; }
__attribute__((noipa)) static int wider(int, int, int, int, int, int, int, int, int what, int n) { Guard g(951); return wide(1, 2, 3, 4, 5, 6, what, n) + n; }
`

const runner = `static void *body(void *f)
{
	Guard g(800);
	try { note(reinterpret_cast<int (*)(int)>(f)(3)); }
	catch (abi::__forced_unwind &) { note(801); throw; }
	catch (const T0 &t) { note(t.a); }
	catch (int n) { note(n); }
	return nullptr;
}
static void one(int number, unsigned long long seed, int (*f)(int))
{
	std::fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		std::set_terminate([] { std::printf(" terminate %d %lx\n", events, hash); std::fflush(stdout); _exit(9); });
		state = seed * 0x9e3779b97f4a7c15u + number + 1;
		fuel = 60;
		if (seed % 3 == 0) {
			body(reinterpret_cast<void *>(f));
		} else {
			pthread_t t;
			pthread_create(&t, nullptr, body, reinterpret_cast<void *>(f));
			pthread_join(t, nullptr);
		}
		std::printf(" end %d %lx %d\n", events, hash, std::uncaught_exceptions());
		std::fflush(stdout);
		_exit(0);
	}
	int status;
	waitpid(pid, &status, 0);
	std::printf("%d.%llu: %#x\n", number, seed, status);
}
`

type writer struct {
	*bufio.Writer
	r         *rand.Rand
	functions int // of the program
	current   int // the function that is being written
	program   int
	label     int
}

func (w *writer) next() int { w.label++; return w.label % 700 }

func (w *writer) catchType() string {
	return []string{"const T0 &t", "T1 &t", "const T2 &t", "T3 t", "const T4 &t", "T5 &t", "T6 &t", "T7 &t", "int", "T0 *",
		"const T2 *", "const void *",
		"double", "std::nullptr_t", "...", "..."}[w.r.IntN(16)]
}

func (w *writer) statement(depth int) {
	switch k := w.r.IntN(12); {
	case k < 3 && w.current+1 < w.functions:
		callee := w.current + 1 + w.r.IntN(w.functions-w.current-1)
		fmt.Fprintf(w, "if (fuel-- > 0) sum += p%d_%d(sum);\n", w.program, callee)
	case k == 3:
		// recursion
		fmt.Fprintf(w, "if (fuel-- > 0 && draw(8) == 0) sum += p%d_%d(sum & 1);\n", w.program, w.r.IntN(w.functions))
	case k == 4:
		call := []string{"throws(%d)", "sum += wide(1, 2, 3, 4, 5, 6, %d, sum)",
			"sum += wider(1, 2, 3, 4, 5, 6, 7, 8, %d, sum)"}[w.r.IntN(3)]
		fmt.Fprintf(w, "if (draw(%d) == 0) "+call+";\n", 1+w.r.IntN(5), w.r.IntN(15))
	case k == 5:
		fmt.Fprintf(w, "if (draw(%d) == 0) throws((int)draw(%d));\n", 1+w.r.IntN(4), 15+w.r.IntN(2))
	case k == 6:
		fmt.Fprintf(w, "%s g%d(%d);\n", []string{"Guard", "Guard", "Guard", "Busy"}[w.r.IntN(4)], w.next(), w.label%1000)
	case k == 7:
		fmt.Fprintf(w, "note(%d);\n", w.next())
	case k < 11 && depth < 3:
		w.WriteString("try {\n")
		w.block(depth + 1)
		for range 1 + w.r.IntN(3) {
			c := w.catchType()
			fmt.Fprintf(w, "} catch (%s) {\nnote(%d);\n", c, w.next())
			if w.r.IntN(4) == 0 {
				w.block(depth + 1)
			}
			switch w.r.IntN(5) {
			case 0:
				w.WriteString("throw;\n")
			case 1:
				fmt.Fprintf(w, "throws(%d);\n", w.r.IntN(15))
			case 2:
				w.WriteString("elsewhere();\n")
			}
			if c == "..." {
				// Without this a forced unwinding that is swallowed ends the process, the same everywhere.
				break
			}
		}
		w.WriteString("}\n")
	default:
		w.WriteString("sum += (int)draw(3);\n")
	}
}

func (w *writer) block(depth int) {
	w.WriteString("{\n")
	for range 1 + w.r.IntN(4) {
		w.statement(depth)
	}
	w.WriteString("}\n")
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: random SEED PROGRAMS")
		os.Exit(2)
	}
	seed, err := strconv.ParseUint(os.Args[1], 10, 64)
	programs, err2 := strconv.Atoi(os.Args[2])
	if err != nil || err2 != nil {
		fmt.Fprintln(os.Stderr, "random: SEED and PROGRAMS are numbers")
		os.Exit(2)
	}
	w := &writer{Writer: bufio.NewWriter(os.Stdout), r: rand.New(rand.NewPCG(seed, 1))}
	defer w.Flush()
	w.WriteString(prelude)
	for w.program = range programs {
		w.functions = 3 + w.r.IntN(5)
		quiet := make([]string, w.functions)
		for i := range w.functions {
			if w.r.IntN(12) == 0 {
				quiet[i] = " noexcept"
			}
			fmt.Fprintf(w, "static int p%d_%d(int sum)%s;\n", w.program, i, quiet[i])
		}
		for w.current = range w.functions {
			fmt.Fprintf(w, "NOINLINE static int p%d_%d(int sum)%s\n{\n", w.program, w.current, quiet[w.current])
			switch w.r.IntN(8) {
			case 0:
				w.WriteString("volatile char *v = static_cast<char *>(alloca(16 + (unsigned)sum % 512)); v[0] = 1;\n")
			case 1:
				w.WriteString("alignas(64) volatile char v[100]; v[0] = 1;\n")
			case 2:
				w.WriteString("volatile char v[5000]; v[0] = 1;\n")
			}
			w.block(0)
			w.WriteString("return sum;\n}\n")
		}
	}
	w.WriteString(runner)
	w.WriteString("int main()\n{\nfor (unsigned long long seed = 1; seed <= 4; seed++) {\n")
	for p := range programs {
		fmt.Fprintf(w, "one(%d, seed, p%d_0);\n", p, p)
	}
	w.WriteString("}\n}\n")
}
