/* Where the eh_elf of an object may be. */
#include <limits.h>
#include <string.h>

#include "internal.h"

#ifndef SYSTEM_CACHES
#define SYSTEM_CACHES "/usr/lib" /* the tests have none: package ehasm-system would answer for the eh_elfs that they leave out */
#endif

typedef bool take_fn(const char *path, void *arg);

/* Under the lock of table.c; static, since an exception may be thrown on a stack without
   room for a path. */
static char path[PATH_MAX];
static size_t used; /* of path; sizeof path: it is too long */

/* add appends to path; a path of PATH_MAX bytes and more is marked as too long, and ends then tries nothing. */
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

/* What a cache finds an eh_elf by: a build-id, or the key of the object's table. */
struct key {
    uint8_t bytes[MAX_BUILD_ID];
    size_t size;
    const char *kind; /* follows them in the name */
};

/* key_of returns the key of one of the two kinds; a size of 0 if the object has none of that kind. */
static struct key key_of(const struct ehu_wanted *w, bool by_table)
{
    struct key k = {.size = w->build_id_size, .kind = ""};
    memcpy(k.bytes, w->build_id, w->build_id_size);
    if (by_table) {
        k.size = ehu_table_key_(w->bias, w->headers, k.bytes) ? TABLE_KEY : 0;
        k.kind = ".table";
    }
    return k;
}

/* in_cache tries BASE/ehasm/.build-id/xx/yyyy.eh_elf.so. GNU debuggers' layout: the first byte of the
 * build-id is a folder. A base that is not absolute (XDG Base Directory Specification) is ignored. */
static bool in_cache(const char *base, const char *below, const struct key *k, take_fn *take, void *arg)
{
    if (base[0] != '/' || k->size < 2)
        return false;
    used = 0;
    add_text(base);
    add_text(below);
    add_text("/ehasm/.build-id/");
    add_hex(k->bytes, 1);
    add_text("/");
    add_hex(k->bytes + 1, k->size - 1);
    add_text(k->kind);
    return ends(take, arg);
}

/* Copies, since a handler may have interrupted the program while it changes its environment. */
static const char *folders, *xdg_cache, *home;

/* copy_of returns a copy that lives as long as the process; null if the variable is not set, empty, or not
 * to be trusted. */
static const char *copy_of(bool secure, const char *name)
{
    const char *value = ehu_getenv_(secure, name);
    char *copy = value ? ehu_map_(strlen(value) + 1) : NULL;
    return copy ? strcpy(copy, value) : NULL;
}

void ehu_search_init_(bool secure)
{
    folders = copy_of(secure, "EHASM_PATH");
    xdg_cache = copy_of(secure, "XDG_CACHE_HOME");
    home = copy_of(secure, "HOME");
}

/* The order is docs/runtime.md's: beside the object, EHASM_PATH, the user's cache, the system's; by build-id
 * before by table. */
void ehu_search_(const struct ehu_wanted *w, bool secure, take_fn *take, void *arg)
{
    used = 0;
    add_text(w->path);
    if (w->path[0] == '/' && ends(take, arg))
        return;
    for (const char *p = secure ? NULL : folders; p;) {
        const char *end = strchrnul(p, ':');
        if (in_folder(p, (size_t)(end - p), w, take, arg))
            return;
        p = *end ? end + 1 : NULL;
    }
    for (int by_table = 0; by_table < 2; by_table++) {
        struct key k = key_of(w, by_table);
        if (!secure && (xdg_cache ? in_cache(xdg_cache, "", &k, take, arg) : home &&
            in_cache(home, "/.cache", &k, take, arg)))
            return;
        if (in_cache(SYSTEM_CACHES, "", &k, take, arg))
            return;
    }
}
