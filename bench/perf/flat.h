/* The samples that the contenders unwind, and what each of them provides. */
#ifndef FLAT_H
#define FLAT_H
#include <stddef.h>
#include <stdint.h>

/*
 * The file, little-endian words of 8 bytes; strings and stacks are padded to 8:
 *
 *     magic, objects, maps, spaces, samples
 *     each object:  length of its path, path; empty: it has no file
 *     each maps:    number of mappings; for each start, end, file offset, object
 *     each sample:  maps, space, bytes of stack, 17 registers by DWARF number, stack
 *
 * A space is a process until it executes another program.
 */
#define FLAT_MAGIC 0x74616c66666c6568u
#define FLAT_REGS 17
#define FLAT_RSP 7
#define FLAT_RIP 16
#define MAX_FRAMES 127 /* of a stack: perf's bound */

struct object {
	const char *path;
	const unsigned char *data; /* the file; null if there is none */
	size_t size;
	void *own; /* of the contender */
};

struct mapping {
	uint64_t start, end, offset;
	struct object *object;
};

struct maps {
	const struct mapping *list; /* ascending */
	size_t count;
};

struct sample {
	const struct maps *maps;
	size_t space;
	uint64_t stack_size;
	const uint64_t *regs;
	const unsigned char *stack;
};

/* The mapping that holds addr, or null. */
const struct mapping *find_mapping(const struct maps *maps, uint64_t addr);

/* Reads a word of the stack or of a mapped file; 0: done. */
int read_word(const struct sample *s, uint64_t addr, uint64_t *word);

/* What a contender provides. unwind writes pcs as they stand in the frames, the
 * first being the sample's, and returns their number. */
void contender_open(size_t spaces);
size_t contender_unwind(struct sample *s, uint64_t pcs[MAX_FRAMES]);
#endif
