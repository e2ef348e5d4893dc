// Throws through 400 return addresses, three times: more than the slots that are used at first.
#include <cstdio>
#include <utility>

static volatile int sum;
template <int N> __attribute__((noinline)) static void throws()
{
	if (sum >= 0)
		throw N;
}
template <int N> __attribute__((noinline)) static void catches()
{
	try {
		throws<N>();
		sum = -N;
	} catch (int v) {
		sum = sum + v - N + 1;
	}
}
template <int... N> static void all(std::integer_sequence<int, N...>) { (catches<N>(), ...); }

int main()
{
	for (int round = 0; round < 3; round++)
		all(std::make_integer_sequence<int, 200>{});
	std::printf("%d\n", sum);
}
