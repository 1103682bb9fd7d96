/* test_safetensors.c - files that must be refused, files that must be read, boxes of tensors, folders with an index,
 * and writing that leaves the old file whole when it fails. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/checkpoint/safetensors.h"
#include "io/checkpoint/weights.h"
#include "io/files/file.h"
#include "io/json/json.h"
#include "temp_folder.h"
#include "unit_test.h"

/* A file made of a length field, a header and `data` bytes that count up. */
static void put_file(const char *name, uint64_t length, const char *header, size_t header_size, size_t data)
{
    FILE *f = fopen(in_folder("%s", name), "wb");

    assert_non_null(f);
    for (int i = 0; i < 8; i++)
        fputc((int)(length >> (8 * i) & 255), f);
    fwrite(header, 1, header_size, f);
    for (size_t i = 0; i < data; i++)
        fputc((int)(i & 255), f);
    assert_int_equal(fclose(f), 0);
}

static void put_header(const char *name, const char *header, size_t data)
{
    put_file(name, strlen(header), header, strlen(header), data);
}

static void check_refused(const char *what)
{
    clv_safetensors *f = NULL;
    clv_error err = {0};
    clv_status status = clv_safetensors_open(&f, in_folder("t"), &err);

    if (status != CLV_EFORMAT && status != CLV_ELIMIT)
        fail_msg("%s: status %s", what, clv_status_name(status));
    assert_null(f);
    assert_int_equal(err.code, status);
    if (strstr(err.message, folder) == NULL || strchr(err.message, '\n') != NULL)
        fail_msg("%s: message '%s'", what, err.message);
}

#define T(shape, offsets)        "{\"t\":{\"dtype\":\"F32\",\"shape\":" shape ",\"data_offsets\":" offsets "}}"
#define BASE                     T("[2,2]", "[0,16]")
#define U8(name, shape, offsets) "\"" name "\":{\"dtype\":\"U8\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

/* Each is a file that the reference implementation refuses, or that is beyond our limits. */
static void test_refuse_lengths(void **state)
{
    FILE *f = fopen(in_folder("t"), "wb");

    fclose(f);
    check_refused("1 empty file");
    f = fopen(in_folder("t"), "wb");
    fwrite("1234567", 1, 7, f);
    fclose(f);
    check_refused("2 seven bytes");
    put_file("t", 0, "", 0, 16);
    check_refused("3 N = 0");
    put_file("t", 100000001, BASE, strlen(BASE), 16);
    check_refused("4 N = 100,000,001");
    put_file("t", UINT64_MAX, BASE, strlen(BASE), 16);
    check_refused("5 N = 2^64 - 1");
    put_file("t", strlen(BASE) + 17, BASE, strlen(BASE), 16);
    check_refused("6 N beyond the end");
}

