/* test_dataset.c - token files and rows as training data: the order of an epoch, batches that depend on (seed, step,
 * row) alone, the bytes of a token file, and the files to refuse. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cleave/checkpoint.h"
#include "cleave/data.h"
#include "io/files/file.h"
#include "must.h"
#include "temp_folder.h"
#include "tokens/data/epoch_shuffle.h"
#include "unit_test.h"

/* ---- the order ---- */

static void expect_permutation(uint64_t seed, int64_t epoch, int64_t n)
{
    char *seen = calloc((size_t)n, 1);
    assert_non_null(seen);
    for (int64_t i = 0; i < n; i++) {
        int64_t item = clv_epoch_shuffle_index(seed, epoch, n, i);
        if (item < 0 || item >= n || seen[item]++)
            fail_msg("seed %llu, epoch %lld: %lld of %lld is %lld", (unsigned long long)seed, (long long)epoch,
                     (long long)i, (long long)n, (long long)item);
    }
    free(seen);
}

static void test_permutations(void **state)
{
    for (int64_t n = 1; n < 70; n++)
        expect_permutation(n % 3 == 0 ? UINT64_MAX : (uint64_t)n, n % 5, n);
    for (int64_t n = 255; n < 4100; n = 4 * n + 1) /* 2^8, 2^10, 2^12: about where there is another bit */
        for (int64_t d = -1; d <= 2; d++)
            expect_permutation(7, INT64_MAX, n + d);
    expect_permutation(1, 0, 100003);
}

/* Another seed, or another epoch, gives another order, in which at most one item keeps its position. */
static void test_orders_differ(void **state)
{
    enum { N = 10000 };
    static const struct {
        uint64_t seed;
        int64_t epoch;
    } of[] = {{1, 0}, {1, 1}, {2, 0}, {1 + (UINT64_C(1) << 32), 0}, {1, INT64_C(1) << 32}};
    for (size_t a = 0; a < 5; a++)
        for (size_t b = 0; b < a; b++) {
            int same = 0;
            for (int64_t i = 0; i < N; i++)
                same += clv_epoch_shuffle_index(of[a].seed, of[a].epoch, N, i) ==
                        clv_epoch_shuffle_index(of[b].seed, of[b].epoch, N, i);
            assert_in_range(same, 0, 8); /* of a random pair one is expected: more than 8 by chance in 10^6 of them */
        }
    int rising = 0;
    for (int64_t i = 1; i < N; i++)
        rising += clv_epoch_shuffle_index(1, 0, N, i) > clv_epoch_shuffle_index(1, 0, N, i - 1);
    assert_in_range(rising, N / 2 - 150, N / 2 + 150); /* five standard deviations of a random order, sqrt(N / 12) */
}

/* A run that goes on with another build goes on with the same data. */
static void test_order_stays(void **state)
{
    static const int64_t first[] = {658, 416, 806, 825},
                         large[] = {INT64_C(4399225271929532189), INT64_C(3325916291920580885),
                                    INT64_C(1645365715753969493), INT64_C(1291250565349280532)};
    for (int64_t i = 0; i < 4; i++) {
        assert_int_equal(clv_epoch_shuffle_index(1, 0, 1000, i), first[i]);
        assert_int_equal(clv_epoch_shuffle_index(3, 2, INT64_C(1) << 62, i), large[i]);
    }
}

/* ---- token files ---- */

static void write_ids(const char *name, int64_t vocab, const int32_t *ids, const uint8_t *learned, int64_t n)
{
    clv_error err = {0};
    clv_token_writer *w;
    clv_token_writer_options o = {.size = sizeof o, .vocab = vocab, .end_id = -1, .has_loss_mask = learned != NULL};
    must(clv_token_writer_create(&w, in_folder("%s", name), &o, &err), &err);
    must(clv_token_writer_add(w, ids, learned, n / 3, &err), &err);
    must(clv_token_writer_add(w, ids + n / 3, learned ? learned + n / 3 : NULL, n - n / 3, &err), &err);
    must(clv_token_writer_commit(w, &err), &err);
}

