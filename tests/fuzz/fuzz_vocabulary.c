/* fuzz_vocabulary.c - vocab.txt, with the tokenizer_config.json before the first zero byte. One that opens encodes and
 * decodes its own bytes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fuzz.h"
#include "cleave/tokenizer.h"

static int write_to(const char *path, const uint8_t *data, size_t size)
{
    FILE *file = fopen(path, "wb");
    size_t n = file ? fwrite(data, 1, size, file) : 0;
    return file && fclose(file) == 0 && n == size;
}

static char folder[] = "/dev/shm/fuzz_vocabulary.XXXXXX", vocab[64], config[64];

static void remove_folder(void)
{
    rmdir(folder);
}

static void make_folder(void)
{
    if (!mkdtemp(folder) || atexit(remove_folder) != 0)
        abort();
    snprintf(vocab, sizeof vocab, "%s/vocab.txt", folder);
    snprintf(config, sizeof config, "%s/tokenizer_config.json", folder);
}

static void round_trip(const clv_tokenizer *t, const char *text, size_t size)
{
    int64_t *ids, n;
    char *back;
    size_t length;
    if (clv_tokenizer_encode(t, text, size, true, &ids, &n, NULL) != CLV_OK)
        return;
    if (clv_tokenizer_decode(t, ids, n, &back, &length, NULL) == CLV_OK)
        free(back);
    free(ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *zero = size > 0 ? memchr(data, 0, size) : NULL;
    size_t first = zero ? (size_t)(zero - data) : 0, rest = zero ? first + 1 : 0;
    clv_tokenizer *t;
    if (vocab[0] == '\0')
        make_folder();
    if (write_to(config, data, first) && write_to(vocab, data + rest, size - rest) &&
        clv_tokenizer_open(&t, folder, NULL) == CLV_OK) {
        round_trip(t, (const char *)data, size);
        clv_tokenizer_free(t);
    }
    remove(vocab);
    remove(config);
    return 0;
}
