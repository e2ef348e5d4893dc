/* Memory that does not come from the program's malloc. */
#include <sys/mman.h>

#include "internal.h"

bool ehu_quiet_;

void *ehu_map_(size_t size)
{
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

