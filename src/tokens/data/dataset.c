/* dataset.c - training dataset over token files, text or rows: sequences, shuffled epochs, batches by (seed, step,
 * row).
 */
#include "cleave/data.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "io/files/file.h"
#include "io/files/file_kind.h"
#include "tokens/data/corpus_pipeline.h"
#include "tokens/data/epoch_shuffle.h"
#include "tokens/data/mlm_masking.h"
#include "tokens/data/row_file.h"
#include "tokens/data/token_file.h"

struct clv_data {
    clv_data_info info;
    uint64_t seed;
    bool sequential;
    int n;                 /* number of token files; 0: a file of rows */
    int n_fasta;           /* number of these that were FASTA */
    clv_token_file *files; /* [n] */
    int64_t *first;        /* [n + 1] index of each file's first id among all ids; then their number */
    clv_row_file rows;
    clv_mlm_masker masker;
    int64_t label_offset;         /* from an id to its label: 1; with masking 0 */
    clv_document_index documents; /* with one_document_per_row */
    int32_t pad_id;
};

enum { CROP_STREAM = 0x63726f70 };

/* ---- opening ---- */

/* A pipe or standard input is not read for this: it is text. */
static clv_file_kind detect_kind(const char *path)
{
    char beginning[CLV_FILE_KIND_BYTES];
    uint64_t size;
    int fd;
    if (clv_file_open(&fd, &size, path, NULL) != CLV_OK)
        return CLV_FILE_OTHER;
    size = size < sizeof beginning ? size : sizeof beginning;
    clv_status status = clv_file_read_at(fd, beginning, (size_t)size, 0, path, NULL);
    close(fd);
    return status == CLV_OK ? clv_file_kind_of(beginning, (size_t)size) : CLV_FILE_OTHER;
}

static bool ends_with(const char *path, const char *end)
{
    const char *dot = strrchr(path, '.');
    return dot && strcmp(dot, end) == 0;
}

static bool is_tokens(const char *path)
{
    return detect_kind(path) == CLV_FILE_TOKENS || ends_with(path, ".bin");
}

static bool is_rows(const char *path)
{
    return detect_kind(path) == CLV_FILE_SAFETENSORS || ends_with(path, ".safetensors");
}

int clv_data_is_text(const char *path)
{
    return path && !is_tokens(path) && !is_rows(path);
}

/* Opens a token file, or tokenizes a text. */
static clv_status open_file(clv_token_file *out, clv_corpus_info *info, const char *path, const clv_data_options *o,
                            clv_error *err)
{
    clv_corpus_encoder encoder;
    if (!o->treat_as_text && is_tokens(path))
        return clv_token_file_open(out, path, o->vocab, err);
    CLV_TRY(clv_corpus_encoder_open(&encoder, o->corpus, err));
    clv_status status = clv_corpus_tokenize_to_memory(out, info, &encoder, path, o->vocab, err);
    clv_corpus_encoder_close(&encoder);
    return status;
}

static clv_status open_files(clv_data *d, const char *const *paths, int n, const clv_data_options *o, clv_error *err)
{
    d->files = calloc((size_t)n, sizeof *d->files);
    d->first = calloc((size_t)n + 1, sizeof *d->first);
    if (!d->files || !d->first)
        return clv_fail_memory(err, "token files", (size_t)n * sizeof *d->files);
    for (d->n = 0; d->n < n; d->n++) {
        clv_token_file *f = &d->files[d->n];
        clv_corpus_info text = {0};
        CLV_TRY(open_file(f, &text, paths[d->n], o, err));
        d->info.skipped_lines += text.skipped_lines;
        d->n_fasta += text.records > 0 && text.records == text.documents;
        d->first[d->n + 1] = d->first[d->n] + f->header.count;
        d->info.vocab = f->header.vocab > d->info.vocab ? f->header.vocab : d->info.vocab;
        d->info.end_id = d->n == 0 || d->info.end_id == f->header.end_id ? f->header.end_id : -1;
    }
    d->info.tokens = d->first[n];
    return CLV_OK;
}

