/* fuzz_tokenizer.c - tokenizer.json. One that opens encodes any bytes and decodes what it made. */
#include <stdlib.h>

#include "fuzz.h"
#include "fuzz_file.h"
#include "io/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[FUZZ_PATH], *text;
    int64_t *ids, n;
    size_t length;
    clv_tokenizer *t;
    if (!fuzz_file(path, data, size) || clv_tokenizer_open(&t, path, NULL) != CLV_OK)
        return 0;
    if (clv_tokenizer_encode(t, (const char *)data, size < 256 ? size : 256, true, &ids, &n, NULL) == CLV_OK) {
        if (clv_tokenizer_decode(t, ids, n, &text, &length, NULL) == CLV_OK)
            free(text);
        free(ids);
    }
    clv_tokenizer_free(t);
    return 0;
}
