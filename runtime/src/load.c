/*
 * Mapping an eh_elf. The library does this itself and does not use dlopen, so that
 * the program and its debugger see the same loaded objects as before:
 * dl_iterate_phdr, the link map and gdb's list of libraries do not contain eh_elfs,
 * and no audit or dlopen hook of the program runs. Loading is simple: an eh_elf has
 * no relocation, no initialiser, no dependency and no writable segment (the binary
 * interface promises it), so it consists of mapping the PT_LOADs. (A file made for
 * dlopen of old glibc has a segment that is writable for the loader alone:
 * PT_GNU_RELRO covers it. It is mapped read-only.) The price is that unwinders that
 * use dl_iterate_phdr find no table for the code of an eh_elf itself; walks of this library do, see ownrow.c.
 *
 * Everything in a file is checked; a file that breaks the promises is refused.
 * Whether the generated code is correct cannot be checked here, hence the rules
 * of trust.c.
 */
#include <elf.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "internal.h"

/* elfout writes two PT_LOADs, or three with --relro, and a handful of other headers. MAX_SPAN, in bytes, bounds the
 * address space that a damaged file can take. */
enum { MAX_SEGMENTS = 16, MAX_SPAN = 1 << 30 };

static uint64_t page_down(uint64_t n) { return n & ~(uint64_t)(PAGE - 1); }
static uint64_t page_up(uint64_t n) { return page_down(n + PAGE - 1); }

/* at returns the n bytes at a link-time address, or null if they are not all mapped. */
static const void *at(const struct ehu_elf *elf, uint64_t addr, uint64_t n)
{
    return addr <= elf->size && n <= elf->size - addr ? elf->base + addr : NULL;
}

/* relro_only reports whether a PT_LOAD is writable only until it is relocated. */
static bool relro_only(const Elf64_Phdr *p, const Elf64_Phdr *relro)
{
    return relro && (p->p_flags & PF_X) == 0 && p->p_vaddr >= relro->p_vaddr && p->p_memsz <= relro->p_memsz &&
           p->p_vaddr - relro->p_vaddr <= relro->p_memsz - p->p_memsz;
}

/* loadable reports whether an eh_elf may have this PT_LOAD. */
static bool loadable(const Elf64_Phdr *p, const Elf64_Phdr *relro, uint64_t file_size)
{
    if ((p->p_flags & PF_R) == 0 || p->p_filesz == 0 || p->p_offset > file_size ||
        p->p_filesz > file_size - p->p_offset ||
        p->p_vaddr >= MAX_SPAN || p->p_memsz >= MAX_SPAN || p->p_offset % PAGE != p->p_vaddr % PAGE)
        return false;
    if ((p->p_flags & PF_W) == 0)
        return p->p_memsz == p->p_filesz;
    return relro_only(p, relro) && p->p_memsz >= p->p_filesz &&
           page_up(p->p_vaddr + p->p_memsz) == page_up(p->p_vaddr + p->p_filesz);
}

/* read_headers reads and checks the ELF header and the program headers, and sets elf->size: bytes of memory
 * from the first segment's page to the last one's end. */
static bool read_headers(int fd, uint64_t file_size, Elf64_Phdr ph[MAX_SEGMENTS], int *num, struct ehu_elf *elf)
{
    Elf64_Ehdr eh;
    if (read(fd, &eh, sizeof eh) != sizeof eh || memcmp(eh.e_ident, ELFMAG, SELFMAG) != 0 ||
        eh.e_ident[EI_CLASS] != ELFCLASS64 || eh.e_ident[EI_DATA] != ELFDATA2LSB || eh.e_type != ET_DYN ||
        eh.e_machine != EM_X86_64 || eh.e_phentsize != sizeof *ph || eh.e_phnum > MAX_SEGMENTS)
        return false;
    /* read, as the loader does: what allows a dlopen in a sandbox may forbid pread. elfout's program headers
     * follow the ELF header. */
    ssize_t want = eh.e_phnum * (ssize_t)sizeof *ph;
    if (eh.e_phoff > file_size || (eh.e_phoff == sizeof eh ? read(fd, ph, (size_t)want) : pread(fd, ph, (size_t)want,
        (off_t)eh.e_phoff)) != want)
        return false;
    *num = eh.e_phnum;
    const Elf64_Phdr *relro = NULL;
    for (int i = 0; i < *num; i++)
        if (ph[i].p_type == PT_GNU_RELRO)
            relro = &ph[i];
    uint64_t end = 0;
    for (int i = 0; i < *num; i++) {
        if (ph[i].p_type != PT_LOAD)
            continue;
        if (!loadable(&ph[i], relro, file_size) || page_down(ph[i].p_vaddr) < end) /* ascending, no page shared */
            return false;
        end = page_up(ph[i].p_vaddr + ph[i].p_memsz);
    }
    elf->size = end;
    return end > 0;
}