static clv_data *open_ids(const char *name, const char *other, const clv_data_options *o)
{
    clv_error err = {0};
    clv_data *data;
    const char *const paths[] = {in_folder("%s", name), other ? in_folder("%s", other) : NULL};
    must(clv_data_open(&data, paths, other ? 2 : 1, o, &err), &err);
    return data;
}

static clv_data_info info_of(const clv_data *data)
{
    clv_data_info info = {.size = sizeof info};
    assert_int_equal(clv_data_get_info(data, &info, NULL), CLV_OK);
    return info;
}

/* Ids of two files, cut at whatever place, are those of one; labels follow ids. */
static void test_scoring(void **state)
{
    enum { N = 24, SEQ = 4, ROWS = (N - 1) / SEQ };
    static const int64_t vocabularies[] = {65536, 65537, INT32_MAX};
    for (int v = 0; v < 3; v++)
        for (int cut = 1; cut < N; cut++) {
            int32_t all[N], ids[ROWS * SEQ], labels[ROWS * SEQ];
            for (int i = 0; i < N; i++)
                all[i] = (int32_t)(vocabularies[v] - 1 - i);
            write_ids("a", vocabularies[v], all, NULL, cut);
            write_ids("b", vocabularies[v], all + cut, NULL, N - cut);
            clv_data *data = open_ids("a", "b", &(clv_data_options){.seq = SEQ, .sequential = 1});
            clv_data_info info = info_of(data);
            assert_true(info.tokens == N && info.sequences == ROWS && info.seq == SEQ &&
                        info.vocab == vocabularies[v] && info.checksum != 0);
            assert_int_equal(clv_data_batch(data, 0, ROWS, 0, ROWS, ids, labels, NULL, NULL), CLV_OK);
            for (int i = 0; i < ROWS * SEQ; i++)
                assert_true(ids[i] == all[i] && labels[i] == all[i + 1]);
            assert_int_equal(clv_data_batch(data, 1, ROWS + 1, 0, 1, ids, labels, NULL, NULL), CLV_OK);
            assert_int_equal(ids[0], all[SEQ]); /* row ROWS + 1 of all epochs */
            clv_data_close(data);
        }
}

/* Every sequence once an epoch, whoever makes the rows; another epoch has another order. */
static void test_epochs(void **state)
{
    enum { SEQ = 3, N = 50, BATCH = 10, EPOCH = N / BATCH };
    int32_t all[N * SEQ + 1], ids[2][N * SEQ], labels[2][N * SEQ], part[2][4 * SEQ];
    for (int i = 0; i <= N * SEQ; i++)
        all[i] = i;
    write_ids("a", 1000, all, NULL, N * SEQ + 1);
    clv_data *data = open_ids("a", NULL, &(clv_data_options){.seq = SEQ, .seed = 5});
    for (int epoch = 0; epoch < 2; epoch++) {
        char seen[N] = {0};
        for (int step = 0; step < EPOCH; step++)
            assert_int_equal(clv_data_batch(data, epoch * EPOCH + step, BATCH, 0, BATCH,
                                            ids[epoch] + step * BATCH * SEQ, labels[epoch] + step * BATCH * SEQ, NULL,
                                            NULL),
                             CLV_OK);
        for (int r = 0; r < N; r++) {
            assert_int_equal(ids[epoch][r * SEQ] % SEQ, 0);
            assert_false(seen[ids[epoch][r * SEQ] / SEQ]++);
            for (int s = 0; s < SEQ; s++)
                assert_int_equal(labels[epoch][r * SEQ + s], ids[epoch][r * SEQ] + s + 1);
        }
    }
    assert_memory_not_equal(ids[0], ids[1], sizeof ids[0]);
    for (int first = 0; first + 4 <= BATCH; first += 2) { /* rows that a rank makes */
        assert_int_equal(clv_data_batch(data, 3, BATCH, first, 4, part[0], part[1], NULL, NULL), CLV_OK);
        assert_memory_equal(part[0], ids[0] + (3 * BATCH + first) * SEQ, sizeof part[0]);
        assert_memory_equal(part[1], labels[0] + (3 * BATCH + first) * SEQ, sizeof part[1]);
    }
    assert_int_equal(clv_data_batch(data, 0, 2 * N, N + 3, 4, part[0], part[1], NULL, NULL),
                     CLV_OK); /* the second epoch */
    assert_memory_equal(part[0], ids[1] + 3 * SEQ, sizeof part[0]);
    clv_data_close(data);
}