static void test_refuse_headers(void **state)
{
    static const struct {
        const char *what, *header;
        size_t data;
    } cases[] = {
        {"7 byte 0xFF", "\xff", 0},
        {"7 byte 0xFF in a name", "{\"\xff\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]}}", 16},
        {"8 {", "{", 0},
        {"10 BOM", "\xef\xbb\xbf" BASE, 16},
        {"11 []", "[]", 0},
        {"12 {}x", "{}x", 0},
        {"14 a name twice", "{" U8("t", "[1]", "[0,1]") "," U8("t", "[1]", "[1,2]") "}", 2},
        {"15 a name twice, escaped", "{" U8("t", "[1]", "[0,1]") "," U8("\\u0074", "[1]", "[1,2]") "}", 2},
        {"16 a field twice", "{\"t\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1},
        {"17 metadata value", "{\"__metadata__\":{\"a\":1}}", 0},
        {"18 metadata null", "{\"__metadata__\":null}", 0},
        {"19 entry as array", "{\"t\":[\"F32\",[2,2],[0,16]]}", 16},
        {"20 dtype f32", "{\"t\":{\"dtype\":\"f32\",\"shape\":[2,2],\"data_offsets\":[0,16]}}", 16},
        {"21 no data_offsets", "{\"t\":{\"dtype\":\"F32\",\"shape\":[2,2]}}", 16},
        {"21 no dtype", "{\"t\":{\"shape\":[2,2],\"data_offsets\":[0,16]}}", 16},
        {"21 no shape", "{\"t\":{\"dtype\":\"F32\",\"data_offsets\":[0,16]}}", 16},
        {"21 three data_offsets", T("[2,2]", "[0,16,16]"), 16},
        {"21 one data_offset", T("[2,2]", "[0]"), 16},
        {"22 dimension -2", T("[-2,-2]", "[0,16]"), 16},
        {"22 dimension 2.0", T("[2.0,2]", "[0,16]"), 16},
        {"22 dimension 2^64", T("[18446744073709551616]", "[0,16]"), 16},
        {"23 [2, 2^64-2]", T("[2,18446744073709551614]", "[0,16]"), 16},
        {"24 [2, 2^63-1]", T("[2,9223372036854775807]", "[0,16]"), 16},
        {"24 bits overflow", T("[4611686018427387904]", "[0,16]"), 16},
        {"25 offsets [16,0]", T("[2,2]", "[16,0]"), 16},
        {"26 two at [0,16]", "{" U8("a", "[16]", "[0,16]") "," U8("b", "[16]", "[0,16]") "}", 16},
        {"26 two at [0,16], 32 bytes", "{" U8("a", "[16]", "[0,16]") "," U8("b", "[16]", "[0,16]") "}", 32},
        {"27 a hole", "{" U8("a", "[4]", "[0,4]") "," U8("b", "[4]", "[8,12]") "}", 12},
        {"27 first begin", "{" U8("a", "[4]", "[4,8]") "}", 8},
        {"28 trailing bytes", BASE, 17},
        {"28 two short", BASE, 14},
        {"29 sub-byte odd", "{\"t\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,1]}}", 1},
        {"29 sub-byte odd, 2", "{\"t\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,2]}}", 2},
        {"size differs from shape", T("[2,3]", "[0,16]"), 16},
        {"limit: unknown field", "{\"t\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"x\":0}}", 1},
        {"limit: 0 beside 2^63s", T("[0,4611686018427387904,4]", "[0,0]"), 0},
        {"limit: 0 beside 2^63", T("[0,9223372036854775808]", "[0,0]"), 0},
        {"limit: 9 dimensions", T("[1,1,1,1,1,1,1,1,1]", "[0,4]"), 4},
        {"limit: NUL in a name", "{" U8("t\\u0000", "[1]", "[0,1]") "}", 1},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        put_header("t", cases[i].header, cases[i].data);
        check_refused(cases[i].what);
    }
}

/* Sizes that are each valid, with a sum that wraps around to a small number. */
static void test_refuse_wrapping_sum(void **state)
{
    const uint64_t elems = (UINT64_C(1) << 61) - 1;
    char header[2048] = "{";

    for (uint64_t i = 0; i < 8; i++) {
        size_t used = strlen(header);
        snprintf(header + used, sizeof header - used,
                 "%s\"%c\":{\"dtype\":\"U8\",\"shape\":[%" PRIu64 "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}",
                 i > 0 ? "," : "", (char)('a' + i), elems, i * elems, (i + 1) * elems);
    }
    strcat(header, "}");
    put_header("t", header, 0);
    check_refused("30 eight of 2^61-1");
}

static void test_refuse_padding_depth_count(void **state)
{
    char header[128] = BASE;
    size_t depth = 10000, entries = 1000001, size = 0;
    char *text = malloc(entries * 64);

    put_file("t", strlen(BASE) + 4, header, strlen(BASE) + 4, 16);
    check_refused("9 NUL padding");

    size = (size_t)sprintf(text, "{\"t\":");
    memset(text + size, '[', depth);
    memset(text + size + depth, ']', depth);
    strcpy(text + size + 2 * depth, "}");
    put_header("t", text, 0);
    check_refused("13 nesting 10,000 deep");

    size = 0;
    for (size_t i = 0; i < entries; i++)
        size += (size_t)sprintf(text + size, "%c\"%zx\":{\"dtype\":\"U8\"}", i == 0 ? '{' : ',', i);
    strcpy(text + size, "}");
    put_header("t", text, 0);
    check_refused("limit: over 10^6 entries");
    free(text);
}

/* Every prefix of a good file, and every header with one bit flipped, is refused or read; never a crash, and never
 * accepted with a tensor outside the file. */
static void test_mutants(void **state)
{
    const char *header = BASE;
    size_t size = strlen(header);
    int accepted = 0;

    for (size_t cut = 0; cut < size; cut++) {
        put_file("t", cut, header, cut, 16);
        check_refused("a truncated header");
    }
    for (size_t bit = 0; bit < 8 * size; bit++) {
        char mutant[256];
        clv_safetensors *f = NULL;
        memcpy(mutant, header, size + 1);
        mutant[bit / 8] = (char)(mutant[bit / 8] ^ (1 << bit % 8));
        put_file("t", size, mutant, size, 16);
        if (clv_safetensors_open(&f, in_folder("t"), NULL) != CLV_OK)
            continue;
        accepted++;
        for (int64_t i = 0; i < clv_safetensors_count(f); i++)
            assert_true(clv_safetensors_at(f, i)->end <= 8 + size + 16);
        clv_safetensors_close(f);
    }
    /* A flip in the name gives another name; F32 may become U32 and the like. */
    assert_in_range(accepted, 1, 24);
}

static void test_refuse_not_a_file(void **state)
{
    clv_safetensors *f = NULL;

    assert_int_equal(clv_safetensors_open(&f, folder, NULL), CLV_EFORMAT);
    assert_int_equal(clv_safetensors_open(&f, in_folder("absent"), NULL), CLV_ENOTFOUND);
    assert_int_equal(mkfifo(in_folder("pipe"), 0600), 0);
    assert_int_equal(clv_safetensors_open(&f, in_folder("pipe"), NULL), CLV_EFORMAT);
    assert_null(f);
}

static void test_accept(void **state)
{
    static const struct {
        const char *header;
        size_t data;
        int count;
    } cases[] = {
        {"{}", 0, 0},
        {"  {}  ", 0, 0},
        {"\n\t" BASE "   ", 16, 1},
        {T("[]", "[0,4]"), 4, 1},
        {T("[2,0]", "[0,0]"), 0, 1},
        {"{\"__metadata__\":{\"format\":\"pt\"}}", 0, 0},
        {"{" U8("z", "[0]", "[0,0]") "," U8("a", "[4]", "[0,4]") "," U8("b", "[0]", "[4,4]") "}", 4, 3},
        {"{\"t\":{\"dtype\":\"F4\",\"shape\":[4],\"data_offsets\":[0,2]}}", 2, 1},
        {"{\"t\":{\"dtype\":\"F8_E4M3\",\"shape\":[4],\"data_offsets\":[0,4]}}", 4, 1},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        clv_safetensors *f = NULL;
        clv_error err = {0};
        put_header("t", cases[i].header, cases[i].data);
        if (clv_safetensors_open(&f, in_folder("t"), &err) != CLV_OK)
            fail_msg("%s: %s", cases[i].header, err.message);
        assert_int_equal(clv_safetensors_count(f), cases[i].count);
        clv_safetensors_close(f);
    }
}

static void test_unsupported_dtype(void **state)
{
    clv_safetensors *f = NULL;
    const clv_safetensor *t = NULL;
    clv_error err = {0};
    float out[4];

    put_header("t", "{\"t\":{\"dtype\":\"F8_E4M3\",\"shape\":[4],\"data_offsets\":[0,4]}}", 4);
    assert_int_equal(clv_safetensors_open(&f, in_folder("t"), NULL), CLV_OK);
    assert_int_equal(clv_safetensors_find(&t, f, "t", NULL), CLV_OK);
    assert_int_equal(clv_safetensors_read(t, NULL, CLV_F32, out, &err), CLV_EUNSUPPORTED);
    assert_non_null(strstr(err.message, "F8_E4M3"));
    assert_int_equal(clv_safetensors_find(&t, f, "u", &err), CLV_ENOTFOUND);
    clv_safetensors_close(f);
}

/* F32 at byte offset 3 of the data: odd in the file too. */
static void test_unaligned(void **state)
{
    char header[256];
    clv_safetensors *f = NULL;
    const clv_safetensor *t = NULL;
    float out[2];
    double wide[2];
    uint8_t expected[8] = {3, 4, 5, 6, 7, 8, 9, 10};

    snprintf(header, sizeof header, "{%s,\"t\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[3,11]}}",
             U8("a", "[3]", "[0,3]"));
    if (strlen(header) % 2 == 1)
        strcat(header, " ");
    put_header("t", header, 11);
    assert_int_equal(clv_safetensors_open(&f, in_folder("t"), NULL), CLV_OK);
    assert_int_equal(clv_safetensors_find(&t, f, "t", NULL), CLV_OK);
    assert_int_equal(t->begin % 2, 1); /* 8 + even + 3 */
    assert_int_equal(clv_safetensors_read(t, NULL, CLV_F32, out, NULL), CLV_OK);
    assert_memory_equal(out, expected, 8);
    assert_int_equal(clv_safetensors_read(t, NULL, CLV_F64, wide, NULL), CLV_OK);
    assert_true(wide[0] == (double)out[0] && wide[1] == (double)out[1]);
    clv_safetensors_close(f);
}

/* ---- boxes ---- */

static const clv_tensor_spec specs[] = {
    {"a", CLV_F32, 3, {3, 4, 5}},
    {"b", CLV_I64, 1, {7}},
    {"scalar", CLV_F32, 0, {0}},
    {"empty", CLV_F32, 2, {4, 0}},
};
enum { N_SPECS = sizeof specs / sizeof specs[0] };

/* Writes specs to `name`: element i of "a" is i, of "b" is -i. "a" goes in two parts, the later one first. */
static void put_tensors(const char *name)
{
    clv_safetensors_writer *w = NULL;
    clv_shard left = {3, {0, 0, 0}, {3, 4, 2}}, right = {3, {0, 0, 2}, {3, 4, 5}};
    float l[24], r[36], one = 1;
    int64_t b[7];

    for (int i = 0; i < 12; i++) {
        for (int c = 0; c < 2; c++)
            l[i * 2 + c] = (float)(i * 5 + c);
        for (int c = 0; c < 3; c++)
            r[i * 3 + c] = (float)(i * 5 + 2 + c);
    }
    for (int i = 0; i < 7; i++)
        b[i] = -i;
    assert_int_equal(clv_safetensors_create(&w, in_folder("%s", name), specs, N_SPECS, NULL), CLV_OK);
    assert_int_equal(clv_safetensors_write(w, 0, &right, r, NULL), CLV_OK);
    assert_int_equal(clv_safetensors_write(w, 2, NULL, &one, NULL), CLV_OK);
    assert_int_equal(clv_safetensors_write(w, 0, &left, l, NULL), CLV_OK);
    assert_int_equal(clv_safetensors_write(w, 1, NULL, b, NULL), CLV_OK);
    assert_int_equal(clv_safetensors_commit(w, NULL), CLV_OK);
}

/* Every box of a 3x4x5 tensor holds the right elements, and reads no byte more than them. */
/* Bytes of a tensor, none of its neighbours. */
static void test_bytes(void **state)
{
    static const char header[] = "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
                                 "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[4,8]}}";
    clv_safetensors *f;
    unsigned char bytes[8] = {0};

    put_file("t", sizeof header - 1, header, sizeof header - 1, 8);
    assert_int_equal(clv_safetensors_open(&f, in_folder("t"), NULL), CLV_OK);
    const clv_safetensor *a;
    assert_int_equal(clv_safetensors_find(&a, f, "a", NULL), CLV_OK);
    assert_int_equal(clv_safetensors_read_bytes(a, 1, 3, bytes, NULL), CLV_OK);
    assert_true(bytes[0] == 1 && bytes[2] == 3 && bytes[3] == 0);
    assert_int_equal(clv_safetensors_read_bytes(a, 4, 0, bytes, NULL), CLV_OK);
    assert_int_equal(clv_safetensors_read_bytes(a, 1, 4, bytes, NULL), CLV_ESHAPE);
    assert_int_equal(clv_safetensors_read_bytes(a, 5, 0, bytes, NULL), CLV_ESHAPE);
    assert_int_equal(clv_safetensors_read_bytes(a, 4, SIZE_MAX, bytes, NULL), CLV_ESHAPE);
    clv_safetensors_close(f);
}

static void test_all_boxes(void **state)
{
    clv_safetensors *f = NULL;
    const clv_safetensor *t = NULL;
    float out[60];
    double wide[60];
    clv_shard box = {.rank = 3};

    put_tensors("t");
    assert_int_equal(clv_safetensors_open(&f, in_folder("t"), NULL), CLV_OK);
    assert_int_equal(clv_safetensors_count(f), N_SPECS);
    assert_int_equal(clv_safetensors_find(&t, f, "a", NULL), CLV_OK);
    assert_int_equal(t->begin % 8, 0);
    for (int code = 0; code < 4 * 4 * 5 * 5 * 6 * 6; code++) {
        box.lo[0] = code % 4, box.hi[0] = code / 4 % 4;
        box.lo[1] = code / 16 % 5, box.hi[1] = code / 80 % 5;
        box.lo[2] = code / 400 % 6, box.hi[2] = code / 2400;
        if (box.lo[0] > box.hi[0] || box.lo[1] > box.hi[1] || box.lo[2] > box.hi[2]) {
            assert_int_equal(clv_safetensors_read(t, &box, CLV_F32, out, NULL), CLV_ESHAPE);
            continue;
        }
        uint64_t before = clv_safetensors_bytes_read(f);
        assert_int_equal(clv_safetensors_read(t, &box, CLV_F32, out, NULL), CLV_OK);
        assert_int_equal(clv_safetensors_bytes_read(f) - before, 4 * clv_shard_elems(&box));
        assert_int_equal(clv_safetensors_read(t, &box, CLV_F64, wide, NULL), CLV_OK);
        int n = 0;
        for (int64_t i = box.lo[0]; i < box.hi[0]; i++)
            for (int64_t j = box.lo[1]; j < box.hi[1]; j++)
                for (int64_t k = box.lo[2]; k < box.hi[2]; k++, n++)
                    assert_true(out[n] == (float)((i * 4 + j) * 5 + k) && wide[n] == (double)out[n]);
    }
    box = (clv_shard){3, {0, 0, 0}, {3, 4, 6}};
    assert_int_equal(clv_safetensors_read(t, &box, CLV_F32, out, NULL), CLV_ESHAPE);
    box = (clv_shard){2, {0, 0}, {3, 4}};
    assert_int_equal(clv_safetensors_read(t, &box, CLV_F32, out, NULL), CLV_ESHAPE);
    clv_safetensors_close(f);
}

/* A file that is cut while it is open gives an error, not stale or missing elements. */
static void test_cut_while_open(void **state)
{
    clv_safetensors *f = NULL;
    const clv_safetensor *t = NULL;
    clv_error err = {0};
    float out[60];

    put_tensors("t");
    assert_int_equal(clv_safetensors_open(&f, in_folder("t"), NULL), CLV_OK);
    assert_int_equal(clv_safetensors_find(&t, f, "a", NULL), CLV_OK);
    assert_int_equal(truncate(in_folder("t"), (off_t)t->end - 1), 0);
    assert_int_equal(clv_safetensors_read(t, NULL, CLV_F32, out, &err), CLV_EIO);
    assert_non_null(strstr(err.message, "short"));
    clv_safetensors_close(f);
}

/* ---- writing that fails ---- */

static void check_old_file_whole(void)
{
    clv_safetensors *f = NULL;
    const clv_safetensor *t = NULL;
    char line[128];

    assert_int_equal(clv_safetensors_open(&f, in_folder("old"), NULL), CLV_OK);
    assert_int_equal(clv_safetensors_find(&t, f, "a", NULL), CLV_OK);
    clv_safetensors_close(f);
    snprintf(line, sizeof line, "ls '%s' | grep -q tmp-", folder);
    assert_int_not_equal(system(line), 0);
}

static void test_incomplete(void **state)
{
    clv_safetensors_writer *w = NULL;
    clv_error err = {0};
    float one = 1;

    put_tensors("old");
    assert_int_equal(clv_safetensors_create(&w, in_folder("old"), specs, N_SPECS, NULL), CLV_OK);
    assert_int_equal(clv_safetensors_write(w, 2, NULL, &one, NULL), CLV_OK);
    assert_int_equal(clv_safetensors_commit(w, &err), CLV_EINVAL);
    check_old_file_whole();
    assert_int_equal(clv_safetensors_create(&w, in_folder("old"), specs, N_SPECS, NULL), CLV_OK);
    clv_safetensors_abort(w);
    check_old_file_whole();
}

/* A limit on file sizes simulates a full disk: a write is partial, then fails. */
static void test_disk_full(void **state)
{
    static const clv_tensor_spec large = {"a", CLV_F32, 1, {100000}};
    clv_safetensors_writer *w = NULL;
    clv_error err = {0};
    struct rlimit limit, small;
    float *data = calloc(100000, sizeof *data);

    put_tensors("old");
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &limit);
    small = limit;
    small.rlim_cur = 65536;
    setrlimit(RLIMIT_FSIZE, &small);
    assert_int_equal(clv_safetensors_create(&w, in_folder("old"), &large, 1, &err), CLV_OK);
    assert_int_equal(clv_safetensors_write(w, 0, NULL, data, &err), CLV_EIO);
    assert_non_null(strstr(err.message, "cannot write"));
    setrlimit(RLIMIT_FSIZE, &limit);
    assert_int_equal(clv_safetensors_commit(w, NULL), CLV_EIO);
    check_old_file_whole();
    free(data);
}

