template <class T> struct box {
	T v;
	T get() const { return v * 3 + 1; }
};

static inline __attribute__((always_inline)) int mix(int x)
{
	for (int i = 0; i < 5; i++)
		x = x * 1103515245 + (x >> 3);
	return x;
}

static inline int twice(int x)
{
	x = mix(x);
	return mix(x + 1);
}

static inline box<int> boxed(int i) { return {i}; }

static __attribute__((cold, noinline)) void fail(int n)
{
	volatile int x = n;
	x = mix(n);
	__builtin_trap();
}