/* Number of sequences, which overlap by label_offset ids, or of documents. */
static clv_status count_sequences(clv_data *d, const char *path, const clv_data_options *o, clv_error *err)
{
    enum { DEFAULT_SEQ = 256 };
    int64_t seq = o->seq ? o->seq : DEFAULT_SEQ;
    if (seq < 1)
        return clv_fail(err, CLV_EINVAL, "sequences of %lld tokens; valid: 1 and above", (long long)seq);
    d->info.seq = seq;
    if (o->one_document_per_row > 0 || (o->one_document_per_row < 0 && d->n_fasta == d->n)) {
        CLV_TRY(clv_document_index_build(&d->documents, d->files, d->n, err));
        d->info.has_padding = 1;
        d->info.sequences = d->documents.n;
        return CLV_OK;
    }
    if (d->info.tokens - d->label_offset < seq)
        return clv_fail(err, CLV_EINVAL, "%s%s: %lld tokens, one sequence needs %llu: give more, or shorter sequences",
                        path, d->n > 1 ? " and others" : "", (long long)d->info.tokens,
                        (unsigned long long)seq + (unsigned long long)d->label_offset);
    d->info.sequences = (d->info.tokens - d->label_offset) / seq;
    return CLV_OK;
}

static clv_status open_rows(clv_data *d, const char *path, const clv_data_options *o, clv_error *err)
{
    CLV_TRY(clv_row_file_open(&d->rows, path, o->vocab, d->label_offset, err));
    if (o->seq != 0 && o->seq != d->rows.seq)
        return clv_fail(err, CLV_EINVAL, "%s: rows of %lld ids, and sequences are of %lld; valid: %lld", path,
                        (long long)d->rows.seq, (long long)o->seq, (long long)d->rows.seq);
    d->info.vocab = d->rows.vocab;
    d->info.end_id = -1;
    d->info.tokens = d->rows.rows * d->rows.seq;
    d->info.seq = d->rows.seq;
    d->info.sequences = d->rows.rows;
    d->info.has_padding = d->rows.mask != NULL;
    return CLV_OK;
}

/* Checksum of the ids and labels, the same on every machine. */
static clv_status compute_checksum(clv_data *d, clv_error *err)
{
    char digits[CLV_CHECKSUM_SIZE];
    clv_checksum *all = clv_checksum_new();
    size_t bytes = d->rows.ids ? (size_t)d->info.tokens * sizeof *d->rows.ids : 0;
    if (!all)
        return clv_fail_memory(err, "a checksum", 0);
    for (int i = 0; i < d->n; i++)
        clv_checksum_add(all, d->files[i].header.digest, CLV_TOKEN_FILE_DIGEST_SIZE);
    if (bytes > 0) {
        clv_checksum_add(all, &d->rows.seq, sizeof d->rows.seq);
        clv_checksum_add(all, d->rows.ids, bytes);
        clv_checksum_add(all, d->rows.labels, bytes);
        if (d->rows.mask)
            clv_checksum_add(all, d->rows.mask, bytes);
    }
    clv_checksum_text(digits, all);
    clv_checksum_free(all);
    digits[16] = '\0';
    d->info.checksum = strtoull(digits, NULL, 16);
    return CLV_OK;
}

