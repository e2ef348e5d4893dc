int outer(int x);
#ifdef INNER
extern "C" int catcher(void (*)()); /* relocated-inner.s: it catches all; its LSDA is known to the loader alone */
#define CATCHER catcher
#else
#define CATCHER(f) (f(), 0)
#endif
