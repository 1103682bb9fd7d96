/* fuzz_tokenizer.c - tokenizer.json. One that opens encodes any bytes and a text of many kinds of characters, and
 * decodes what it made, and each of its tokens alone. */
#include <stdlib.h>

#include "fuzz.h"
#include "fuzz_file.h"
#include "cleave/tokenizer.h"

enum { SOME = 256 };

static void decode(const clv_tokenizer *t, const int64_t *ids, int64_t n)
{
    char *text;
    size_t size;
    if (clv_tokenizer_decode(t, ids, n, &text, &size, NULL) == CLV_OK)
        free(text);
}

static void round_trip(const clv_tokenizer *t, const char *text, size_t size)
{
    int64_t *ids, n;
    if (clv_tokenizer_encode(t, text, size, true, &ids, &n, NULL) != CLV_OK)
        return;
    for (int64_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= clv_tokenizer_vocab_size(t))
            abort();
    decode(t, ids, n);
    free(ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char kinds[] =
        "It's a TEST, 12345 <u>  ab\tc\r\n\xc3\x89t\xc3\xa9 e\xcc\x81\xcc\xa3 \xe6\x97\xa5\xe6\x9c\xac "
        "\xef\xac\x81 \xf0\x9f\x99\x82 \xc4\xb0 \xff\xe2\x82 ";
    char path[FUZZ_PATH];
    clv_tokenizer *t;
    if (!fuzz_file(path, data, size) || clv_tokenizer_open(&t, path, NULL) != CLV_OK)
        return 0;
    round_trip(t, kinds, sizeof kinds - 1);
    round_trip(t, (const char *)data, size < SOME ? size : SOME);
    for (int64_t id = 0; id < clv_tokenizer_vocab_size(t) && id < SOME; id++)
        decode(t, &id, 1);
    clv_tokenizer_free(t);
    return 0;
}