static clv_status open_all(clv_data *d, const char *const *paths, int n, const clv_data_options *o, clv_error *err)
{
    int rows = 0;
    for (int i = 0; i < n; i++)
        rows += !o->treat_as_text && is_rows(paths[i]);
    if (n < 1)
        return clv_fail(err, CLV_EINVAL, "no file of data: at least one is needed");
    if (rows > 0 && n > 1)
        return clv_fail(err, CLV_EINVAL,
                        "%d files, some of them safetensors; valid: one of these, or files of tokens and texts", n);
    if (o->vocab < 0 || o->vocab > INT32_MAX)
        return clv_fail(err, CLV_EINVAL, "a vocabulary of %lld; valid: 1 to %d, 0: the file's", (long long)o->vocab,
                        INT32_MAX);
    d->seed = o->seed;
    d->sequential = o->sequential;
    d->label_offset = o->masking ? 0 : 1;
    if (rows > 0) {
        CLV_TRY(open_rows(d, paths[0], o, err));
    } else {
        CLV_TRY(open_files(d, paths, n, o, err));
        CLV_TRY(count_sequences(d, paths[0], o, err));
    }
    d->info.vocab = o->vocab ? o->vocab : d->info.vocab;
    if (o->pad_id < 0 || o->pad_id >= d->info.vocab)
        return clv_fail(err, CLV_EINVAL, "padding id %lld; the vocabulary is 0 to %lld", (long long)o->pad_id,
                        (long long)d->info.vocab - 1);
    d->pad_id = (int32_t)o->pad_id;
    if (o->masking && !d->rows.labelled)
        CLV_TRY(clv_mlm_masker_open(&d->masker, o->masking, d->info.vocab, d->seed, err));
    return compute_checksum(d, err);
}

clv_status clv_data_open(clv_data **out, const char *const *paths, int n, const clv_data_options *options,
                         clv_error *err)
{
    clv_data_options o;
    CLV_TRY(clv_require(out && options, __func__, "out and options", err));
    CLV_TRY(clv_options_copy_in(&o, sizeof o, sizeof o, options, __func__, err));
    for (int i = 0; i < n; i++)
        if (!paths || !paths[i])
            return clv_require(0, __func__, "n paths", err);
    clv_data *d = calloc(1, sizeof *d);
    if (!d)
        return clv_fail_memory(err, "data", sizeof *d);
    clv_status status = open_all(d, paths, n, &o, err);
    if (status == CLV_OK)
        *out = d;
    else
        clv_data_close(d);
    return status;
}

void clv_data_close(clv_data *d)
{
    if (!d)
        return;
    for (int i = 0; i < d->n; i++)
        clv_token_file_close(&d->files[i]);
    clv_row_file_close(&d->rows);
    clv_mlm_masker_close(&d->masker);
    clv_document_index_free(&d->documents);
    free(d->files);
    free(d->first);
    free(d);
}

clv_status clv_data_get_info(const clv_data *d, clv_data_info *out, clv_error *err)
{
    CLV_TRY(clv_require(d && out, __func__, "data, and where it goes", err));
    return clv_struct_copy_out(out, sizeof d->info, sizeof d->info, &d->info, __func__, err);
}

/* ---- batches ---- */

/* Applies `read` to ids [at, at + n) of the joined files, file by file. */
typedef clv_status part_reader(const clv_token_file *file, int64_t first, int64_t n, int32_t *out, clv_error *err);

static clv_status read_parts(const clv_data *d, int64_t at, int64_t n, int32_t *out, part_reader *read, clv_error *err)
{
    int i = 0;
    while (d->first[i + 1] <= at)
        i++;
    for (; n > 0; i++) {
        int64_t count = d->first[i + 1] - at < n ? d->first[i + 1] - at : n;
        CLV_TRY(read(&d->files[i], at - d->first[i], count, out, err));
        at += count;
        out += count;
        n -= count;
    }
    return CLV_OK;
}

/* Reads a row from ids [at, at + available) and pads it. Labels are the ids from label_offset on; with an offset of 1
 * the last one is read from the file. */
static clv_status read_row(const clv_data *d, int64_t at, int64_t available, int32_t *ids, int32_t *labels,
                           clv_error *err)
{
    int64_t seq = d->info.seq, n = available < seq ? available : seq,
            labelled = available - d->label_offset < seq ? available - d->label_offset : seq;
    CLV_TRY(read_parts(d, at, n, ids, clv_token_file_read, err));
    memcpy(labels, ids + d->label_offset, (size_t)(n - d->label_offset) * sizeof *labels);
    if (labelled > n - d->label_offset)
        CLV_TRY(read_parts(d, at + n, 1, labels + n - 1, clv_token_file_read, err));
    for (int64_t s = n; s < seq; s++)
        ids[s] = d->pad_id;
    for (int64_t s = labelled; s < seq; s++)
        labels[s] = CLV_IGNORE_INDEX;
    return labelled > 0 ? read_parts(d, at + d->label_offset, labelled, labels, clv_token_file_apply_loss_mask, err)
                        : CLV_OK;
}

