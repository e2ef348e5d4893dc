/* Where the eh_elf of an object may be. */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "internal.h"

typedef bool take_fn(const char *path, void *arg);

/* in_folder tries DIR/NAME.eh_elf.so. */
static bool in_folder(const char *dir, size_t len, const struct ehu_wanted *w, take_fn *take, void *arg)
{
    char path[PATH_MAX];
    int n = snprintf(path, sizeof path, "%.*s/%s" EH_ELF_SUFFIX, (int)len, dir, w->name);
    return len > 0 && n > 0 && (size_t)n < sizeof path && take(path, arg);
}

/* in_cache tries BASE/ehasm/.build-id/xx/yyyy.eh_elf.so. */
static bool in_cache(const char *base, const char *below, const struct ehu_wanted *w, take_fn *take, void *arg)
{
    char path[PATH_MAX], id[2 * MAX_BUILD_ID + 1];
    if (base[0] != '/' || w->build_id_size < 2)
        return false;
    for (size_t i = 0; i < w->build_id_size; i++)
        snprintf(id + 2 * i, 3, "%02x", w->build_id[i]);
    int n = snprintf(path, sizeof path, "%s%s/ehasm/.build-id/%.2s/%s" EH_ELF_SUFFIX, base, below, id, id + 2);
    return n > 0 && (size_t)n < sizeof path && take(path, arg);
}

void ehu_search_(const struct ehu_wanted *w, bool secure, take_fn *take, void *arg)
{
    char path[PATH_MAX];
    int n = snprintf(path, sizeof path, "%s" EH_ELF_SUFFIX, w->path);
    if (w->path[0] == '/' && (size_t)n < sizeof path && take(path, arg))
        return;
    for (const char *p = ehu_getenv_(secure, "EHASM_PATH"); p;) {
        const char *end = strchrnul(p, ':');
        if (in_folder(p, (size_t)(end - p), w, take, arg))
            return;
        p = *end ? end + 1 : NULL;
    }
    const char *xdg = ehu_getenv_(secure, "XDG_CACHE_HOME"), *home = ehu_getenv_(secure, "HOME");
    if (xdg ? in_cache(xdg, "", w, take, arg) : home && in_cache(home, "/.cache", w, take, arg))
        return;
    in_cache("/usr/lib", "", w, take, arg);
}
