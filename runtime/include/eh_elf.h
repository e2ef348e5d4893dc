/*
 * The eh_elf binary interface, version 1: the exports of a NAME.eh_elf.so.
 *
 * C11 and C++11, x86-64 System V. Programs look up the two functions of each
 * eh_elf with dlsym; the prototypes below are for a program that links one.
 *
 * Register numbers are the DWARF numbers of the x86-64 psABI, figure 3.36. The
 * object is the ELF file whose unwind tables were compiled; its load bias is
 * dl_phdr_info.dlpi_addr.
 */
#ifndef EH_ELF_H
#define EH_ELF_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define EH_ELF_VERSION 1
#define EH_ELF_SUFFIX ".eh_elf.so" /* appended to the object's file name */

/* DWARF register numbers. */
enum {
    EH_ELF_RAX, EH_ELF_RDX, EH_ELF_RCX, EH_ELF_RBX, EH_ELF_RSI, EH_ELF_RDI, EH_ELF_RBP, EH_ELF_RSP,
    EH_ELF_R8, EH_ELF_R9, EH_ELF_R10, EH_ELF_R11, EH_ELF_R12, EH_ELF_R13, EH_ELF_R14, EH_ELF_R15,
    EH_ELF_RIP,
    EH_ELF_NUM_REGS
};

/* Why a walk stopped: eh_elf_regs_t.status. */
enum {
    EH_ELF_OK = 0,            /* max steps were taken */
    EH_ELF_OUTERMOST = 1,     /* the return address is undefined: end of the stack */
    EH_ELF_NO_INFO = -1,      /* no unwind information for the pc; also: not in this object */
    EH_ELF_UNREADABLE = -2,   /* a word that the CFA or the return address needs could not be read */
    EH_ELF_BAD_REGISTER = -3, /* the row needs a register that is not valid */
    EH_ELF_NOT_COMPILED = -4  /* the row holds a rule that could not be compiled */
};

/* ------------------------------------------------------------------ _eh_elf_walk */

/* The registers of one frame. Those whose bit in valid is clear have no value. */
typedef struct {
    uint64_t reg[17]; /* by DWARF number; reg[16] is the frame's pc, a run-time address */
    uint32_t valid;   /* bit i: reg[i] is known */
    uint16_t exact;   /* 1: reg[16] was executing; 0: it is a return address, looked up minus 1 */
    int16_t status;   /* out: why the walk stopped */
} eh_elf_regs_t;

/*
 * The memory that a walk may read. A word is read from the window if all its 8
 * bytes lie in [lo, lo+size), otherwise through read if that is not null;
 * otherwise it is unreadable. Nothing else of the target is dereferenced.
 */
typedef struct {
    uint64_t lo;       /* lowest readable target address of the window */
    uint64_t size;     /* bytes readable from lo on */
    const void *bytes; /* host address at which target address lo is found; == lo in-process */
    int (*read)(void *arg, uint64_t addr, uint64_t *word); /* 0: *word filled; else unreadable. May be null */
    void *arg;
} eh_elf_memory_t;

/*
 * Takes up to max steps from the frame *regs towards its callers, while the pc
 * stays in this object, and returns their number; bias is the object's load bias.
 * The caller's pc of step i goes to pcs[i] unless pcs is null. Afterwards *regs
 * holds the last frame reached. rsp and reg[16] must be valid on entry. The
 * function is async-signal-safe and reentrant, and uses at most 512 bytes of
 * stack besides what read uses.
 */
typedef size_t eh_elf_walk_t(eh_elf_regs_t *regs, const eh_elf_memory_t *mem, uint64_t bias, uint64_t *pcs,
                             size_t max);
eh_elf_walk_t _eh_elf_walk;

/* ----------------------------------------------------------------------- _eh_elf */

/* The interface of the original eh_elfs: one step on four registers. */
typedef struct {
    uint8_t flags; /* out: EH_ELF_FLAG_*; ignored on entry */
    uintptr_t rip, rsp, rbp, rbx;
} unwind_context_t;

