/* fuzz_fasta.c - sequences: the input as FASTA and as lines, with a token a byte. What is read has names and residues,
 * and batches hold each sequence once. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "infer/forward/length_batches.h"
#include "tokens/data/fasta.h"
#include "fuzz.h"

enum { MOST = 256, TOKENS = 64, PAD = 0 };

static char folder[] = "/dev/shm/fuzz_fasta.XXXXXX";

static void remove_folder(void)
{
    rmdir(folder);
}

static void check_sequences(const clv_sequences *all)
{
    for (int64_t i = 0; i < all->n; i++) {
        const clv_sequence *s = &all->item[i];
        if (!s->name || s->n_untruncated != (int64_t)strlen(s->text) ||
            s->n != (s->n_untruncated < MOST ? s->n_untruncated : MOST) || s->n < 1 || s->content_begin != 0 ||
            s->n_content != s->n || (all->fasta && s->text[strspn(s->text, clv_residues)] != '\0'))
            abort();
    }
}

static void check_batches(const clv_sequences *all)
{
    clv_length_batches b;
    int64_t seen = 0, tokens = 0, whole = 0;
    if (clv_length_batches_begin(&b, all, TOKENS, MOST, NULL) != CLV_OK)
        return;
    while (clv_length_batches_next(&b, PAD))
        for (int64_t r = 0; r < b.batch.rows; r++) {
            seen += b.batch.index[r] >= 0;
            for (int64_t i = 0; b.batch.index[r] >= 0 && i < b.batch.seq; i++)
                tokens += b.batch.mask[r * b.batch.seq + i];
        }
    for (int64_t i = 0; i < all->n; i++)
        whole += all->item[i].n;
    clv_length_batches_end(&b);
    if (seen != all->n || tokens != whole)
        abort();
}

static void try(const char *name, const uint8_t *data, size_t size)
{
    static clv_tokenizer *bytes;
    clv_sequences all;
    char path[64];
    if (!bytes && clv_tokenizer_new_bytes(&bytes, NULL) != CLV_OK)
        abort();
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(data, 1, size, file) != size || fclose(file) != 0)
        abort();
    for (int how = CLV_TOO_LONG_ERROR; how <= CLV_TOO_LONG_TRUNCATE; how++)
        if (clv_sequences_load(&all, path, bytes, MOST, &(clv_sequences_options){.too_long = (clv_too_long)how},
                               NULL) == CLV_OK) {
            for (int64_t i = 0; i < all.n_skipped; i++) /* a token is a byte, so that all but nothing can be cut */
                if (how != CLV_TOO_LONG_SKIP && (how == CLV_TOO_LONG_ERROR || all.skipped[i].n > 0))
                    abort();
            check_sequences(&all);
            check_batches(&all);
            clv_sequences_reset(&all);
        }
    remove(path);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int made;
    if (!made && (!mkdtemp(folder) || atexit(remove_folder) != 0))
        abort();
    made = 1;
    try("input.fasta", data, size);
    try("input.txt", data, size);
    return 0;
}