/* Where a row begins in a document that is longer than it: 0 to `more`, by (seed, row). */
static int64_t crop(const clv_data *d, int64_t row, int64_t more)
{
    uint32_t bits[2];
    clv_key key = clv_key_fold_in(clv_key_seed(d->seed), (uint32_t)(d->seed >> 32));
    clv_threefry(clv_key_fold_in(key, CROP_STREAM), (uint32_t)((uint64_t)row >> 32), (uint32_t)row, bits);
    return (int64_t)(((uint64_t)bits[0] << 32 | bits[1]) % ((uint64_t)more + 1));
}

static clv_status read_document(const clv_data *d, int64_t row, int64_t i, int32_t *ids, int32_t *labels, uint8_t *mask,
                                clv_error *err)
{
    int64_t at = d->documents.first[i], n = d->documents.first[i + 1] - at, most = d->info.seq + d->label_offset;
    if (n > most) {
        at += d->sequential ? 0 : crop(d, row, n - most);
        n = most;
    }
    for (int64_t s = 0; mask && s < d->info.seq; s++)
        mask[s] = s < n;
    return read_row(d, at, n, ids, labels, err);
}

static void copy_row(const clv_data *d, int64_t i, int32_t *ids, int32_t *labels, uint8_t *mask)
{
    int64_t seq = d->info.seq;
    memcpy(ids, d->rows.ids + i * seq, (size_t)seq * sizeof *ids);
    memcpy(labels, d->rows.labels + i * seq, (size_t)seq * sizeof *labels);
    for (int64_t s = 0; mask && s < seq; s++)
        mask[s] = !d->rows.mask || d->rows.mask[i * seq + s] != 0;
}

/* mask may be NULL. */
static clv_status fill_row(const clv_data *d, int64_t row, int32_t *ids, int32_t *labels, uint8_t *mask, clv_error *err)
{
    int64_t n = d->info.sequences, seq = d->info.seq, i = row % n;
    if (!d->sequential)
        i = clv_epoch_shuffle_index(d->seed, row / n, n, i);
    if (d->n == 0) {
        copy_row(d, i, ids, labels, mask);
    } else if (d->documents.first) {
        CLV_TRY(read_document(d, row, i, ids, labels, mask, err));
    } else {
        if (mask)
            memset(mask, 1, (size_t)seq);
        CLV_TRY(read_row(d, i * seq, seq + d->label_offset, ids, labels, err));
    }
    if (d->masker.special)
        clv_mlm_mask_row(&d->masker, row, seq, ids, labels);
    return CLV_OK;
}

clv_status clv_data_batch(const clv_data *d, int64_t step, int64_t batch, int64_t first, int64_t rows, int32_t *ids,
                          int32_t *labels, uint8_t *mask, clv_error *err)
{
    int64_t begin, end;
    if (!d || !ids || !labels)
        return clv_require(0, __func__, "data, and where ids and labels go", err);
    bool known = step >= 0 && batch >= 1 && first >= 0 && rows >= 1 && rows <= batch && first <= batch - rows;
    if (!known || __builtin_mul_overflow(step, batch, &begin) || __builtin_add_overflow(begin, batch, &end))
        return clv_fail(
            err, CLV_EINVAL,
            "rows from %lld on, %lld of them, of a batch of %lld in step %lld; valid: rows of the batch, steps from 0",
            (long long)first, (long long)rows, (long long)batch, (long long)step);
    for (int64_t r = 0; r < rows; r++)
        CLV_TRY(fill_row(d, begin + first + r, ids + r * d->info.seq, labels + r * d->info.seq,
                         mask ? mask + r * d->info.seq : NULL, err));
    return CLV_OK;
}
