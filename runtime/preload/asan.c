/*
 * For programs that are linked with the shared runtime of AddressSanitizer and are started by one that
 * ehasm preload has started. The runtime ends a program if another library comes before it, since that
 * library's functions replace the runtime's own. The preload library replaces none that the runtime
 * needs: dlopen goes on to the next definition, which is the runtime's, and exceptions begin
 * in its __cxa_throw. So this function, which the runtime calls for its default options, turns the
 * check off; ASAN_OPTIONS overrides it. If the program defines the function itself, that definition is
 * used.
 */
const char *__asan_default_options(void);
__attribute__((visibility("default"))) const char *__asan_default_options(void) { return "verify_asan_link_order=0"; }