/* map_segments maps the file where all segments are to be, and those but the first again over that: one call less than with room without access,
 * of which nothing is used that is in no segment. */
static bool map_segments(int fd, const Elf64_Phdr *ph, int num, struct ehu_elf *elf)
{
    for (int i = 0; i < num; i++) {
        const Elf64_Phdr *p = &ph[i];
        if (p->p_type != PT_LOAD)
            continue;
        uint64_t lead = p->p_vaddr % PAGE, from = p->p_vaddr - lead;
        int prot = PROT_READ | (p->p_flags & PF_X ? PROT_EXEC : 0), fixed = elf->base ? MAP_FIXED : 0;
        /* elf->base is link-time address 0, so the first segment must begin there. */
        if (!fixed && from != 0)
            return false;
        void *to = mmap(fixed ? elf->base + from : NULL, fixed ? p->p_filesz + lead : elf->size, prot,
            MAP_PRIVATE | fixed, fd, (off_t)(p->p_offset - lead));
        if (to == MAP_FAILED)
            return false;
        if (!fixed)
            elf->base = to;
        if (p->p_flags & PF_X) {
            elf->low = (uint64_t)(uintptr_t)elf->base + p->p_vaddr;
            elf->high = elf->low + p->p_memsz;
        }
    }
    return elf->high > 0;
}

/* in_segment reports whether an address range of the file is mapped, and not a hole between segments. */
static bool in_segment(const Elf64_Phdr *ph, int num, uint64_t addr, uint64_t size)
{
    for (int i = 0; i < num; i++)
        if (ph[i].p_type == PT_LOAD && addr >= ph[i].p_vaddr && addr - ph[i].p_vaddr <= ph[i].p_filesz &&
            size <= ph[i].p_filesz - (addr - ph[i].p_vaddr))
            return true;
    return false;
}

/* take_sites records the place of the table of sites; with a bad note or an unknown
   version the eh_elf has no table. */
static void take_sites(const Elf64_Phdr *ph, int num, struct ehu_elf *elf, const char *desc, uint64_t size)
{
    eh_elf_sites_note_t note;
    if (size >= sizeof note) {
        memcpy(&note, desc, sizeof note);
        if (note.version == EH_ELF_SITES_VERSION && note.size <= UINT32_MAX &&
            in_segment(ph, num, note.addr, note.size)) {
            elf->sites = (const uint8_t *)elf->base + note.addr;
            elf->sites_size = (uint32_t)note.size;
            return;
        }
    }
    elf->exceptions = false;
}

/* read_identity reads the identity note, and the place of the table of sites. Notes are aligned to 4 (gABI,
 * "Note Section"). false: there is none, or one of another version: the interface promises nothing about the
 * rest of that file. */
static bool read_identity(const Elf64_Phdr *ph, int num, struct ehu_elf *elf)
{
    bool found = false;
    for (int i = 0; i < num; i++) {
        if (ph[i].p_type != PT_NOTE || !in_segment(ph, num, ph[i].p_vaddr, ph[i].p_memsz))
            continue;
        const char *p = at(elf, ph[i].p_vaddr, ph[i].p_memsz);
        uint64_t left = ph[i].p_memsz;
        while (left >= sizeof(Elf64_Nhdr)) {
            Elf64_Nhdr n;
            memcpy(&n, p, sizeof n);
            uint64_t desc = sizeof n + (((uint64_t)n.n_namesz + 3) & ~3u),
                end = desc + (((uint64_t)n.n_descsz + 3) & ~3u);
            if (end > left)
                return false;
            bool ours = n.n_namesz == sizeof EH_ELF_NOTE_OWNER &&
                memcmp(p + sizeof n, EH_ELF_NOTE_OWNER, sizeof EH_ELF_NOTE_OWNER) == 0;
            if (ours && found && n.n_type == EH_ELF_NOTE_SITES_TYPE && elf->exceptions)
                take_sites(ph, num, elf, p + desc, n.n_descsz);
            if (ours && !found && n.n_type == EH_ELF_NOTE_IDENTITY) {
                eh_elf_note_t note;
                if (n.n_descsz < sizeof note)
                    return false;
                memcpy(&note, p + desc, sizeof note);
                uint64_t content_at = ((EH_ELF_NOTE_BUILD_ID + (uint64_t)note.build_id_size + 7) & ~(uint64_t)7) + EH_ELF_NOTE_CONTENT;
                if (note.version != EH_ELF_VERSION || note.build_id_size > MAX_BUILD_ID || content_at > n.n_descsz)
                    return false;
                memcpy(elf->build_id, p + desc + EH_ELF_NOTE_BUILD_ID, note.build_id_size);
                elf->build_id_size = note.build_id_size;
                for (eh_elf_part_t part; n.n_descsz - content_at >= sizeof part; content_at += sizeof part) {
                    memcpy(&part, p + desc + content_at, sizeof part);
                    /* Padding behind the last part. */
                    if (part.size == 0)
                        break;
                    if (elf->num_parts == EH_ELF_MAX_PARTS)
                        return false;
                    elf->part[elf->num_parts++] = part;
                }
                elf->exceptions = (note.flags & EH_ELF_NOTE_SITES) != 0;
                found = true;
            }
            p += end;
            left -= end;
        }
    }
    return found;
}

