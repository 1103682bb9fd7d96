/* fuzz_stablehlo.c - programs of StableHLO text. */
#include "fuzz_program.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_program(data, size);
    return 0;
}
