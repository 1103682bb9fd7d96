/* fuzz_file.h - an input as a file that has a path. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { FUZZ_PATH = 64 };

/* The path of a file in memory with this content, the same file at every call; NULL when there is none to be had. */
const char *fuzz_file(char path[FUZZ_PATH], const uint8_t *data, size_t size);
