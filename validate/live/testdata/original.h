/* A client of the original interface: four registers, one call per step. */
#ifndef ORIGINAL_H
#define ORIGINAL_H
#include <stdbool.h>
void original(bool direct);
#endif
