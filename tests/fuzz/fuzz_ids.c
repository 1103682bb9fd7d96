/* fuzz_ids.c - files of ids. What is read is of the model's vocabulary and token types. */
#include <stdlib.h>

#include "cli/input/input_batch_file.h"
#include "fuzz.h"
#include "fuzz_file.h"

static int within(const int32_t *x, int64_t n, int32_t low, int64_t high)
{
    int inside = 1;
    for (int64_t i = 0; x && i < n; i++)
        inside = inside && (x[i] == low || (x[i] >= 0 && x[i] < high));
    return inside;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const clv_model_info model = {.vocab = 257, .token_types = 2};
    char path[FUZZ_PATH];
    clv_input_batch ids;
    for (int allow_other_tensors = 0; allow_other_tensors < 2; allow_other_tensors++) {
        if (!fuzz_file(path, data, size) ||
            clv_input_batch_read(&ids, path, &model, allow_other_tensors, NULL) != CLV_OK)
            continue;
        int64_t n = ids.rows * ids.columns;
        if (n < 1 || !within(ids.ids, n, 0, model.vocab) || !within(ids.labels, n, CLV_IGNORE_INDEX, model.vocab) ||
            !within(ids.token_types, n, 0, model.token_types))
            abort();
        for (int64_t i = 0; ids.mask && i < n; i++)
            if (ids.mask[i] > 1)
                abort();
        clv_input_batch_free(&ids);
    }
    return 0;
}
