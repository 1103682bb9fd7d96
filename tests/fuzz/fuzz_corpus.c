/* fuzz_corpus.c - the input as JSON, with a text or with turns, as a text and as FASTA, a byte a token. What
 * is read has as many ids as were counted, and each of them is a byte. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "fuzz.h"
#include "tokens/data/corpus_pipeline.h"

static char folder[] = "/dev/shm/fuzz_corpus.XXXXXX";

static void remove_folder(void)
{
    rmdir(folder);
}

typedef struct seen {
    int64_t n, loss_tokens;
} seen;

static clv_status look(void *arg, const clv_corpus_ids *ids, clv_error *err)
{
    seen *s = arg;
    for (int64_t i = 0; i < ids->n; i++) {
        if (ids->id[i] < 0 || ids->id[i] > 255)
            abort();
        s->loss_tokens += !ids->loss_mask || ids->loss_mask[i];
    }
    s->n += ids->n;
    return CLV_OK;
}

static void try(const char *name, const uint8_t *data, size_t size, int chat)
{
    clv_corpus_encoder form;
    clv_corpus_info info;
    seen s = {0};
    char path[64];
    const char *paths[] = {path};
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(data, 1, size, file) != size || fclose(file) != 0)
        abort();
    const clv_corpus_options options = {.size = sizeof options, .chat = chat, .threads = 1, .skip_bad_lines = size % 2};
    if (clv_corpus_encoder_open(&form, &options, NULL) != CLV_OK)
        abort();
    if (clv_corpus_tokenize_parallel(&info, &form, paths, 1, look, &s, NULL) == CLV_OK &&
        (info.tokens != s.n || info.loss_tokens != s.loss_tokens || info.documents < 1))
        abort();
    clv_corpus_encoder_close(&form);
    remove(path);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int made;
    if (!made && (!mkdtemp(folder) || atexit(remove_folder) != 0))
        abort();
    made = 1;
    try("input.jsonl", data, size, 0);
    try("input.jsonl", data, size, 1);
    try("input.txt", data, size, 0);
    try("input.json", data, size, 0);
    try("input.fasta", data, size, 0);
    return 0;
}