static void put_empty(const char *name)
{
    FILE *f = fopen(in_folder("%s", name), "wb");

    assert_non_null(f);
    fclose(f);
}

static void write_one(clv_safetensors_writer *w, float value)
{
    assert_int_equal(clv_safetensors_write(w, 0, NULL, &value, NULL), CLV_OK);
}

/* What killed writers left is removed by the next; what another writes meanwhile, here or elsewhere, is not. */
static void test_temporaries(void **state)
{
    static const clv_tensor_spec one = {"a", CLV_F32, 1, {1}};
    clv_safetensors_writer *first = NULL, *second = NULL;

    put_tensors("old");
    put_empty("old.tmp-0");
    put_empty("old.tmp-5");
    assert_int_equal(clv_safetensors_create(&first, in_folder("old"), &one, 1, NULL), CLV_OK);
    assert_int_not_equal(access(in_folder("old.tmp-5"), F_OK), 0);
    write_one(first, 1);
    assert_int_equal(clv_safetensors_create(&second, in_folder("old"), &one, 1, NULL), CLV_OK);
    write_one(second, 2);
    assert_int_equal(access(in_folder("old.tmp-0"), F_OK), 0);
    assert_int_equal(access(in_folder("old.tmp-1"), F_OK), 0);
    assert_int_equal(clv_safetensors_commit(second, NULL), CLV_OK);
    assert_int_equal(clv_safetensors_commit(first, NULL), CLV_OK);
    check_old_file_whole();
    put_empty("old.tmp-x"); /* not a name of ours */
    put_tensors("old");
    assert_int_equal(remove(in_folder("old.tmp-x")), 0);
}