/* is_name compares a name in room bytes of a string table. */
static bool is_name(const char *name, uint64_t room, const char *with)
{
    size_t n = strlen(with) + 1;
    return n <= room && memcmp(name, with, n) == 0;
}

/* find_code looks up the functions; DT_HASH gives the number of symbols. It refuses what would need a
 * loader: relocations, initialisers, dependencies. The number includes symbol 0. */
static bool find_code(const Elf64_Phdr *ph, int num, struct ehu_elf *elf)
{
    uint64_t symtab = 0, strtab = 0, strsz = 0, hash = 0;
    for (int i = 0; i < num; i++) {
        if (ph[i].p_type != PT_DYNAMIC || !in_segment(ph, num, ph[i].p_vaddr, ph[i].p_memsz))
            continue;
        const char *p = at(elf, ph[i].p_vaddr, ph[i].p_memsz);
        for (uint64_t off = 0; off + sizeof(Elf64_Dyn) <= ph[i].p_memsz; off += sizeof(Elf64_Dyn)) {
            Elf64_Dyn d;
            memcpy(&d, p + off, sizeof d);
            switch (d.d_tag) {
            case DT_SYMTAB: symtab = d.d_un.d_ptr; break;
            case DT_STRTAB: strtab = d.d_un.d_ptr; break;
            case DT_STRSZ: strsz = d.d_un.d_val; break;
            case DT_HASH: hash = d.d_un.d_ptr; break;
            case DT_RELA: case DT_REL: case DT_JMPREL: case DT_NEEDED: case DT_INIT: case DT_INIT_ARRAY: return false;
            default: break;
            }
        }
    }
    uint32_t count;
    if (!in_segment(ph, num, hash, 8) || !in_segment(ph, num, strtab, strsz))
        return false;
    memcpy(&count, elf->base + hash + 4, sizeof count);
    if (!in_segment(ph, num, symtab, (uint64_t)count * sizeof(Elf64_Sym)))
        return false;
    for (uint32_t i = 0; i < count; i++) {
        Elf64_Sym s;
        memcpy(&s, elf->base + symtab + i * sizeof s, sizeof s);
        uint64_t entry = (uint64_t)(uintptr_t)elf->base + s.st_value;
        if (s.st_shndx == SHN_UNDEF || s.st_name > strsz || entry < elf->low || entry >= elf->high)
            continue;
        const char *name = elf->base + strtab + s.st_name;
        if (is_name(name, strsz - s.st_name, "_eh_elf_walk"))
            elf->walk = (eh_elf_walk_t *)(uintptr_t)entry;
        else if (is_name(name, strsz - s.st_name, CHAIN_SYMBOL))
            elf->chain = (const char *)(uintptr_t)entry;
    }
    return elf->walk != NULL;
}

static struct ehu_elf *spare; /* a list; under the lock of table.c, as all of this */

/* new_elf takes a struct from the spare ones, or makes a page of them. It returns null if there is no
 * memory. */
static struct ehu_elf *new_elf(void)
{
    if (!spare) {
        struct ehu_elf *page = ehu_map_(PAGE);
        for (size_t i = 0; page && i < PAGE / sizeof *page; i++) {
            page[i].next = spare;
            spare = &page[i];
        }
    }
    struct ehu_elf *elf = spare;
    if (elf) {
        spare = elf->next;
        memset(elf, 0, sizeof *elf);
    }
    return elf;
}

/* ehu_abandon_elfs_ forgets the spare ones, whose list another thread may have been changing at a fork: a
 * page is lost at most. */
void ehu_abandon_elfs_(void) { spare = NULL; }

/* ehu_load_ maps an eh_elf. It returns null if the file is not an eh_elf, or is damaged. */
struct ehu_elf *ehu_load_(int fd, const struct stat *st)
{
    static Elf64_Phdr ph[MAX_SEGMENTS]; /* under the lock, and large for a small stack */
    int num;
    struct ehu_elf *elf = new_elf();
    if (!elf)
        return NULL;
    elf->dev = st->st_dev;
    elf->ino = st->st_ino;
    if (read_headers(fd, (uint64_t)st->st_size, ph, &num, elf) && map_segments(fd, ph, num, elf) &&
        read_identity(ph, num, elf) && find_code(ph, num, elf))
        return elf;
    ehu_unload_(elf);
    return NULL;
}

/* ehu_unload_ unmaps what was mapped, also of an eh_elf that was refused half-way. */
void ehu_unload_(struct ehu_elf *elf)
{
    if (elf->base)
        munmap(elf->base, elf->size);
    elf->next = spare;
    spare = elf;
}
