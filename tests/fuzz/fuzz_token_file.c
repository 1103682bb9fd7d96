/* fuzz_token_file.c - token files. Every sequence of one that opens can be read, and its ids are of its vocabulary. */
#include <stdlib.h>

#include "cleave/data.h"
#include "fuzz.h"
#include "fuzz_file.h"

enum { SEQ = 3, MOST = 1000 };

static void read_all(const clv_data *data)
{
    clv_data_info info = {.size = sizeof info};
    int32_t ids[SEQ], labels[SEQ];
    if (clv_data_get_info(data, &info, NULL) != CLV_OK)
        abort();
    for (int64_t i = 0; i < info.sequences && i < MOST; i++) {
        if (clv_data_batch(data, i, 1, 0, 1, ids, labels, NULL, NULL) != CLV_OK)
            abort();
        for (int s = 0; s < SEQ; s++)
            if (ids[s] < 0 || ids[s] >= info.vocab || (labels[s] != -100 && (labels[s] < 0 || labels[s] >= info.vocab)))
                abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[FUZZ_PATH];
    const char *paths[] = {path};
    clv_data *open;
    if (!fuzz_file(path, data, size) || clv_data_open(&open, paths, 1, &(clv_data_options){.seq = SEQ}, NULL) != CLV_OK)
        return 0;
    read_all(open);
    clv_data_close(open);
    return 0;
}