static void test_bad_specs(void **state)
{
    static const clv_tensor_spec twice[] = {{"a", CLV_F32, 1, {1}}, {"a", CLV_F32, 1, {1}}};
    static const clv_tensor_spec reserved = {"__metadata__", CLV_F32, 1, {1}};
    static const clv_tensor_spec huge = {"a", CLV_F32, 2, {INT64_MAX, 4}};
    static const clv_tensor_spec latin = {"\xe9", CLV_F32, 1, {1}};
    clv_safetensors_writer *w = NULL;

    assert_int_equal(clv_safetensors_create(&w, in_folder("n"), twice, 2, NULL), CLV_EINVAL);
    assert_int_equal(clv_safetensors_create(&w, in_folder("n"), &reserved, 1, NULL), CLV_EINVAL);
    assert_int_equal(clv_safetensors_create(&w, in_folder("n"), &huge, 1, NULL), CLV_ELIMIT);
    assert_int_equal(clv_safetensors_create(&w, in_folder("n"), &latin, 1, NULL), CLV_EINVAL);
    assert_int_equal(clv_safetensors_create(&w, in_folder("no/such/folder"), twice, 1, NULL), CLV_ENOTFOUND);
    assert_null(w);
    assert_int_not_equal(access(in_folder("n"), F_OK), 0);
}

