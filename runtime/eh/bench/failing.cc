// What errors cost: by exceptions and by values that say what went wrong. sqrt and Fibonacci numbers as P2544 has them;
// standard functions that throw; and threads that throw at once. Prints "NAME PARAMETER NANOSECONDS" a line.
#include <any>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <future>
#include <map>
#include <regex>
#include <stdexcept>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#define NOINLINE __attribute__((noinline, noclone))
static volatile double sink;

struct Negative {};
NOINLINE static double root(double x)
{
	if (x < 0)
		throw Negative{};
	return std::sqrt(x);
}
struct Expected {
	double value;
	bool good;
};
NOINLINE static Expected root_expected(double x)
{
	if (x < 0)
		return {0, false};
	return {std::sqrt(x), true};
}
NOINLINE static unsigned fib(unsigned n, unsigned depth)
{
	if (depth == 0)
		throw Negative{};
	if (n <= 2)
		return 1;
	return fib(n - 2, depth - 1) + fib(n - 1, depth - 1);
}
struct ExpectedNumber {
	unsigned value;
	bool good;
};
NOINLINE static ExpectedNumber fib_expected(unsigned n, unsigned depth)
{
	if (depth == 0)
		return {0, false};
	if (n <= 2)
		return {1, true};
	ExpectedNumber a = fib_expected(n - 2, depth - 1);
	if (!a.good)
		return a;
	ExpectedNumber b = fib_expected(n - 1, depth - 1);
	if (!b.good)
		return b;
	return {a.value + b.value, true};
}

static double now(clockid_t clock = CLOCK_THREAD_CPUTIME_ID)
{
	timespec t;
	clock_gettime(clock, &t);
	return static_cast<double>(t.tv_sec) * 1e9 + static_cast<double>(t.tv_nsec);
}
template <class F> static double best(long n, F f)
{
	double least = 1e18;
	for (int round = 0; round < 10; round++) {
		double t = now();
		f(n);
		t = (now() - t) / static_cast<double>(n);
		least = t < least ? t : least;
	}
	return least;
}
static void show(const char *name, double parameter, double t) { std::printf("%s %g %.1f\n", name, parameter, t); }

template <class F> static void standard(const char *name, F f)
{
	show(name, 1, best(500, [&](long n) {
		     for (long i = 0; i < n; i++) {
			     try {
				     f();
			     } catch (const std::exception &e) {
				     sink = reinterpret_cast<long>(&e) & 1;
			     }
		     }
	     }));
}

NOINLINE static int deep(int n)
{
	if (n <= 1)
		throw Negative{};
	return deep(n - 1) + static_cast<int>(sink);
}

int main()
{
	for (double percent : {0.0, 0.1, 1.0, 10.0, 50.0}) {
		std::vector<double> in(1000);
		for (size_t i = 0; i < in.size(); i++)
			in[i] = std::fmod(static_cast<double>(i) * 0.61803398875, 1) * 100 < percent ? -1 : static_cast<double>(i);
		show("sqrt", percent, best(5, [&](long n) {
			     for (long i = 0; i < n; i++)
				     for (double x : in) {
					     try {
						     sink = root(x);
					     } catch (const Negative &) {
						     sink = 0;
					     }
				     }
		     }) / 1000);
		show("sqrt-expected", percent, best(5, [&](long n) {
			     for (long i = 0; i < n; i++)
				     for (double x : in) {
					     Expected e = root_expected(x);
					     sink = e.good ? e.value : 0;
				     }
		     }) / 1000);
		auto depth = [&](long i) { return in[static_cast<size_t>(i) % in.size()] < 0 ? 12u : 100u; };
		show("fib", percent, best(1000, [&](long n) {
			     for (long i = 0; i < n; i++) {
				     try {
					     sink = fib(15, depth(i));
				     } catch (const Negative &) {
					     sink = 0;
				     }
			     }
		     }));
		show("fib-expected", percent, best(1000, [&](long n) {
			     for (long i = 0; i < n; i++) {
				     ExpectedNumber e = fib_expected(15, depth(i));
				     sink = e.good ? e.value : 0;
			     }
		     }));
	}
	std::map<int, int> numbers;
	standard("map::at", [&] { sink = numbers.at(1); });
	standard("stoi", [] { sink = std::stoi("none"); });
	standard("any_cast", [] { sink = std::any_cast<int>(std::any(1.5)); });
	standard("variant-get", [] { sink = std::get<int>(std::variant<int, char>('x')); });
	standard("regex", [] { std::regex r("("); });
	standard("filesystem", [] { sink = static_cast<double>(std::filesystem::file_size("/nonexistent")); });
	standard("future", [] {
		std::promise<int> p;
		p.set_exception(std::make_exception_ptr(std::runtime_error("x")));
		sink = p.get_future().get();
	});
	// processor time of a throw through 8 frames, over all threads: more would be competition
	for (int threads : {1, 2, 4, 8}) {
		constexpr int throws = 20000;
		double t = 1e18;
		for (int round = 0; round < 5; round++) {
			std::vector<std::thread> all;
			double begin = now(CLOCK_PROCESS_CPUTIME_ID);
			for (int i = 0; i < threads; i++)
				all.emplace_back([] {
					for (int k = 0; k < throws; k++) {
						try {
							sink = deep(8);
						} catch (const Negative &) {
						}
					}
				});
			for (std::thread &one : all)
				one.join();
			t = std::min(t, (now(CLOCK_PROCESS_CPUTIME_ID) - begin) / (throws * threads));
		}
		show("threads", threads, t);
	}
}
