/* fuzz.h - what a fuzz target is: libFuzzer's entry point, one a parser. With clang and -fsanitize=fuzzer each file is
 * a fuzzer (make fuzz); the normal build links it with replay.c, which runs the committed corpus through it. */
#pragma once

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