/* ---- folders ---- */

static void put_text(const char *name, const char *text)
{
    clv_error err = {0};

    if (clv_file_write(in_folder("%s", name), text, strlen(text), &err) != CLV_OK)
        fail_msg("%s", err.message);
}

static clv_status open_folder(clv_error *err)
{
    clv_weights *w = NULL;
    clv_status status = clv_weights_open(&w, in_folder("model"), err);

    clv_weights_close(w);
    return status;
}

static const char index_file[] = "model/model.safetensors.index.json";

static void test_sharded_folder(void **state)
{
    clv_weights *w = NULL;
    const clv_safetensor *t = NULL;
    uint8_t out[4];

    mkdir(in_folder("model"), 0700);
    assert_int_equal(open_folder(NULL), CLV_ENOTFOUND);
    put_header("model/one", "{" U8("a", "[4]", "[0,4]") "}", 4);
    put_header("model/two", "{" U8("b", "[2]", "[0,2]") "," U8("c", "[1]", "[2,3]") "}", 3);
    put_text(index_file, "{\"metadata\":{},\"weight_map\":{\"a\":\"one\",\"b\":\"two\",\"c\":\"two\"}}");
    assert_int_equal(clv_weights_open(&w, in_folder("model"), NULL), CLV_OK);
    assert_int_equal(clv_weights_count(w), 3);
    assert_int_equal(clv_weights_find(&t, w, "c", NULL), CLV_OK);
    assert_int_equal(clv_safetensors_read(t, NULL, CLV_U8, out, NULL), CLV_OK);
    assert_int_equal(out[0], 2);
    assert_int_equal(clv_weights_bytes_read(w), 1);
    assert_false(clv_weights_has(w, "d"));
    clv_weights_close(w);
}

