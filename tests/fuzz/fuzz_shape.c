/* fuzz_shape.c - `--shape 64x64` and `--shape i=512,k=256`. What is taken lies within its bounds, and is taken again as
 * it prints. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/options/shape_option.h"
#include "fuzz.h"
#include "fuzz_lines.h"

static void check(int64_t size)
{
    if (size < 0 || size > INT64_C(1) << 40)
        abort();
}

static void try_shape(const char *text)
{
    int64_t shape[CLV_MAX_RANK], again[CLV_MAX_RANK];
    char printed[CLV_MAX_RANK * 24] = "";
    int rank, ranks;
    if (clv_shape_option_parse(shape, &rank, "--shape", text, NULL) != CLV_OK)
        return;
    for (int d = 0; d < rank; d++) {
        size_t used = strlen(printed);
        check(shape[d]);
        snprintf(printed + used, sizeof printed - used, "%s%lld", d ? "x" : "", (long long)shape[d]);
    }
    if (clv_shape_option_parse(again, &ranks, "--shape", printed, NULL) != CLV_OK || ranks != rank ||
        memcmp(shape, again, (size_t)rank * sizeof *shape) != 0)
        abort();
}

static void try_letters(const char *text)
{
    int64_t size[128];
    memset(size, -1, sizeof size);
    if (clv_letter_sizes_option_parse(size, "--shape", text, NULL) != CLV_OK)
        return;
    for (int c = 0; c < 128; c++)
        if (size[c] != -1)
            check(size[c]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text, *line;
    if (fuzz_lines(&text, &line, 1, data, size) == 1) {
        try_shape(line);
        try_letters(line);
    }
    free(text);
    return 0;
}
