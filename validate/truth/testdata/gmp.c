// Multiplication, division, powers and roots of several sizes with libgmp.
#include <gmp.h>

int main(void) {
	mpz_t a, b, c, d;
	mpz_inits(a, b, c, d, NULL);
	gmp_randstate_t r;
	gmp_randinit_default(r);
	for (int bits = 64; bits < 200000; bits = bits * 3 / 2) {
		mpz_urandomb(a, r, bits);
		mpz_urandomb(b, r, bits * 2 / 3 + 1);
		mpz_setbit(b, 0);
		mpz_mul(c, a, b);
		mpz_mul(d, a, a);
		mpz_add(c, c, d);
		mpz_tdiv_qr(d, a, c, b);
		mpz_gcd(d, c, b);
		mpz_sqrt(d, c);
		if (bits < 4000)
			mpz_powm(d, c, a, b);
		if (bits < 20000) {
			char *s = mpz_get_str(0, 10, c);
			mpz_set_str(d, s, 10);
		}
		mpz_fac_ui(a, bits / 64);
		mpz_mul_2exp(a, a, 13);
		mpz_fdiv_q_2exp(a, a, 7);
		mpz_ior(d, a, c);
	}
	return 0;
}