static void test_refuse_indexes(void **state)
{
    static const char *const refused[] = {
        "[]",
        "{}",
        "{\"weight_map\":[]}",
        "{\"weight_map\":{\"a\":1}}",
        "{\"weight_map\":{\"a\":\"\"}}",
        "{\"weight_map\":{\"a\":\"..\"}}",
        "{\"weight_map\":{\"a\":\"../t\"}}",
        "{\"weight_map\":{\"a\":\"/etc/passwd\"}}",
        "{\"weight_map\":{\"a\":\".\"}}",
        "{\"weight_map\":{\"a\":\"sub/one\"}}",
        "{\"weight_map\":{\"a\":\"./one\"}}",
        "{\"weight_map\":{\"a\":\"one\"}}x",
    };

    put_header("t", "{" U8("a", "[4]", "[0,4]") "}", 4);
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        put_text(index_file, refused[i]);
        clv_status status = open_folder(NULL);
        if (status != CLV_EFORMAT)
            fail_msg("%s gave %s", refused[i], clv_status_name(status));
    }
    put_text(index_file, "{\"weight_map\":{\"a\":\"absent\"}}");
    clv_error err = {0};
    assert_int_equal(open_folder(&err), CLV_ENOTFOUND);
    assert_non_null(strstr(err.message, "index.json: lists absent, which is not in the folder; get that file, too"));
    assert_int_equal(symlink("../t", in_folder("model/link")), 0); /* as in a hub's cache */
    put_text(index_file, "{\"weight_map\":{\"a\":\"link\"}}");
    assert_int_equal(open_folder(&err), CLV_OK);
    assert_int_equal(rename(in_folder("t"), in_folder("t2")), 0);
    err = (clv_error){0};
    assert_int_equal(open_folder(&err), CLV_ENOTFOUND);
    assert_non_null(strstr(err.message, "model/link: a link to a file that is not there; copy files as what they"));
    put_text(index_file, "{\"weight_map\":{\"a\":\"sub\"}}");
    assert_int_equal(mkdir(in_folder("model/sub"), 0700), 0);
    assert_int_equal(open_folder(NULL), CLV_EFORMAT);
    /* A link that stays within is fine. */
    assert_int_equal(symlink("one", in_folder("model/inner")), 0);
    put_text(index_file, "{\"weight_map\":{\"a\":\"inner\"}}");
    assert_int_equal(open_folder(NULL), CLV_OK);
}

