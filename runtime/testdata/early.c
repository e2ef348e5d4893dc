/* A library whose constructor allocates, and a program that does not. */
#ifdef LIBRARY
#include <stdlib.h>
void *kept;
__attribute__((constructor)) static void early(void) { kept = malloc(5000); }
#else
int main(void) { return 0; }
#endif
