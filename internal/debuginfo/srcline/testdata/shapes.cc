// What srcline_test.go compiles: functions inlined into each other, from a
// header too, templates, lambdas, namespaces, a cold part, a static function.
#include "shapes.h"

namespace shapes {

struct base {
	virtual ~base() {}
	virtual int area(int) = 0;
};

struct square : base {
	int side;
	square(int s) : side(s) {}
	int area(int k) override
	{
		auto scale = [&](int y) { return y * side + k; };
		return scale(k) + scale(side);
	}
};

} // namespace shapes

static int __attribute__((noinline)) helper(int n, volatile int *p)
{
	int sum = 0;
	for (int i = 0; i < n; i++) {
		sum += twice(boxed(i).get()) + p[i & 3];
		sum ^= mix(sum);
	}
	return sum;
}

extern "C" int plain(int n, volatile int *p)
{
	if (__builtin_expect(n < 0, 0))
		fail(n);
	return helper(n, p) + helper(n + 1, p);
}

int main(int argc, char **)
{
	volatile int cells[4] = {1, 2, 3, argc};
	shapes::square s(argc);
	shapes::base *b = &s;
	asm volatile("" : "+r"(b));
	box<long> l{argc};
	return plain(argc, cells) + b->area(argc) + twice(int(l.get()));
}