/* What is not learned is no label, wherever in a byte its bit is. */
static void test_masked(void **state)
{
    enum { N = 10000, SEQ = 4999, ROWS = 2 };
    static int32_t all[N], ids[ROWS * SEQ], labels[ROWS * SEQ];
    static uint8_t learned[N];
    for (int i = 0; i < N; i++) {
        all[i] = i;
        learned[i] = i % 7 < 3 || i % 11 == 0;
    }
    write_ids("a", N, all, learned, N);
    clv_data *data = open_ids("a", NULL, &(clv_data_options){.seq = SEQ, .sequential = 1});
    assert_int_equal(clv_data_batch(data, 0, ROWS, 0, ROWS, ids, labels, NULL, NULL), CLV_OK);
    for (int i = 0; i < ROWS * SEQ; i++)
        assert_true(ids[i] == all[i] && labels[i] == (learned[i + 1] ? all[i + 1] : CLV_IGNORE_INDEX));
    clv_data_close(data);
}

/* More than a piece that is read and written at once, and more than one file's checksum. */
static void test_long_file(void **state)
{
    enum { N = (1 << 20) + 12345, SEQ = 1000 };
    static int32_t ids[SEQ], labels[SEQ];
    int32_t *all = malloc(N * sizeof *all);
    assert_non_null(all);
    for (int i = 0; i < N; i++)
        all[i] = i;
    write_ids("a", N, all, NULL, N);
    clv_data *data = open_ids("a", NULL, &(clv_data_options){.seq = SEQ, .sequential = 1});
    int64_t last = info_of(data).sequences - 1;
    uint64_t checksum = info_of(data).checksum;
    assert_int_equal(clv_data_batch(data, last, 1, 0, 1, ids, labels, NULL, NULL), CLV_OK);
    assert_true(ids[0] == last * SEQ && labels[SEQ - 1] == (last + 1) * SEQ);
    clv_data_close(data);
    all[N - 1]--;
    write_ids("a", N, all, NULL, N);
    data = open_ids("a", NULL, &(clv_data_options){.seq = SEQ});
    assert_true(info_of(data).checksum != checksum);
    clv_data_close(data);
    free(all);
}

/* ---- the format, byte by byte ---- */

static const uint8_t plain[] = {'C', 'L', 'V', 'T', 'O', 'K', 'E',  'N', 1, 0, 0, 0, 2,    0, 0, 0, 3, 0,
                                0,   0,   0,   0,   0,   0,   0xe8, 3,   0, 0, 9, 0, 0,    0, 0, 0, 0, 0,
                                0,   0,   0,   0,   0,   0,   0,    0,   0, 0, 0, 0, 0,    0, 0, 0, 0, 0,
                                0,   0,   0,   0,   0,   0,   0,    0,   0, 0, 7, 0, 0x02, 1, 9, 0};

static clv_status open_bytes(const uint8_t *bytes, size_t size, int64_t vocab, clv_error *err)
{
    clv_data *data;
    const char *path = in_folder("bytes.bin");
    assert_int_equal(clv_file_write(path, bytes, size, NULL), CLV_OK);
    clv_status status = clv_data_open(&data, &path, 1, &(clv_data_options){.seq = 2, .vocab = vocab}, err);
    if (status == CLV_OK)
        clv_data_close(data);
    return status;
}