/* What the files have counts, not what the index lists: a name that none has, one in another file than it says, one
 * that it does not list, and one that two files have. */
static void test_stale_indexes(void **state)
{
    clv_weights *w = NULL;
    const clv_safetensor *t = NULL;
    const char *absent = NULL;

    put_header("model/two", "{" U8("b", "[2]", "[0,2]") "," U8("c", "[1]", "[2,3]") "," U8("a", "[1]", "[3,4]") "}", 4);
    put_text(index_file, "{\"weight_map\":{\"head\":\"one\",\"a\":\"one\",\"c\":\"one\",\"z\":\"two\"}}");
    assert_int_equal(clv_weights_open(&w, in_folder("model"), NULL), CLV_OK);
    assert_int_equal(clv_weights_missing_count(w, &absent), 2);
    assert_string_equal(absent, "head");
    assert_int_equal(clv_weights_find(&t, w, "c", NULL), CLV_OK);
    assert_int_equal(clv_weights_find(&t, w, "b", NULL), CLV_OK);
    assert_int_equal(clv_weights_find(&t, w, "a", NULL), CLV_OK);
    assert_int_equal(t->shape[0], 4); /* of "one", as the index says */
    assert_int_equal(clv_weights_find(&t, w, "head", NULL), CLV_ENOTFOUND);
    clv_weights_close(w);
    put_text(index_file, "{\"weight_map\":{\"b\":\"two\",\"x\":\"one\"}}");
    assert_int_equal(clv_weights_open(&w, in_folder("model"), NULL), CLV_OK);
    assert_int_equal(clv_weights_find(&t, w, "a", NULL), CLV_OK);
    assert_int_equal(t->shape[0], 1); /* of the last file */
    clv_weights_close(w);
}

/* Prefixes that all names have. */
static void test_wrapped_names(void **state)
{
    static const struct {
        const char *a, *b;
        size_t prefix;
    } names[] = {
        {"_orig_mod.a", "_orig_mod.b", 10},
        {"module._orig_mod.module.a", "module._orig_mod.module.b", 24},
        {"module.a", "b", 0},
        {"_orig_mod.a", "module.b", 0},
        {"modulea", "moduleb", 0},
    };

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        clv_weights *w = NULL;
        const clv_safetensor *t = NULL;
        char header[256];
        snprintf(header, sizeof header, "{" U8("%s", "[1]", "[0,1]") "," U8("%s", "[1]", "[1,2]") "}", names[i].a,
                 names[i].b);
        put_header("wrapped", header, 2);
        assert_int_equal(clv_weights_open_path(&w, in_folder("wrapped"), NULL), CLV_OK);
        assert_int_equal(clv_weights_prefix_length(w), names[i].prefix);
        assert_true(clv_weights_has(w, names[i].a) && clv_weights_has(w, names[i].b));
        assert_int_equal(clv_weights_has(w, "a"), names[i].prefix > 0);
        assert_false(clv_weights_has(w, "c"));
        assert_int_equal(clv_weights_find(&t, w, names[i].b, NULL), CLV_OK);
        assert_string_equal(clv_weights_bare_name(w, t), names[i].b + names[i].prefix);
        clv_weights_close(w);
    }
}

/* Beyond its limit an index is refused before it is read. */
static void test_index_limit(void **state)
{
    clv_error err = {0};

    put_text(index_file, "{}");
    assert_int_equal(truncate(in_folder("%s", index_file), 100000001), 0);
    assert_int_equal(open_folder(&err), CLV_ELIMIT);
    assert_non_null(strstr(err.message, "model.safetensors.index.json: 100000001 bytes, at most 100000000"));
}

/* ---- JSON getters ---- */

