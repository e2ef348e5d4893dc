/* The rules of what is believed, which a test cannot reach from outside in every environment. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../src/internal.h"

static int failures;
static void expect(bool ok, const char *what)
{
    if (!ok) {
        printf("FAIL %s\n", what);
        failures++;
    }
}

static char paths[8][256];
static int num_paths;
static bool note_path(const char *path, void *arg)
{
    (void)arg;
    snprintf(paths[num_paths++], sizeof paths[0], "%s", path);
    return false;
}

static void searched(bool secure, const char *const *want)
{
    struct ehu_wanted w = {.path = "/opt/lib/libx.so.1", .name = "libx.so.1", .build_id = {0xab, 0xcd, 0x01},
        .build_id_size = 3};
    num_paths = 0;
    ehu_search_init_(secure);
    ehu_search_(&w, secure, note_path, NULL);
    int n = 0;
    for (; want[n]; n++)
        expect(n < num_paths && strcmp(paths[n], want[n]) == 0, want[n]);
    expect(n == num_paths, "number of paths");
}

static void environment(const char *path, const char *cache, const char *home)
{
    setenv("EHASM_PATH", path, 1);
    setenv("XDG_CACHE_HOME", cache, 1);
    setenv("HOME", home, 1);
}

/* trust open UID PATH... says of each path whether it is opened for that user; trust kept UID PATH... keeps folders. */
static int open_each(int argc, char **argv)
{
    if (strcmp(argv[1], "kept") == 0)
        ehu_keep_folder_();
    for (int i = 3; i < argc; i++) {
        struct stat st;
        int fd = ehu_open_trusted_(argv[i], (uid_t)atoi(argv[2]), &st);
        puts(fd < 0 ? "refused" : "opened");
        if (fd >= 0 && close(fd) != 0)
            return 2;
    }
    ehu_forget_folder_();
    return open("/", O_RDONLY) != 3; /* no descriptor was left open */
}

int main(int argc, char **argv)
{
    if (argc > 1)
        return open_each(argc, argv);
    struct stat st = {.st_mode = S_IFREG | 0644, .st_uid = 1000};
    expect(ehu_trusted_(&st, 1000), "own file");
    expect(!ehu_trusted_(&st, 1001), "another user's file");
    expect(!ehu_trusted_(&st, 0), "a user's file, seen by root");
    st.st_uid = 0;
    expect(ehu_trusted_(&st, 1000), "root's file");
    st.st_mode = S_IFREG | 0664;
    expect(!ehu_trusted_(&st, 0), "writable by the group");
    st.st_mode = S_IFREG | 0646;
    expect(!ehu_trusted_(&st, 0), "writable by all");
    st.st_mode = S_IFIFO | 0600;
    expect(!ehu_trusted_(&st, 0), "a FIFO");
    st.st_mode = S_IFDIR | 0755;
    expect(ehu_trusted_(&st, 0), "a folder");
    st.st_mode = S_IFDIR | 0777;
    expect(!ehu_trusted_(&st, 0), "a folder that all may write to");
    st.st_mode = S_IFDIR | S_ISVTX | 0777;
    expect(ehu_trusted_(&st, 0), "a sticky folder");
    st.st_mode = S_IFREG | S_ISVTX | 0777;
    expect(!ehu_trusted_(&st, 0), "a sticky file");
    st.st_mode = S_IFLNK | 0777;
    expect(ehu_trusted_(&st, 0), "a link");
    st.st_uid = 1000;
    expect(!ehu_trusted_(&st, 0), "another's link");

    static const char *const by_xdg[] = {"/opt/lib/libx.so.1.eh_elf.so", "/a/libx.so.1.eh_elf.so",
        "b/libx.so.1.eh_elf.so",
        "/cache/ehasm/.build-id/ab/cd01.eh_elf.so", "/usr/lib/ehasm/.build-id/ab/cd01.eh_elf.so", NULL};
    environment("/a::b:", "/cache", "/home/u");
    searched(false, by_xdg);
    static const char *const by_home[] = {"/opt/lib/libx.so.1.eh_elf.so",
        "/home/u/.cache/ehasm/.build-id/ab/cd01.eh_elf.so",
        "/usr/lib/ehasm/.build-id/ab/cd01.eh_elf.so", NULL};
    environment("", "", "/home/u");
    searched(false, by_home);
    static const char *const set_uid[] = {"/opt/lib/libx.so.1.eh_elf.so", "/usr/lib/ehasm/.build-id/ab/cd01.eh_elf.so",
        NULL};
    environment("", "relative", "relative");
    searched(false, set_uid);
    environment("/a", "/cache", "/home/u");
    searched(true, set_uid);

    uint8_t id[MAX_BUILD_ID];
    static const uint32_t notes[] = {4, 4, 1, 0x00554e47, 7, 4, 3, 3, 0x00554e47, 0x00ccbbaa};
    expect(ehu_build_id_(notes, sizeof notes, 4, id) == 3 && id[0] == 0xaa && id[2] == 0xcc, "a build-id");
    for (size_t size = 0; size < sizeof notes - 1; size++)
        expect(ehu_build_id_(notes, size, 4, id) == 0, "a cut note");
    static const uint32_t huge[] = {0xffffffff, 0xffffffff, 3, 0x00554e47, 4, 0xfffffff0, 3, 0x00554e47};
    expect(ehu_build_id_(huge, sizeof huge, 4, id) == 0, "a huge name");
    expect(ehu_build_id_(huge + 4, sizeof huge - 16, 4, id) == 0, "a huge build-id");
    return failures != 0;
}
