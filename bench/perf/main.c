/* Unwinds the samples of a flat file with one contender, as told on standard
 * input:
 *
 *     pass file       unwinds all samples where they lie; prints ns, frames
 *     pass batch       copies batches of samples, and times only the unwinding
 *     answers PATH    writes for each sample the number of pcs, and these
 */
#define _GNU_SOURCE
#include "flat.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { BATCH_SAMPLES = 128, BATCH_BYTES = 1 << 20 };

static struct sample *samples;
static size_t sample_count;

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static void *map_file(const char *path, size_t *size)
{
	struct stat st;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) != 0)
		fail(path);
	*size = (size_t)st.st_size;
	void *p = mmap(NULL, *size, PROT_READ, MAP_SHARED | MAP_POPULATE, fd, 0);
	if (p == MAP_FAILED)
		fail(path);
	close(fd);
	return p;
}

static void *allocate(size_t n, size_t size)
{
	void *p = calloc(n ? n : 1, size);
	if (!p)
		fail("calloc");
	return p;
}

static void load(const char *path)
{
	size_t size;
	const uint64_t *w = map_file(path, &size);
	if (*w++ != FLAT_MAGIC) {
		fprintf(stderr, "%s: not a flat file\n", path);
		exit(1);
	}
	size_t objects = *w++, maps_count = *w++, spaces = *w++;
	sample_count = *w++;
	struct object *object = allocate(objects, sizeof *object);
	for (size_t i = 0; i < objects; i++) {
		size_t length = *w++;
		object[i].path = strndup((const char *)w, length);
		if (length)
			object[i].data = map_file(object[i].path, &object[i].size);
		w += (length + 7) / 8;
	}
	struct maps *maps = allocate(maps_count, sizeof *maps);
	for (size_t i = 0; i < maps_count; i++) {
		struct mapping *list = allocate(maps[i].count = *w++, sizeof *list);
		maps[i].list = list;
		for (size_t j = 0; j < maps[i].count; j++, w += 4)
			list[j] = (struct mapping){w[0], w[1], w[2], &object[w[3]]};
	}
	samples = allocate(sample_count, sizeof *samples);
	for (size_t i = 0; i < sample_count; i++) {
		struct sample *s = &samples[i];
		s->maps = &maps[w[0]];
		s->space = w[1];
		s->stack_size = w[2];
		s->regs = w + 3;
		s->stack = (const unsigned char *)(w + 3 + FLAT_REGS);
		w += 3 + FLAT_REGS + (s->stack_size + 7) / 8;
	}
	contender_open(spaces);
}

/* The index of the first mapping that ends above addr. */
static size_t search(const struct maps *maps, uint64_t addr)
{
	size_t lo = 0, hi = maps->count;
	while (lo < hi) {
		size_t mid = (lo + hi) / 2;
		if (maps->list[mid].end > addr)
			hi = mid;
		else
			lo = mid + 1;
	}
	return lo;
}

const struct mapping *find_mapping(const struct maps *maps, uint64_t addr)
{
	size_t i = search(maps, addr);
	return i < maps->count && maps->list[i].start <= addr ? &maps->list[i] : NULL;
}

int read_word(const struct sample *s, uint64_t addr, uint64_t *word)
{
	uint64_t at = addr - s->regs[FLAT_RSP];
	if (addr + sizeof *word < addr)
		return -1;
	if (addr >= s->regs[FLAT_RSP] && at + sizeof *word <= s->stack_size) {
		memcpy(word, s->stack + at, sizeof *word);
		return 0;
	}
	/* Tables lie beside the executable mapping of their object, mostly above. */
	size_t i = search(s->maps, addr);
	for (size_t j = i + 1; j-- > 0 && j + 2 > i;) {
		if (j == s->maps->count)
			continue;
		const struct mapping *m = &s->maps->list[j];
		at = addr - m->start + m->offset;
		if (!m->object->data || at >= m->object->size || at + sizeof *word > m->object->size)
			continue;
		memcpy(word, m->object->data + at, sizeof *word);
		return 0;
	}
	return -1;
}

/* The processor time of this thread: what else runs takes no part. */
static uint64_t now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void pass_file(void)
{
	uint64_t pcs[MAX_FRAMES], frames = 0, begin = now();
	for (size_t i = 0; i < sample_count; i++)
		frames += contender_unwind(&samples[i], pcs);
	printf("%lu %lu\n", now() - begin, frames);
}

static void pass_batch(void)
{
	static unsigned char bytes[BATCH_BYTES];
	uint64_t pcs[MAX_FRAMES], frames = 0, ns = 0;
	for (size_t i = 0; i < sample_count;) {
		struct sample batch[BATCH_SAMPLES];
		size_t n = 0, used = 0;
		while (n < BATCH_SAMPLES && i < sample_count && used + samples[i].stack_size <= BATCH_BYTES) {
			batch[n] = samples[i++];
			memcpy(bytes + used, batch[n].stack, batch[n].stack_size);
			batch[n].stack = bytes + used;
			used += batch[n++].stack_size;
		}
		uint64_t begin = now();
		for (size_t j = 0; j < n; j++)
			frames += contender_unwind(&batch[j], pcs);
		ns += now() - begin;
	}
	printf("%lu %lu\n", ns, frames);
}

static void answers(const char *path)
{
	FILE *f = fopen(path, "w");
	if (!f)
		fail(path);
	for (size_t i = 0; i < sample_count; i++) {
		uint64_t pcs[MAX_FRAMES], n = contender_unwind(&samples[i], pcs);
		fwrite(&n, sizeof n, 1, f);
		fwrite(pcs, sizeof *pcs, n, f);
	}
	if (fclose(f) != 0)
		fail(path);
	puts("done");
}

int main(int argc, char **argv)
{
	char line[4096];
	if (argc != 2) {
		fprintf(stderr, "usage: %s FILE\n", argv[0]);
		return 2;
	}
	load(argv[1]);
	while (fgets(line, sizeof line, stdin)) {
		line[strcspn(line, "\n")] = '\0';
		if (strcmp(line, "pass file") == 0)
			pass_file();
		else if (strcmp(line, "pass batch") == 0)
			pass_batch();
		else if (strncmp(line, "answers ", 8) == 0)
			answers(line + 8);
		else {
			fprintf(stderr, "unknown command: %s\n", line);
			return 2;
		}
		fflush(stdout);
	}
	return 0;
}
