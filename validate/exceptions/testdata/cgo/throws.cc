// See main.go.
extern "C" int callback(int);
struct Note { int *p; ~Note() { ++*p; } };
static __attribute__((noinline)) int deep(int n, int *count)
{
    Note x{count}; if (n == 0) throw n; return deep(n - 1, count) + 1;
}
extern "C" int run(int n) {
	int count = 0;
	try { deep(n + 3, &count); } catch (int) { count += 1000; }
	if (n > 0) { try { count += callback(n); throw 1L; } catch (long) { count += 5; } }
	return count;
}
