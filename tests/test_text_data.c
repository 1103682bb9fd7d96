/* test_text_data.c - joining files, batches that depend on (seed, step, row) alone, and the files to refuse. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "io/files/file.h"
#include "cleave/text_data.h"

static char folder[] = "/tmp/cleave-test-XXXXXX";
static char paths[4][64]; /* "abcdefghij", "klm", empty, absent */
static const char *const path[] = {paths[0], paths[1], paths[2], paths[3]};

static int make_files(void **state)
{
    static const char *const text[] = {"abcdefghij", "klm", ""};

    (void)state;
    if (mkdtemp(folder) == NULL)
        return -1;
    for (int i = 0; i < 4; i++)
        snprintf(paths[i], sizeof paths[i], "%s/%d", folder, i);
    for (int i = 0; i < 3; i++)
        if (clv_file_write(path[i], text[i], strlen(text[i]), NULL) != CLV_OK)
            return -1;
    return 0;
}

static int remove_files(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++)
        unlink(path[i]);
    return rmdir(folder);
}

/* The same text has the same, any other hardly. */
static void expect_other_checksums(uint64_t checksum)
{
    const char *const turned[] = {path[1], path[0]};
    clv_text_data *data;
    assert_int_equal(clv_text_data_checksum(NULL), 0);
    assert_int_equal(clv_text_data_open(&data, path, 2, 5, NULL), CLV_OK);
    assert_true(clv_text_data_checksum(data) == checksum && checksum != 0);
    clv_text_data_close(data);
    assert_int_equal(clv_text_data_open(&data, turned, 2, 5, NULL), CLV_OK);
    assert_true(clv_text_data_checksum(data) != checksum);
    clv_text_data_close(data);
}

static void test_join(void **state)
{
    clv_text_data *data = NULL;

    (void)state;
    assert_int_equal(clv_text_data_open(&data, path, 2, 13, NULL), CLV_OK);
    int32_t ids[13], labels[13];
    char joined[14];
    assert_int_equal(clv_text_data_size(data), 14);
    expect_other_checksums(clv_text_data_checksum(data));
    assert_int_equal(clv_text_data_batch(data, 1, 0, 0, 1, 13, ids, labels, NULL), CLV_OK); /* one place to start */
    for (int i = 0; i < 13; i++)
        joined[i] = (char)ids[i];
    joined[13] = (char)labels[12];
    assert_memory_equal(joined, "abcdefghij\0klm", 14);
    clv_text_data_close(data);
}

static void test_refused(void **state)
{
    clv_text_data *data = NULL;
    clv_error err = {0};

    (void)state;
    assert_int_equal(clv_text_data_open(&data, path, 0, 4, NULL), CLV_EINVAL);
    assert_int_equal(clv_text_data_open(&data, path, 3, 4, &err), CLV_EINVAL);
    assert_non_null(strstr(err.message, path[2]));
    assert_int_equal(clv_text_data_open(&data, path + 3, 1, 4, NULL), CLV_ENOTFOUND);
    assert_int_equal(clv_text_data_open(&data, (const char *const[]){folder}, 1, 4, NULL), CLV_EFORMAT);
    assert_int_equal(clv_text_data_open(&data, path, 1, 10, NULL), CLV_EINVAL);
    assert_int_equal(clv_text_data_open(&data, path, 1, 0, NULL), CLV_EINVAL);
    assert_int_equal(clv_text_data_open(&data, path, 1, INT64_MAX, NULL), CLV_EINVAL);
    assert_int_equal(clv_text_data_open(&data, path, 1, 9, NULL), CLV_OK);
    clv_text_data_close(data);
}

/* Labels follow inputs, every start occurs about equally often, and none else. */
static void test_starts(void **state)
{
    enum { SEQ = 4, ROWS = 6000, STARTS = 6 };
    static int32_t inputs[ROWS * SEQ], labels[ROWS * SEQ];
    int count[STARTS] = {0};
    clv_text_data *data = NULL;

    (void)state;
    assert_int_equal(clv_text_data_open(&data, path, 1, SEQ, NULL), CLV_OK);
    assert_int_equal(clv_text_data_batch(data, 7, 0, 0, ROWS, SEQ, inputs, labels, NULL), CLV_OK);
    for (int r = 0; r < ROWS; r++) {
        int64_t start = inputs[r * SEQ] - 'a';
        assert_in_range(start, 0, STARTS - 1);
        count[start]++;
        for (int s = 0; s < SEQ; s++) {
            assert_int_equal(inputs[r * SEQ + s], 'a' + start + s);
            assert_int_equal(labels[r * SEQ + s], 'a' + start + s + 1);
        }
    }
    for (int i = 0; i < STARTS; i++)
        assert_in_range(count[i], ROWS / STARTS - 150, ROWS / STARTS + 150); /* five standard deviations */
    clv_text_data_close(data);
}

static void test_rows_of_a_rank(void **state)
{
    enum { SEQ = 3, ROWS = 8 };
    int32_t whole[2][ROWS * SEQ], part[2][ROWS * SEQ];
    clv_text_data *data = NULL;

    (void)state;
    assert_int_equal(clv_text_data_open(&data, path, 2, SEQ, NULL), CLV_OK);
    assert_int_equal(clv_text_data_batch(data, 1, 5, 0, ROWS, SEQ, whole[0], whole[1], NULL), CLV_OK);
    for (int first = 0; first < ROWS; first += 2) {
        assert_int_equal(clv_text_data_batch(data, 1, 5, first, 2, SEQ, part[0], part[1], NULL), CLV_OK);
        assert_memory_equal(part[0], whole[0] + first * SEQ, 2 * SEQ * sizeof(int32_t));
        assert_memory_equal(part[1], whole[1] + first * SEQ, 2 * SEQ * sizeof(int32_t));
    }
    assert_int_equal(clv_text_data_batch(data, 1, 6, 0, ROWS, SEQ, part[0], part[1], NULL), CLV_OK);
    assert_memory_not_equal(part[0], whole[0], sizeof whole[0]);
    assert_int_equal(clv_text_data_batch(data, 1 + (UINT64_C(1) << 32), 5, 0, ROWS, SEQ, part[0], part[1], NULL),
                     CLV_OK);
    assert_memory_not_equal(part[0], whole[0], sizeof whole[0]);
    clv_text_data_close(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_join),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_starts),
        cmocka_unit_test(test_rows_of_a_rank),
    };

    return cmocka_run_group_tests(tests, make_files, remove_files);
}
