int wrong_cfa(int), wrong_register(int), no_row(int);
int main(void) {
	int s = 0;
	for (int i = 0; i < 3; i++)
		s += wrong_cfa(i) + wrong_register(i) + no_row(i);
	return s != 39;
}