/* A file as any program writes it, without checksums; and the same by the library, which has them. */
static void test_format(void **state)
{
    static const int32_t ids[] = {7, 258, 9};
    clv_token_writer *w;
    clv_token_writer_options o = {.size = sizeof o, .vocab = 1000, .end_id = 9};
    clv_error err = {0};
    char *bytes;
    size_t size;
    must(open_bytes(plain, sizeof plain, 0, &err), &err);
    assert_int_equal(clv_token_writer_create(&w, in_folder("a"), &o, NULL), CLV_OK);
    assert_int_equal(clv_token_writer_add(w, ids, NULL, 3, NULL), CLV_OK);
    assert_int_equal(clv_token_writer_commit(w, NULL), CLV_OK);
    assert_int_equal(clv_file_read(&bytes, &size, in_folder("a"), 1000, NULL), CLV_OK);
    assert_int_equal(size, sizeof plain);
    assert_memory_equal(bytes, plain, 40);
    assert_memory_equal(bytes + 64, plain + 64, size - 64);
    /* xxhash.xxh3_128_digest of the ids, and of the header before, in Python */
    static const uint8_t sums[] = {0xd4, 0x4b, 0x07, 0x7e, 0xf3, 0xf0, 0x92, 0x95, 0x09, 0x74, 0x51, 0xb8,
                                   0x87, 0x53, 0xf6, 0x20, 0xc5, 0xf5, 0x51, 0x3d, 0xa9, 0x90, 0xc8, 0xb9};
    assert_memory_equal(bytes + 40, sums, sizeof sums);
    for (size_t i = 0; i < size; i++) { /* one bit turned anywhere is seen */
        bytes[i] ^= 4;
        clv_status status = open_bytes((const uint8_t *)bytes, size, 0, &err);
        bool is_id = status == CLV_EINVAL && i >= 64; /* beyond the vocabulary */
        if (status != CLV_EFORMAT && status != CLV_EUNSUPPORTED && !is_id)
            fail_msg("byte %zu: %s", i, clv_status_name(status));
        bytes[i] ^= 4;
    }
    free(bytes);
}

static void expect_refused(clv_status status, const uint8_t *bytes, size_t size, int64_t vocab, const char *says)
{
    clv_error err = {0};
    assert_int_equal(open_bytes(bytes, size, vocab, &err), status);
    if (!strstr(err.message, says) || !strstr(err.message, "bytes.bin:"))
        fail_msg("'%s' lacks '%s'", err.message, says);
}

static void test_refused(void **state)
{
    static const struct {
        size_t at;
        uint8_t to;
        clv_status status;
        const char *says;
    } wrong[] = {
        {0, 'c', CLV_EFORMAT, "no token file"},
        {8, 2, CLV_EUNSUPPORTED, "version 2"},
        {12, 3, CLV_EFORMAT, "ids of 3 bytes"},
        {16, 4, CLV_EFORMAT, "cut"},
        {16, 2, CLV_EFORMAT, "cut"},
        {23, 0x80, CLV_EFORMAT, "cut"},
        {16, 0, CLV_EINVAL, "no id"},
        {25, 0, CLV_EINVAL, "id 258 at 1; the vocabulary is 0 to 231"},
        {27, 0x80, CLV_EFORMAT, "vocabulary"},
        {31, 0x80, CLV_EFORMAT, "end id"},
        {29, 4, CLV_EFORMAT, "end id"},
        {33, 1, CLV_EUNSUPPORTED, "flags 256"},
        {32, 1, CLV_EFORMAT, "cut"},
        {40, 1, CLV_EFORMAT, "damaged"},
        {56, 1, CLV_EFORMAT, "damaged"},
    };
    uint8_t bytes[sizeof plain];
    clv_data *data;
    clv_error err = {0};
    const char *path;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        memcpy(bytes, plain, sizeof plain);
        bytes[wrong[i].at] = wrong[i].to;
        expect_refused(wrong[i].status, bytes, sizeof bytes, 0, wrong[i].says);
    }
    expect_refused(CLV_EINVAL, plain, sizeof plain, 258, "id 258 at 1; the vocabulary is 0 to 257");
    expect_refused(CLV_EINVAL, plain, 0, 0, "empty");
    expect_refused(CLV_EFORMAT, plain, 63, 0, "no token file");
    expect_refused(CLV_EFORMAT, plain, 69, 0, "cut");
    path = in_folder("nowhere");
    assert_int_equal(clv_data_open(&data, &path, 1, &(clv_data_options){.seq = 2}, NULL), CLV_ENOTFOUND);
    path = folder;
    assert_int_equal(clv_data_open(&data, &path, 1, &(clv_data_options){.seq = 2}, NULL), CLV_EFORMAT);
    assert_int_equal(clv_file_write(in_folder("good"), plain, sizeof plain, NULL), CLV_OK);
    path = in_folder("good");
    assert_int_equal(clv_data_open(&data, &path, 0, &(clv_data_options){.seq = 2}, NULL), CLV_EINVAL);
    assert_int_equal(clv_data_open(&data, &path, 1, &(clv_data_options){.seq = 0}, NULL), CLV_EINVAL);
    assert_int_equal(clv_data_open(&data, &path, 1, &(clv_data_options){.seq = INT64_MAX}, NULL), CLV_EINVAL);
    assert_int_equal(clv_data_open(&data, &path, 1, &(clv_data_options){.seq = 3}, &err), CLV_EINVAL);
    assert_non_null(strstr(err.message, "3 tokens, one sequence needs 4"));
    assert_int_equal(clv_data_open(&data, &path, 1, &(clv_data_options){.seq = 2, .vocab = -1}, NULL), CLV_EINVAL);
}