static void test_json(void **state)
{
    static const char text[] = "{\"i\":5,\"r\":1.5,\"s\":\"x\",\"b\":true,\"l\":[1,2],\"n\":null,\"o\":{}}";
    json_t *o = NULL;
    int64_t i = -1, list[2];
    double r = -1;
    const char *s = NULL;
    bool b = false;
    int n = 0;
    clv_error err = {0};

    assert_int_equal(clv_json_parse(&o, text, strlen(text), CLV_JSON_KEYS_LAST_WINS, "x.json", NULL), CLV_OK);
    assert_int_equal(clv_json_get_int(&i, o, "i", CLV_JSON_REQUIRED, 0, 5, "x.json", NULL), CLV_OK);
    assert_int_equal(i, 5);
    assert_int_equal(clv_json_get_int(&i, o, "i", CLV_JSON_REQUIRED, 0, 4, "x.json", &err), CLV_EFORMAT);
    assert_string_equal(err.message, "x.json: \"i\" is 5, valid are 0 to 4");
    assert_int_equal(clv_json_get_int(&i, o, "r", CLV_JSON_REQUIRED, 0, 4, "x.json", NULL), CLV_EFORMAT);
    assert_int_equal(clv_json_get_int(&i, o, "n", CLV_JSON_OPTIONAL, 0, 4, "x.json", NULL), CLV_OK);
    assert_int_equal(clv_json_get_int(&i, o, "absent", CLV_JSON_OPTIONAL, 0, 4, "x.json", NULL), CLV_OK);
    assert_int_equal(i, 5);
    assert_int_equal(clv_json_get_int(&i, o, "n", CLV_JSON_REQUIRED, 0, 4, "x.json", NULL), CLV_EFORMAT);
    assert_int_equal(clv_json_get_int(&i, o, "absent", CLV_JSON_REQUIRED, 0, 4, "x.json", NULL), CLV_EFORMAT);
    assert_int_equal(clv_json_get_real(&r, o, "r", CLV_JSON_REQUIRED, 0, 2, "x.json", NULL), CLV_OK);
    assert_true(r == 1.5);
    assert_int_equal(clv_json_get_real(&r, o, "i", CLV_JSON_REQUIRED, 0, 9, "x.json", NULL), CLV_OK);
    assert_int_equal(clv_json_get_real(&r, o, "r", CLV_JSON_REQUIRED, 2, 3, "x.json", NULL), CLV_EFORMAT);
    assert_int_equal(clv_json_get_real(&r, o, "s", CLV_JSON_REQUIRED, 0, 2, "x.json", NULL), CLV_EFORMAT);
    assert_int_equal(clv_json_get_string(&s, o, "s", CLV_JSON_REQUIRED, "x.json", NULL), CLV_OK);
    assert_string_equal(s, "x");
    assert_int_equal(clv_json_get_string(&s, o, "i", CLV_JSON_REQUIRED, "x.json", NULL), CLV_EFORMAT);
    assert_int_equal(clv_json_get_bool(&b, o, "b", CLV_JSON_REQUIRED, "x.json", NULL), CLV_OK);
    assert_true(b);
    assert_int_equal(clv_json_get_bool(&b, o, "i", CLV_JSON_REQUIRED, "x.json", NULL), CLV_EFORMAT);
    assert_int_equal(clv_json_get_ints(list, &n, 2, o, "l", CLV_JSON_REQUIRED, 0, 9, "x.json", NULL), CLV_OK);
    assert_int_equal(n, 2);
    assert_int_equal(list[1], 2);
    assert_int_equal(clv_json_get_ints(list, &n, 1, o, "l", CLV_JSON_REQUIRED, 0, 9, "x.json", NULL), CLV_EFORMAT);
    assert_int_equal(clv_json_get_ints(list, &n, 2, o, "l", CLV_JSON_REQUIRED, 0, 1, "x.json", NULL), CLV_EFORMAT);
    assert_int_equal(clv_json_get_ints(list, &n, 2, o, "o", CLV_JSON_REQUIRED, 0, 1, "x.json", NULL), CLV_EFORMAT);
    json_decref(o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refuse_lengths),
        cmocka_unit_test(test_refuse_headers),
        cmocka_unit_test(test_refuse_wrapping_sum),
        cmocka_unit_test(test_refuse_padding_depth_count),
        cmocka_unit_test(test_mutants),
        cmocka_unit_test(test_refuse_not_a_file),
        cmocka_unit_test(test_accept),
        cmocka_unit_test(test_unsupported_dtype),
        cmocka_unit_test(test_unaligned),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_all_boxes),
        cmocka_unit_test(test_cut_while_open),
        cmocka_unit_test(test_incomplete),
        cmocka_unit_test(test_disk_full),
        cmocka_unit_test(test_temporaries),
        cmocka_unit_test(test_bad_specs),
        cmocka_unit_test(test_sharded_folder),
        cmocka_unit_test(test_refuse_indexes),
        cmocka_unit_test(test_stale_indexes),
        cmocka_unit_test(test_wrapped_names),
        cmocka_unit_test(test_index_limit),
        cmocka_unit_test(test_json),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
