/*
 * Programs that are linked with the shared runtime of AddressSanitizer and are started by one that
 * ehasm preload has started. The runtime ends them where another library comes before it, since that
 * one's functions are called in place of the runtime's own. Those of the preload library are none that
 * it has to see: dlopen and dlclose go on to the next definition, which is the runtime's, and
 * exceptions begin in its __cxa_throw. So it is told not to look, by the function that it asks for
 * its defaults; what ASAN_OPTIONS says comes after. A program that defines the function itself is
 * asked before this one.
 */
const char *__asan_default_options(void);
__attribute__((visibility("default"))) const char *__asan_default_options(void) { return "verify_asan_link_order=0"; }