static void test_wrong_calls(void **state)
{
    int32_t ids[8] = {0, 1}, labels[8];
    clv_token_writer *w = NULL;
    clv_token_writer_options o = {.size = sizeof o, .vocab = 2, .end_id = -1};
    clv_error err = {0};
    clv_data_info info = {0};
    write_ids("a", 1000, (const int32_t[]){1, 2, 3, 4, 5}, NULL, 5);
    clv_data *data = open_ids("a", NULL, &(clv_data_options){.seq = 2});
    static const int64_t wrong[][4] = {{-1, 4, 0, 1}, {0, 0, 0, 1},         {0, 4, -1, 1}, {0, 4, 0, 0},
                                       {0, 4, 0, 5},  {INT64_MAX, 4, 0, 1}, {0, 4, 4, 1},  {0, 4, INT64_MAX, 1}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_int_equal(
            clv_data_batch(data, wrong[i][0], wrong[i][1], wrong[i][2], wrong[i][3], ids, labels, NULL, NULL),
            CLV_EINVAL);
    assert_int_equal(clv_data_batch(NULL, 0, 1, 0, 1, ids, labels, NULL, NULL), CLV_EINVAL);
    assert_int_equal(clv_data_batch(data, 0, 1, 0, 1, NULL, labels, NULL, NULL), CLV_EINVAL);
    assert_int_equal(clv_data_get_info(NULL, &info, NULL), CLV_EINVAL);
    assert_int_equal(clv_data_get_info(data, NULL, NULL), CLV_EINVAL);
    assert_int_equal(clv_data_open(NULL, NULL, 0, NULL, NULL), CLV_EINVAL);
    clv_data_close(data);
    clv_data_close(NULL);

    const char *path = in_folder("kept");
    assert_int_equal(clv_file_write(path, "kept", 4, NULL), CLV_OK);
    for (int i = 0; i < 3; i++) { /* an id too large, then none, then given up: what stood there stays */
        assert_int_equal(clv_token_writer_create(&w, path, &o, &err), CLV_OK);
        if (i == 0) {
            assert_int_equal(clv_token_writer_add(w, (const int32_t[]){1, 2}, NULL, 2, &err), CLV_EINVAL);
            assert_non_null(strstr(err.message, "id 2 at 1"));
        }
        if (i == 1)
            assert_int_equal(clv_token_writer_commit(w, NULL), CLV_EINVAL);
        else
            clv_token_writer_abort(w);
    }
    char *text;
    size_t size;
    assert_int_equal(clv_file_read(&text, &size, path, 100, NULL), CLV_OK);
    assert_string_equal(text, "kept");
    free(text);
    assert_int_equal(clv_token_writer_create(&w, path, &o, NULL), CLV_OK);
    assert_int_equal(clv_token_writer_add(w, ids, (const uint8_t[]){1, 1}, 2, NULL), CLV_EINVAL); /* not masked */
    assert_int_equal(clv_token_writer_add(w, ids, NULL, -1, NULL), CLV_EINVAL);
    clv_token_writer_abort(w);
    clv_token_writer_abort(NULL);
    assert_int_equal(clv_token_writer_add(NULL, ids, NULL, 1, NULL), CLV_EINVAL);
    assert_int_equal(clv_token_writer_commit(NULL, NULL), CLV_EINVAL);
    assert_int_equal(clv_token_writer_create(&w, NULL, &o, NULL), CLV_EINVAL);
    assert_int_equal(clv_token_writer_create(&w, in_folder("no/a"), &o, NULL), CLV_ENOTFOUND);
    for (int i = 0; i < 4; i++) {
        static const int64_t vocab[] = {0, INT64_C(1) << 31, 4, 4}, end[] = {-1, -1, 4, -2};
        clv_token_writer_options bad = {.vocab = vocab[i], .end_id = end[i]};
        assert_int_equal(clv_token_writer_create(&w, path, &bad, NULL), CLV_EINVAL);
    }
}

/* ---- rows ---- */

static void write_rows(const char *name, const char *first, const int64_t *ids, const char *second,
                       const int64_t *labels, int64_t labels_seq, int64_t rows, int64_t seq)
{
    clv_checkpoint_writer *w;
    clv_error err = {0};
    must(clv_checkpoint_create(&w, in_folder("%s", name), &err), &err);
    must(clv_checkpoint_add_tensor(w, first, CLV_I64, 2, (const int64_t[]){rows, seq}, &err), &err);
    if (second)
        must(clv_checkpoint_add_tensor(w, second, CLV_I64, 2, (const int64_t[]){rows, labels_seq}, &err), &err);
    must(clv_checkpoint_write(w, 0, NULL, ids, &err), &err);
    if (second)
        must(clv_checkpoint_write(w, 1, NULL, labels, &err), &err);
    must(clv_checkpoint_commit(w, &err), &err);
}

/* Row i of all epochs is row i mod N. */
static void test_rows(void **state)
{
    enum { N = 3, SEQ = 2 };
    static const int64_t rows[N * SEQ] = {0, 1, 2, 3, 4, 5}, given[N * SEQ] = {9, -100, 8, 7, -100, 6};
    int32_t ids[2 * SEQ], labels[2 * SEQ];
    write_rows("r.safetensors", "ids", rows, NULL, NULL, 0, N, SEQ);
    clv_data *data = open_ids("r.safetensors", NULL, &(clv_data_options){.sequential = 1});
    clv_data_info info = info_of(data);
    uint64_t checksum = info.checksum;
    assert_true(info.sequences == N && info.seq == SEQ && info.vocab == 6 && info.tokens == N * SEQ);
    assert_int_equal(clv_data_batch(data, 1, 2, 0, 2, ids, labels, NULL, NULL), CLV_OK); /* rows 2 and 0 */
    assert_memory_equal(ids, ((const int32_t[]){4, 5, 0, 1}), sizeof ids);
    assert_memory_equal(labels, ((const int32_t[]){5, -100, 1, -100}), sizeof labels);
    clv_data_close(data);
    write_rows("r.safetensors", "ids", rows, "mask", (const int64_t[]){0, 1, 1, 1, 1, 0}, SEQ, N, SEQ);
    data = open_ids("r.safetensors", NULL, &(clv_data_options){.sequential = 1});
    uint8_t mask[N * SEQ];
    int32_t all_ids[N * SEQ], all_labels[N * SEQ];
    assert_int_equal(clv_data_batch(data, 0, N, 0, N, all_ids, all_labels, mask, NULL), CLV_OK);
    assert_memory_equal(all_labels, ((const int32_t[]){-100, -100, 3, -100, -100, -100}), sizeof all_labels);
    clv_data_close(data);
    write_rows("r.safetensors", "ids", rows, "labels", given, SEQ, N, SEQ);
    data = open_ids("r.safetensors", NULL, &(clv_data_options){.sequential = 1, .seq = 2, .vocab = 10});
    assert_true(info_of(data).vocab == 10 && info_of(data).checksum != checksum);
    assert_int_equal(clv_data_batch(data, 1, 2, 0, 2, ids, labels, NULL, NULL), CLV_OK);
    assert_memory_equal(labels, ((const int32_t[]){-100, 6, 9, -100}), sizeof labels);
    clv_data_close(data);
}

static void expect_rows_refused(const clv_data_options *o, clv_status status, const char *says)
{
    clv_data *data;
    clv_error err = {0};
    const char *const paths[] = {in_folder("r.safetensors"), in_folder("a")};
    assert_int_equal(clv_data_open(&data, paths, o ? 1 : 2, o ? o : &(clv_data_options){.seq = 2}, &err), status);
    if (!strstr(err.message, says))
        fail_msg("'%s' lacks '%s'", err.message, says);
}

static void test_rows_refused(void **state)
{
    static const int64_t rows[] = {0, 1, 2, 3, 4, -5}, good[] = {0, 1, 2, 3, 4, 5}, low[] = {0, 1, -100, -99, 4, 5};
    const clv_data_options any = {.seq = 0}, three = {.seq = 3}, four = {.vocab = 4};
    write_rows("r.safetensors", "ids", rows, NULL, NULL, 0, 3, 2);
    expect_rows_refused(&any, CLV_EINVAL, "ids is -5 at [2,1]");
    write_rows("r.safetensors", "ids", good, "labels", low, 2, 3, 2);
    expect_rows_refused(&any, CLV_EINVAL, "labels is -99 at [1,1]");
    write_rows("r.safetensors", "ids", good, "label", good, 2, 3, 2);
    expect_rows_refused(&any, CLV_EINVAL, "unknown tensor 'label'");
    write_rows("r.safetensors", "ids", good, "labels", good, 1, 3, 2);
    expect_rows_refused(&any, CLV_EINVAL, "labels is [3,1] and ids are [3,2]");
    write_rows("r.safetensors", "id", good, NULL, NULL, 0, 3, 2);
    expect_rows_refused(&any, CLV_ENOTFOUND, "ids");
    write_rows("r.safetensors", "ids", good, NULL, NULL, 0, 0, 2);
    expect_rows_refused(&any, CLV_EINVAL, "at least 1");
    write_rows("r.safetensors", "ids", good, NULL, NULL, 0, 3, 2);
    expect_rows_refused(&three, CLV_EINVAL, "rows of 2 ids");
    expect_rows_refused(&four, CLV_EINVAL, "ids is 4 at [2,0]; the vocabulary is 0 to 3");
    expect_rows_refused(NULL, CLV_EINVAL, "2 files");
}

/* ---- texts ---- */

/* As a token file of them would be; a token file is one, whatever its name, unless texts are asked for. */
static void test_texts(void **state)
{
    int32_t ids[4], labels[4];
    clv_data *data, *none;
    clv_error err = {0};
    assert_int_equal(clv_file_write(in_folder("t.txt"), "abcd", 4, NULL), CLV_OK);
    assert_int_equal(clv_file_write(in_folder("t.jsonl"), "{\"text\": \"x\"}\n", 14, NULL), CLV_OK);
    write_ids("a.txt", 300, (const int32_t[]){7, 8, 9, 10, 11, 12}, NULL, 6);
    data = open_ids("t.txt", "t.jsonl", &(clv_data_options){.seq = 4, .sequential = 1});
    assert_true(info_of(data).tokens == 7 && info_of(data).vocab == 256 && info_of(data).end_id == 0);
    assert_int_equal(clv_data_batch(data, 0, 1, 0, 1, ids, labels, NULL, NULL), CLV_OK);
    assert_memory_equal(ids, ((const int32_t[]){'a', 'b', 'c', 'd'}), sizeof ids);
    assert_memory_equal(labels, ((const int32_t[]){'b', 'c', 'd', 0}), sizeof labels);
    uint64_t checksum = info_of(data).checksum;
    clv_data_close(data);
    data = open_ids("a.txt", NULL, &(clv_data_options){.seq = 4});
    assert_true(info_of(data).tokens == 6 && info_of(data).vocab == 300 && info_of(data).checksum != checksum);
    clv_data_close(data);
    const char *path = in_folder("a.txt");
    assert_int_equal(clv_data_open(&none, &path, 1, &(clv_data_options){.seq = 1, .treat_as_text = 1}, &err),
                     CLV_EFORMAT);
    assert_non_null(strstr(err.message, "a.txt: is a token file, not text"));
    assert_true(clv_data_is_text(in_folder("t.txt")) && clv_data_is_text("-") && !clv_data_is_text(path));
    err = (clv_error){0};
    path = in_folder("t.jsonl");
    clv_corpus_options field = {.field = "body"};
    assert_int_equal(clv_data_open(&none, &path, 1, &(clv_data_options){.seq = 1, .corpus = &field}, &err), CLV_EINVAL);
    assert_non_null(strstr(err.message, "t.jsonl:1: the line: \"body\" is missing"));
    err = (clv_error){0};
    assert_int_equal(clv_data_open(&none, &path, 1, &(clv_data_options){.seq = 1, .vocab = 100}, &err), CLV_EINVAL);
    assert_non_null(strstr(err.message, "t.jsonl: the token 120 is beyond the model's vocab_size of 100"));
}

/* ---- ahead of their use ---- */

typedef struct counted_source {
    clv_data *data;
    _Atomic int64_t begun; /* the step that was asked for last */
} counted_source;

enum { FAILS_AT = 9 };

static clv_status counted_batch(void *arg, int64_t step, int32_t *ids, int32_t *labels, uint8_t *mask, clv_error *err)
{
    counted_source *s = arg;
    s->begun = step;
    if (step == FAILS_AT) {
        *err = (clv_error){.code = CLV_EIO, .message = "the page is gone"};
        return CLV_EIO;
    }
    return clv_data_batch(s->data, step, 3, 0, 3, ids, labels, mask, err);
}

/* Prefetching gives the same batches, each made in advance; a failure is reported at its step. */
static void test_prefetch(void **state)
{
    enum { FROM = 4 };
    int32_t corpus[40], ids[9], labels[9];
    const int32_t *got, *learned;
    const uint8_t *mask;
    clv_prefetch *ahead;
    clv_error err = {0};
    for (int i = 0; i < 40; i++)
        corpus[i] = i * 7 % 40;
    write_ids("ahead", 40, corpus, NULL, 40);
    counted_source source = {.data = open_ids("ahead", NULL, &(clv_data_options){.seq = 3}), .begun = -1};
    assert_int_equal(clv_prefetch_new(&ahead, counted_batch, &source, 9, 0, FROM, NULL), CLV_OK);
    for (int64_t step = FROM; step < FAILS_AT; step++) {
        assert_int_equal(clv_prefetch_next(ahead, &got, &learned, &mask, NULL), CLV_OK);
        assert_null(mask);
        while (source.begun != step + 1) /* not requested yet */
            usleep(100);
        assert_int_equal(clv_data_batch(source.data, step, 3, 0, 3, ids, labels, NULL, NULL), CLV_OK);
        assert_memory_equal(got, ids, sizeof ids);
        assert_memory_equal(learned, labels, sizeof labels);
    }
    for (int again = 0; again < 2; again++) {
        assert_int_equal(clv_prefetch_next(ahead, &got, &learned, NULL, &err), CLV_EIO);
        assert_string_equal(err.message, "the page is gone");
    }
    clv_prefetch_free(ahead);
    assert_int_equal(clv_prefetch_new(&ahead, counted_batch, &source, 9, 1, 0, NULL), CLV_OK);
    assert_int_equal(clv_prefetch_next(ahead, &got, &learned, &mask, NULL), CLV_OK);
    assert_non_null(mask);
    clv_prefetch_free(ahead); /* while the next is made, or is there */
    clv_prefetch_free(NULL);
    assert_int_equal(clv_prefetch_new(&ahead, NULL, &source, 9, 0, 0, NULL), CLV_EINVAL);
    assert_int_equal(clv_prefetch_new(NULL, counted_batch, &source, 9, 0, 0, NULL), CLV_EINVAL);
    assert_int_equal(clv_prefetch_new(&ahead, counted_batch, &source, 0, 0, 0, NULL), CLV_EINVAL);
    assert_int_equal(clv_prefetch_new(&ahead, counted_batch, &source, 9, 0, -1, NULL), CLV_EINVAL);
    assert_int_equal(clv_prefetch_next(NULL, &got, &learned, NULL, NULL), CLV_EINVAL);
    clv_data_close(source.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_permutations), cmocka_unit_test(test_orders_differ), cmocka_unit_test(test_order_stays),
        cmocka_unit_test(test_scoring),      cmocka_unit_test(test_epochs),        cmocka_unit_test(test_masked),
        cmocka_unit_test(test_long_file),    cmocka_unit_test(test_format),        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_wrong_calls),  cmocka_unit_test(test_rows),          cmocka_unit_test(test_rows_refused),
        cmocka_unit_test(test_texts),        cmocka_unit_test(test_prefetch),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
