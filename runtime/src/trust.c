/* What may be believed: environment, files, identity notes. */
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "internal.h"

/*
 * In a set-uid program the environment is that of a user with fewer rights, who
 * must not choose the code that it runs.
 */
const char *ehu_getenv_(bool secure, const char *name)
{
    const char *value = secure ? NULL : getenv(name);
    return value && *value ? value : NULL;
}

/* ehu_trusted_ tells whether nobody but root and this user could have written a file. */
bool ehu_trusted_(const struct stat *st, uid_t self)
{
    return S_ISREG(st->st_mode) && (st->st_uid == 0 || st->st_uid == self) && (st->st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

/* ehu_open_trusted_ opens a file that ehu_trusted_ believes, else returns -1. */
int ehu_open_trusted_(const char *path, struct stat *st)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY); /* of a FIFO it must not wait for the writer */
    if (fd < 0)
        return -1;
    if (fstat(fd, st) != 0 || !ehu_trusted_(st, geteuid())) {
        close(fd);
        return -1;
    }
    return fd;
}

static size_t align_up(size_t n, size_t align) { return (n + align - 1) & ~(align - 1); }

/*
 * ehu_build_id_ copies the GNU build-id out of the notes of an object and returns
 * its size; 0 where there is none.
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

/*
 * ehu_fits_ tells whether an eh_elf was made from the object. Objects without a
 * build-id are told apart by what their tables are made from.
 */
bool ehu_fits_(const struct ehu_elf *elf, const struct ehu_wanted *wanted)
{
    if (elf->build_id_size != wanted->build_id_size ||
        memcmp(elf->build_id, wanted->build_id, wanted->build_id_size) != 0)
        return false;
    return wanted->build_id_size > 0 || ehu_same_content_(&elf->content, wanted->bias, wanted->headers);
}