/* Reads the word at addr. A null pointer reads this process's memory directly. */
typedef uintptr_t (*deref_func_t)(uintptr_t addr);

enum {
    EH_ELF_FLAG_RIP = 1 << 0, /* the field holds the caller's value */
    EH_ELF_FLAG_RSP = 1 << 1,
    EH_ELF_FLAG_RBP = 1 << 2,
    EH_ELF_FLAG_RBX = 1 << 3,
    EH_ELF_FLAG_ERROR = 1 << 7 /* no row for pc, or one that needs another register */
};

/*
 * pc is a link-time address (run-time address minus load bias), looked up
 * unchanged: for a return address, subtract one. ctx.rip - pc is the load bias
 * that addresses in expressions (DW_OP_addr) are counted from: subtract one from
 * ctx.rip, too. At the outermost frame neither EH_ELF_FLAG_RIP nor
 * EH_ELF_FLAG_ERROR is set.
 */
typedef unwind_context_t eh_elf_step_t(unwind_context_t ctx, uintptr_t pc, deref_func_t deref);

/* _eh_elf of a file built with --no-deref, which always reads memory directly. */
typedef unwind_context_t eh_elf_step_direct_t(unwind_context_t ctx, uintptr_t pc);

#ifdef EH_ELF_NO_DEREF
eh_elf_step_direct_t _eh_elf;
#else
eh_elf_step_t _eh_elf;
#endif

/* ---------------------------------------------------------------------- identity */

/*
 * The desc of the note that identifies the object of an eh_elf: owner
 * EH_ELF_NOTE_OWNER, type EH_ELF_NOTE_IDENTITY, in a PT_NOTE segment. At
 * EH_ELF_NOTE_BUILD_ID in the desc begin the build_id_size bytes of the object's
 * NT_GNU_BUILD_ID. EH_ELF_NOTE_CONTENT bytes after the next multiple of 8 begins an array
 * of eh_elf_part_t, which ends with a part of size 0 or with the desc.
 */
#define EH_ELF_NOTE_OWNER "ehasm"

enum { EH_ELF_NOTE_IDENTITY = 1, EH_ELF_NOTE_BUILD_ID = 36, EH_ELF_NOTE_CONTENT = 32, EH_ELF_MAX_PARTS = 8 };

enum {
    EH_ELF_NOTE_NO_DEREF = 1 << 0, /* _eh_elf is an eh_elf_step_direct_t */
    EH_ELF_NOTE_PACKED = 1 << 1,   /* packed dispatch */
    EH_ELF_NOTE_SITES = 1 << 2 /* the file has what exceptions need: docs/abi.md, section 6 */
};

typedef struct {
    uint32_t version; /* EH_ELF_VERSION */
    uint32_t flags;   /* EH_ELF_NOTE_* */
    uint64_t low;     /* lowest pc covered, a link-time address */
    uint64_t high;    /* one past the highest */
    uint32_t ranges;  /* row ranges */
    uint32_t rows;    /* distinct rows */
    uint32_t build_id_size;
} eh_elf_note_t;

/*
 * A part of the object's image from which its tables come, in a segment that is not writable.
 * An eh_elf without parts, as ehasm 0.10.0 and before made them, is no object's.
 */
typedef struct {
    uint64_t low;  /* link-time address */
    uint64_t size; /* bytes */
    uint64_t hash; /* XXH64 of them, seed 0 */
} eh_elf_part_t;

/*
 * The desc of the note that locates the table of sites, type
 * EH_ELF_NOTE_SITES_TYPE; its format is in docs/abi.md, section 6.
 */
enum { EH_ELF_NOTE_SITES_TYPE = 3, EH_ELF_SITES_VERSION = 5 };

typedef struct {
    uint32_t version; /* EH_ELF_SITES_VERSION */
    uint32_t zero;
    uint64_t addr; /* link-time address in the eh_elf */
    uint64_t size; /* bytes */
} eh_elf_sites_note_t;

#ifdef __cplusplus
}
#endif

#endif
