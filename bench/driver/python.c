/* Frames of the Python interpreter, which is opened with dlopen: sorted() and
 * friends call Python functions, and ctypes calls back into this program. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench.h"

static int (*run)(const char *);

int bench_python_init(char *why, size_t n)
{
	static const char program[] =
		"import ctypes, functools, re\n"
		"leaf = ctypes.PyDLL(None).bench_hop\n"
		"def go(n):\n"
		"    if n <= 0: leaf()\n"
		"    elif n % 4 == 0: sorted([n], key=lambda x: go(x - 1))\n"
		"    elif n % 4 == 1: list(map(lambda x: go(x - 1), [n]))\n"
		"    elif n % 4 == 2: re.sub('a', lambda m: str(go(n - 1)), 'cat')\n"
		"    else: functools.reduce(lambda a, b: go(a - 1), [n, n])\n";
	char name[64];
	void *h = NULL;
	for (int minor = 20; minor >= 8 && !h; minor--) {
		snprintf(name, sizeof name, "libpython3.%d.so.1.0", minor);
		h = dlopen(name, RTLD_NOW | RTLD_GLOBAL);
	}
	if (!h) {
		snprintf(why, n, "no libpython3: %s", dlerror());
		return 0;
	}
	void (*init)(int) = (void (*)(int))dlsym(h, "Py_InitializeEx");
	run = (int (*)(const char *))dlsym(h, "PyRun_SimpleString");
	if (!init || !run) {
		snprintf(why, n, "%s: %s", name, dlerror());
		return 0;
	}
	setenv("PYTHONHOME", "/usr", 1); /* whatever python is first in PATH */
	init(0);
	if (run(program) != 0) {
		snprintf(why, n, "%s: no ctypes", name);
		return 0;
	}
	return 1;
}

void bench_python_hop(int levels)
{
	char call[32];
	snprintf(call, sizeof call, "go(%d)\n", levels);
	run(call);
}
