/*
 * For assembly and C: offsets in structures of internal.h, and the number of pages of
 * code that a table remembers the object of.
 */
#define OBJECT_SHIFT 6 /* of its size */
#define OBJECT_LOW 0
#define OBJECT_HIGH 8
#define OBJECT_BIAS 16
#define OBJECT_CHAIN 32
#define TABLE_N 0
#define TABLE_OBJECT 8
#define TABLE_CACHE 16
#define CACHED_PAGES 256
#define PAGE_BITS 12

/* See package abi for _eh_elf_chain_1 and its second entry. */
#define CHAIN_SYMBOL "_eh_elf_chain_1"
#define CHAIN_NEXT 2
#define CHAIN_CFA 432 /* from rsp to the CFA in the walk's stack frame, below which are the return address and rbp */
