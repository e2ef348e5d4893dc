/* Where the eh_elf of an object may be. */
#include <limits.h>
#include <string.h>

#include "internal.h"

typedef bool take_fn(const char *path, void *arg);

/* Under the lock of table.c; static, since an exception may be thrown on a stack without
   room for a path. */
static char path[PATH_MAX];
static size_t used; /* of path; sizeof path: it is too long */

static void add(const char *text, size_t len)
{
    if (len >= sizeof path - used) {
        used = sizeof path;
        return;
    }
    memcpy(path + used, text, len);
    used += len;
    path[used] = 0;
}

static void add_text(const char *text) { add(text, strlen(text)); }

static void add_hex(const uint8_t *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        add((const char[2]){"0123456789abcdef"[bytes[i] >> 4], "0123456789abcdef"[bytes[i] & 15]}, 2);
}

/* ends tries the path built since used was 0. */
static bool ends(take_fn *take, void *arg)
{
    add_text(EH_ELF_SUFFIX);
    return used < sizeof path && take(path, arg);
}

/* in_folder tries DIR/NAME.eh_elf.so. */
static bool in_folder(const char *dir, size_t len, const struct ehu_wanted *w, take_fn *take, void *arg)
{
    used = 0;
    add(dir, len);
    add_text("/");
    add_text(w->name);
    return len > 0 && ends(take, arg);
}

/* in_cache tries BASE/ehasm/.build-id/xx/yyyy.eh_elf.so. */
static bool in_cache(const char *base, const char *below, const struct ehu_wanted *w, take_fn *take, void *arg)
{
    if (base[0] != '/' || w->build_id_size < 2)
        return false;
    used = 0;
    add_text(base);
    add_text(below);
    add_text("/ehasm/.build-id/");
    add_hex(w->build_id, 1);
    add_text("/");
    add_hex(w->build_id + 1, w->build_id_size - 1);
    return ends(take, arg);
}

void ehu_search_(const struct ehu_wanted *w, bool secure, take_fn *take, void *arg)
{
    used = 0;
    add_text(w->path);
    if (w->path[0] == '/' && ends(take, arg))
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
