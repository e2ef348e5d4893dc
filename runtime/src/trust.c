/* What is trusted: environment, files, identity notes. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "internal.h"

/*
 * ehu_secure_ reports whether the process has rights that its caller does not have: those of
 * a set-uid or set-gid program, of file capabilities, or of a saved user. Then neither the
 * caller's environment nor the caller's files are trusted, whoever the effective user is.
 */
bool ehu_secure_(void)
{
    uid_t real, effective, saved;
    gid_t group, effective_group, saved_group;
    if (getauxval(AT_SECURE) != 0 || getresuid(&real, &effective, &saved) != 0 ||
        getresgid(&group, &effective_group, &saved_group) != 0)
        return true;
    return real != effective || saved != effective || group != effective_group || saved_group != effective_group;
}

/*
 * ehu_self_ is the user whose files are believed beside root's. In a user namespace the files of all
 * users that it does not know appear as one, the overflow user (user_namespaces(7)): who has that
 * number there believes root's alone. (uid_t)-1 is no user.
 */
uid_t ehu_self_(bool secure)
{
    enum { OVERFLOW = 65534 }; /* unless /proc/sys/kernel/overflowuid says otherwise */
    char text[64] = "", *rest = text;
    uid_t user = secure ? 0 : geteuid();
    if (user != OVERFLOW)
        return user;
    int fd = open("/proc/self/uid_map", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    bool all = n > 0 && strtoul(rest, &rest, 10) == 0 && strtoul(rest, &rest, 10) == 0 &&
        strtoul(rest, NULL, 10) == UINT32_MAX;
    return all ? user : (uid_t)-1;
}

/*
 * In a set-uid program the environment comes from a user with fewer rights, who
 * must not choose the code that it runs.
 */
const char *ehu_getenv_(bool secure, const char *name)
{
    const char *value = secure ? NULL : getenv(name);
    return value && *value ? value : NULL;
}

/*
 * ehu_trusted_ reports whether no user but root and this one could have written a file, or put
 * another in a folder, or made a link. In a sticky folder, users cannot replace the entries of
 * others.
 */
bool ehu_trusted_(const struct stat *st, uid_t self)
{
    if (st->st_uid != 0 && st->st_uid != self)
        return false;
    if (S_ISLNK(st->st_mode)) /* its mode is meaningless */
        return true;
    if (S_ISDIR(st->st_mode) && (st->st_mode & S_ISVTX))
        return true;
    return (S_ISREG(st->st_mode) || S_ISDIR(st->st_mode)) && (st->st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

/*
 * The folder that is two names above a file, and the path that leads to it: a cache's folder. It was trusted when it
 * was opened, and all above it. From ehu_keep_folder_ to ehu_forget_folder_, while a table is made, other files of that
 * path are looked for from there.
 */
static struct {
    bool wanted;
    int folder;
    size_t len;
    char path[PATH_MAX];
} kept = {.folder = -1};

/* What is still kept belongs to a table that was never finished: before a fork, or left by a jump. Its number may be another file's by now. */
void ehu_keep_folder_(void)
{
    kept.wanted = true;
    kept.folder = -1;
}

void ehu_forget_folder_(void)
{
    if (kept.folder >= 0)
        close(kept.folder);
    kept.folder = -1;
    kept.wanted = false;
}

/* is_kept reports whether the folder at the end of a path is the one that is kept. */
static bool is_kept(const char *path, size_t len)
{
    return kept.folder >= 0 && len == kept.len && memcmp(path, kept.path, len) == 0;
}

/* upper returns the length of an absolute path without its last two names, or 0 if there is no more. */
static size_t upper(const char *path)
{
    const char *end = strrchr(path, '/');
    if (path[0] != '/' || end == path || end[-1] == '/')
        return 0;
    while (end[-1] != '/')
        end--;
    return end - path > 1 ? (size_t)(end - path) : 0;
}

/* The state of a walk along a path: a folder, and the rest of the path. */
struct way {
    uid_t self;
    int folder;          /* opened with O_PATH; all above it are trusted */
    char left[PATH_MAX]; /* to be walked from there */
    int links;           /* followed so far */
};

enum { MAX_LINKS = 40 /* as path_resolution(7) */ };

/* fail leaves the folder. */
static bool fail(struct way *w)
{
    if (w->folder >= 0 && w->folder != kept.folder)
        close(w->folder);
    w->folder = -1;
    return false;
}

/* enter goes to a folder or, if it is an absolute path, to the root. */
static bool enter(struct way *w, const char *name)
{
    struct stat st;
    int fd = openat(w->folder, name, O_PATH | O_NOFOLLOW | O_DIRECTORY | O_CLOEXEC);
    fail(w);
    w->folder = fd;
    return fd >= 0 && fstat(fd, &st) == 0 && ehu_trusted_(&st, w->self) ? true : fail(w);
}

/* follow puts the target of a link before the rest of the path. link is opened with
   O_PATH. */
static bool follow(struct way *w, int link, const char *rest)
{
    static char to[PATH_MAX]; /* under the lock of table.c, as is *w: they would be half of a small stack */
    ssize_t n = readlinkat(link, "", to, sizeof to - 1);
    size_t more = strlen(rest);
    if (n <= 0 || ++w->links > MAX_LINKS || (size_t)n + 1 + more >= sizeof w->left)
        return fail(w);
    memmove(w->left + n + 1, rest, more + 1);
    memcpy(w->left, to, (size_t)n);
    w->left[n] = more > 0 ? '/' : 0;
    return w->left[0] == '/' ? enter(w, "/") : true;
}

/* absolute makes the walk begin at the root, also for a relative path. */
static bool absolute(struct way *w, const char *path)
{
    size_t n = 0, more = strlen(path);
    if (path[0] != '/') {
        if (!getcwd(w->left, sizeof w->left) || w->left[0] != '/') /* "(unreachable)" in front of it */
            return false;
        n = strlen(w->left);
        w->left[n++] = '/';
    }
    if (more >= sizeof w->left - n)
        return false;
    memcpy(w->left + n, path, more + 1);
    return enter(w, "/");
}

/* keep keeps the folder of a walk, at the end of the first len bytes of the path. */
static void keep(const struct way *w, const char *path, size_t len)
{
    if (w->folder == kept.folder)
        return;
    ehu_forget_folder_();
    kept.wanted = true;
    kept.folder = w->folder;
    kept.len = len;
    memcpy(kept.path, path, len);
}

/*
 * ehu_open_trusted_ opens a regular file if no user but root and self can have put it there:
 * it, the folders above it and the links on the path are trusted. It walks from folder to
 * folder by descriptor and follows links itself, so that it opens what it checked. It returns
 * -1 if there is none.
 */
int ehu_open_trusted_(const char *path, uid_t self, struct stat *st)
{
    static struct way w;
    w.self = self;
    w.folder = -1;
    w.links = 0;
    size_t above = kept.wanted ? upper(path) : 0, below = strlen(path) - above;
    if (above > 0 && below < sizeof w.left && is_kept(path, above)) {
        memcpy(w.left, path + above, below + 1);
        w.folder = kept.folder;
    } else {
        int there = open(path, O_PATH | O_CLOEXEC);
        if (there >= 0)
            close(there);
        if ((there < 0 && errno == ENOENT) || !absolute(&w, path))
            return -1; /* there is none: the most frequent case, in a single call */
    }
    for (bool kept_one = false;;) {
        /* links above are behind, those below are not reached: see follow */
        if (!kept_one && above > 0 && strlen(w.left) == below) {
            keep(&w, path, above);
            kept_one = true;
        }
        char name[NAME_MAX + 1], *from = w.left + strspn(w.left, "/"), *rest = from + strcspn(from, "/");
        size_t len = (size_t)(rest - from);
        if (len == 0 || len > NAME_MAX) {
            fail(&w);
            return -1;
        }
        memcpy(name, from, len);
        name[len] = 0;
        bool last = *rest == 0;
        rest += strspn(rest, "/");
        if (last) { /* do not block if it is a FIFO */
            int file = openat(w.folder, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
            if (file >= 0 || errno != ELOOP) {
                fail(&w);
                if (file >= 0 && fstat(file, st) == 0 && S_ISREG(st->st_mode) && ehu_trusted_(st, self))
                    return file;
                if (file >= 0)
                    close(file);
                return -1;
            }
        }
        int fd = openat(w.folder, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
        bool good = fd >= 0 && fstat(fd, st) == 0 && ehu_trusted_(st, self);
        if (good && S_ISLNK(st->st_mode)) {
            good = follow(&w, fd, rest);
        } else if (last) {
            good = false; /* a link before, and now something else */
        } else if (good) {
            memmove(w.left, rest, strlen(rest) + 1);
            fail(&w);
            w.folder = fd;
            continue;
        }
        if (fd >= 0)
            close(fd);
        if (!good) {
            fail(&w);
            return -1;
        }
    }
}

static size_t align_up(size_t n, size_t align) { return (n + align - 1) & ~(align - 1); }

/*
 * ehu_build_id_ copies the GNU build-id out of the notes of an object and returns
 * its size; 0 if there is none.
 */
size_t ehu_build_id_(const void *notes, size_t size, size_t align, uint8_t id[MAX_BUILD_ID])
{
    const char *p = notes;
    if (align != 8)
        align = 4;
    while (size >= sizeof(ElfW(Nhdr))) {
        ElfW(Nhdr) n;
        memcpy(&n, p, sizeof n);
        size_t desc = align_up(sizeof n + (size_t)n.n_namesz, align), end = desc + n.n_descsz;
        if (end > size)
            return 0;
        if (n.n_type == NT_GNU_BUILD_ID && n.n_namesz == 4 && memcmp(p + sizeof n, "GNU", 4) == 0) {
            if (n.n_descsz > MAX_BUILD_ID)
                return 0;
            memcpy(id, p + desc, n.n_descsz);
            return n.n_descsz;
        }
        end = align_up(end, align);
        if (end > size)
            return 0;
        p += end;
        size -= end;
    }
    return 0;
}

/* ehu_fits_ reports whether an eh_elf was made from the object. */
bool ehu_fits_(const struct ehu_elf *elf, const struct ehu_wanted *wanted)
{
    return elf->build_id_size == wanted->build_id_size &&
           memcmp(elf->build_id, wanted->build_id, wanted->build_id_size) == 0 &&
           ehu_same_content_(elf, wanted->bias, wanted->headers);
}
