// Frames of C++: algorithms with comparators, and libstdc++'s streams calling back.
#include <algorithm>
#include <functional>
#include <list>
#include <map>
#include <ostream>
#include <streambuf>
#include <string>
#include <vector>

#include "bench.h"

namespace {

struct Less {
	bool operator()(int a, int b) const
	{
		bench_hop();
		return a < b;
	}
};

// Buffer calls on when a stream of libstdc++ hands it something to write.
struct Buffer : std::streambuf {
	int_type overflow(int_type c) override
	{
		bench_hop();
		return c;
	}
	std::streamsize xsputn(const char *, std::streamsize n) override
	{
		bench_hop();
		return n;
	}
	int sync() override
	{
		bench_hop();
		return 0;
	}
};

} // namespace

__attribute__((noinline)) void bench_hop_cxx(void)
{
	std::vector<int> v{5, 3, 9, 1, 7, 2, 8, 4, 6, 0, 15, 13, 19, 11, 17, 12, 18, 14, 16, 10};
	Buffer buffer;
	std::ostream out(&buffer);
	switch (bench_roll(9)) {
	case 0: std::sort(v.begin(), v.end(), Less()); break;
	case 1: std::stable_sort(v.begin(), v.end(), Less()); break;
	case 2: std::make_heap(v.begin(), v.end(), Less()); break;
	case 3: out << 42; break;
	case 4: out << 2.5 << std::string("text"); break;
	case 5: out.write("abc", 3); break;
	case 6: out << "abc" << std::endl; break;
	case 7: {
		std::list<int> l(v.begin(), v.end());
		l.sort(Less());
		break;
	}
	case 8: {
		std::map<int, int, std::function<bool(int, int)>> m{std::function<bool(int, int)>(Less())};
		for (int i : v)
			m[i] = i;
		break;
	}
	}
	v[0] = v[1];
}
