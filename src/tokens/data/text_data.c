/* text_data.c - byte-level dataset of text files in memory, random windows by (seed, step, row). */
#include "cleave/text_data.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "cleave/rng.h"
#include "io/files/checksum.h"
#include "io/files/text_file.h"

struct clv_text_data {
    uint8_t *bytes;
    int64_t size;
};

static const int64_t max_bytes = INT64_C(16) << 30;

static clv_status read_text(char **out, size_t *size, const char *path, size_t limit, clv_error *err)
{
    clv_text_file *file;

    CLV_TRY(clv_text_file_open(&file, path, err));
    clv_text_file_set_raw(file, false);
    clv_status status = clv_text_file_read_all(file, out, size, limit, err);
    clv_text_file_close(file);
    return status;
}

/* Appends a file, after a boundary where there is text before it. */
static clv_status append(clv_text_data *data, const char *path, clv_error *err)
{
    char *text = NULL;
    size_t size = 0, boundary = data->size > 0;
    uint8_t *bytes;

    CLV_TRY(read_text(&text, &size, path, (size_t)(max_bytes - data->size), err));
    if (size == 0) {
        free(text);
        return clv_fail(err, CLV_EINVAL, "%s: empty, there is nothing to train on", path);
    }
    bytes = realloc(data->bytes, (size_t)data->size + boundary + size);
    if (bytes == NULL) {
        free(text);
        return clv_fail_memory(err, path, (size_t)data->size + boundary + size);
    }
    if (boundary)
        bytes[data->size] = 0;
    memcpy(bytes + data->size + boundary, text, size);
    free(text);
    data->bytes = bytes;
    data->size += (int64_t)(boundary + size);
    return CLV_OK;
}

static clv_status read_all(clv_text_data *data, const char *const *paths, int n, int64_t seq, clv_error *err)
{
    if (n < 1)
        return clv_fail(err, CLV_EINVAL, "no text file: at least one is needed");
    for (int i = 0; i < n; i++)
        CLV_TRY(append(data, paths[i], err));
    if (seq < 1)
        return clv_fail(err, CLV_EINVAL, "sequences of %lld tokens; valid: 1 and above", (long long)seq);
    if (data->size <= seq)
        return clv_fail(err, CLV_EINVAL,
                        "%s%s: %lld bytes of text, one sequence needs %llu: give more, or shorter "
                        "sequences",
                        paths[0], n > 1 ? " and others" : "", (long long)data->size, (unsigned long long)seq + 1);
    return CLV_OK;
}

clv_status clv_text_data_open(clv_text_data **out, const char *const *paths, int n, int64_t seq, clv_error *err)
{
    CLV_TRY(clv_require(out && (paths || n < 1), "clv_text_data_open", "out and paths", err));
    for (int i = 0; i < n; i++)
        CLV_TRY(clv_require(paths[i] != NULL, "clv_text_data_open", "n paths", err));
    clv_text_data *data = calloc(1, sizeof *data);
    if (data == NULL)
        return clv_fail_memory(err, "text", sizeof *data);
    clv_status status = read_all(data, paths, n, seq, err);

    if (status == CLV_OK)
        *out = data;
    else
        clv_text_data_close(data);
    return status;
}

void clv_text_data_close(clv_text_data *data)
{
    if (data == NULL)
        return;
    free(data->bytes);
    free(data);
}

int64_t clv_text_data_size(const clv_text_data *data)
{
    return data != NULL ? data->size : 0;
}

uint64_t clv_text_data_checksum(const clv_text_data *data)
{
    char digits[CLV_CHECKSUM_SIZE];

    if (data == NULL)
        return 0;
    clv_checksum_of(digits, data->bytes, (size_t)data->size);
    digits[16] = '\0';
    return strtoull(digits, NULL, 16);
}

/* A number below n, from 64 random bits: the bias is below n / 2^64. */
static int64_t draw_below(clv_key key, int64_t row, int64_t n)
{
    uint32_t bits[2];

    clv_random_bits(bits, key, 2 * (uint64_t)row, 2);
    return (int64_t)(((uint64_t)bits[0] << 32 | bits[1]) % (uint64_t)n);
}

clv_status clv_text_data_batch(const clv_text_data *data, uint64_t seed, int64_t step, int64_t first, int64_t rows,
                               int64_t seq, int32_t *ids, int32_t *labels, clv_error *err)
{
    CLV_TRY(clv_require(data && ids && labels, "clv_text_data_batch", "data, and where ids and labels go", err));
    if (rows < 1 || seq < 1 || seq >= data->size)
        return clv_fail(err, CLV_EINVAL, "%lld rows of %lld bytes; valid: 1 and above, 1 to %lld", (long long)rows,
                        (long long)seq, (long long)data->size - 1);
    clv_key key = clv_key_fold_in(clv_key_seed(seed), (uint32_t)(seed >> 32));

    key = clv_key_fold_in(clv_key_fold_in(key, (uint32_t)step), (uint32_t)((uint64_t)step >> 32));
    for (int64_t r = 0; r < rows; r++) {
        const uint8_t *text = data->bytes + draw_below(key, first + r, data->size - seq);
        for (int64_t s = 0; s < seq; s++) {
            ids[r * seq + s] = text[s];
            labels[r * seq + s] = text[s + 1];
        }
    }
    return CLV_OK;
}
