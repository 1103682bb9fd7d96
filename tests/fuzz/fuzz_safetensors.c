/* fuzz_safetensors.c - safetensors files. Every tensor of one that opens can be read. */
#include <stdlib.h>

#include "fuzz.h"
#include "fuzz_file.h"
#include "io/checkpoint/safetensors.h"

static void read_all(const clv_safetensor *tensor)
{
    clv_shard whole = {.rank = tensor->rank};
    int64_t elems = 1;
    for (int d = 0; d < tensor->rank; d++) {
        whole.hi[d] = tensor->shape[d];
        elems *= tensor->shape[d];
    }
    void *out = elems <= 1 << 16 ? malloc((size_t)elems * 8 + 1) : NULL;
    if (out)
        clv_safetensors_read(tensor, &whole, CLV_F64, out, NULL);
    free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[FUZZ_PATH];
    clv_safetensors *file;
    if (!fuzz_file(path, data, size) || clv_safetensors_open(&file, path, NULL) != CLV_OK)
        return 0;
    for (int64_t i = 0; i < clv_safetensors_count(file); i++)
        read_all(clv_safetensors_at(file, i));
    clv_safetensors_close(file);
    return 0;
}
