// Conversions of long double, which libc does with hand-written arithmetic.
#include <stdio.h>
#include <stdlib.h>

int main(void) {
	char b[512];
	for (int i = 0; i < 40; i++) {
		snprintf(b, sizeof b, "%d.%d1415926535897932384626433832795e%d", i, i, i * 7);
		volatile long double x = strtold(b, 0);
		snprintf(b, sizeof b, "%.60Lf %.40Le", x, x * 1e-20L);
		volatile double y = strtod("1.2345678901234567890123456789e-250", 0);
		snprintf(b, sizeof b, "%.300f", y);
	}
	return 0;
}
