/* test_base.c - statuses, errors, arenas, clocks and dissent. */
#include <stdlib.h>
#include <string.h>

#include "base/memory/arena.h"
#include "base/majority_check.h"
#include "base/error.h"
#include "cleave/text.h"
#include "base/threads/wait.h"
#include "cleave/status.h"
#include "unit_test.h"

static void error_keeps_the_first_failure(void **state)
{
    clv_error err = {.rank = 7};

    assert_int_equal(clv_fail(&err, CLV_ESHAPE, "have %d", 3), CLV_ESHAPE);
    assert_int_equal(err.code, CLV_ESHAPE);
    assert_int_equal(err.rank, -1);
    assert_string_equal(err.op, "");
    assert_string_equal(err.message, "have 3");
    assert_int_equal(clv_fail_at(&err, CLV_EPEER, 2, "matmul", "late"), CLV_EPEER);
    assert_int_equal(err.code, CLV_ESHAPE);
    assert_int_equal(err.rank, -1);
    assert_string_equal(err.message, "have 3");
}

static void error_names_rank_and_op(void **state)
{
    clv_error err = {0};

    assert_int_equal(clv_fail_at(&err, CLV_ETIMEOUT, 3, "all_reduce", "waited %d ms", 100), CLV_ETIMEOUT);
    assert_int_equal(err.rank, 3);
    assert_string_equal(err.op, "all_reduce");
    assert_string_equal(err.message, "waited 100 ms");
}

static void error_is_optional_and_cut_to_fit(void **state)
{
    char text[2000];
    clv_error err = {0};

    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = '\0';
    assert_int_equal(clv_fail(NULL, CLV_EINVAL, "%s", text), CLV_EINVAL);
    assert_int_equal(clv_fail_at(&err, CLV_EINVAL, 0, text, "%s", text), CLV_EINVAL);
    assert_int_equal(strlen(err.message), sizeof err.message - 1);
    assert_memory_equal(err.message + 253, " ... x", 6); /* the middle is left out */
    assert_int_equal(strlen(err.op), sizeof err.op - 1);

    clv_error memory = {0};
    assert_int_equal(clv_fail_memory(&memory, "the graph", 4096), CLV_ENOMEM);
    assert_string_equal(memory.message, "out of memory: 4096 bytes for the graph");
    clv_error none = {0}, unnamed = {0};
    clv_status (*refuse)(clv_error *, clv_status, const char *, ...) = clv_fail; /* whose formats no compiler checks */
    assert_int_equal(refuse(&none, CLV_ESHAPE, NULL), CLV_ESHAPE);
    assert_string_equal(none.message, clv_status_text(CLV_ESHAPE));
    assert_int_equal(clv_fail_memory(&unnamed, NULL, 1), CLV_ENOMEM);
}

static clv_status passes_on(clv_status status, int *reached)
{
    CLV_TRY(status);
    *reached = 1;
    return CLV_OK;
}

static void try_returns_at_the_first_failure(void **state)
{
    int reached = 0;

    assert_int_equal(passes_on(CLV_EIO, &reached), CLV_EIO);
    assert_int_equal(reached, 0);
    assert_int_equal(passes_on(CLV_OK, &reached), CLV_OK);
    assert_int_equal(reached, 1);
}

/* Objects of many sizes: aligned, zero, apart from one another. */
static void arena_objects_are_aligned_zero_and_disjoint(void **state)
{
    enum { COUNT = 3000 };
    static unsigned char *object[COUNT];
    static size_t size[COUNT];
    clv_arena *arena = clv_arena_new();

    assert_non_null(arena);
    for (int i = 0; i < COUNT; i++) {
        size[i] = (size_t)(i * 37 % 701) + (i % 500 == 0 ? 100000 : 0);
        object[i] = clv_arena_alloc(arena, 1, size[i]);
        assert_non_null(object[i]);
        assert_int_equal((uintptr_t)object[i] % 16, 0);
        for (size_t k = 0; k < size[i]; k++)
            assert_int_equal(object[i][k], 0);
        memset(object[i], i % 251 + 1, size[i]);
    }
    for (int i = 0; i < COUNT; i++)
        for (size_t k = 0; k < size[i]; k++)
            assert_int_equal(object[i][k], i % 251 + 1);
    clv_arena_free(arena);
    clv_arena_free(NULL);
}

static void arena_refuses_what_overflows(void **state)
{
    clv_arena *arena = clv_arena_new();

    assert_null(clv_arena_alloc(arena, SIZE_MAX, 2));
    assert_null(clv_arena_alloc(arena, 2, SIZE_MAX / 2 + 1));
    assert_null(clv_arena_alloc(arena, SIZE_MAX, 1));
    assert_null(clv_arena_alloc(arena, SIZE_MAX - 16, 1));
    assert_non_null(clv_arena_alloc(arena, 0, SIZE_MAX));
    assert_non_null(clv_arena_alloc(arena, SIZE_MAX, 0));
    assert_non_null(clv_arena_alloc(arena, 1, 1));
    clv_arena_free(arena);
}

static void arena_copies_and_formats(void **state)
{
    clv_arena *arena = clv_arena_new();
    const int numbers[] = {1, -2, 3};
    int *copy = clv_arena_copy(arena, numbers, sizeof numbers);

    assert_memory_equal(copy, numbers, sizeof numbers);
    assert_non_null(clv_arena_copy(arena, NULL, 0));
    assert_string_equal(clv_arena_string(arena, ""), "");
    assert_string_equal(clv_arena_string(arena, "model"), "model");
    assert_string_equal(clv_arena_format(arena, "%s:(%d)%d", "y", 2, 4), "y:(2)4");
    clv_arena_free(arena);
}

static void arena_arrays_grow(void **state)
{
    clv_arena *arena = clv_arena_new();
    int *items = NULL;
    int capacity = 0;

    for (int i = 0; i < 1000; i++) {
        assert_int_equal(clv_arena_grow(arena, &items, &capacity, i, sizeof *items), 0);
        assert_true(capacity > i);
        items[i] = i * i;
    }
    for (int i = 0; i < 1000; i++)
        assert_int_equal(items[i], i * i);

    int *before = items;
    int held = capacity;
    assert_int_equal(clv_arena_grow(arena, &items, &capacity, capacity, SIZE_MAX / 4), -1);
    assert_int_equal(clv_arena_grow(arena, &items, &capacity, INT32_MAX - 1, 1), -1);
    assert_ptr_equal(items, before);
    assert_int_equal(capacity, held);
    clv_arena_free(arena);
}

static void check_printable(const char *text, const char *wanted)
{
    char out[256];

    assert_int_equal(clv_printable(out, sizeof out, text, strlen(text)), strlen(wanted));
    assert_string_equal(out, wanted);
    assert_int_equal(clv_printable(out, sizeof out, wanted, strlen(wanted)), strlen(wanted));
    assert_string_equal(out, wanted); /* once is enough */
}

static void text_from_outside_is_made_printable(void **state)
{
    char out[6];

    check_printable("", "");
    check_printable("layers.0, Z\xc3\xbcrich \xe6\x97\xa5 \xf0\x9f\x99\x82 \\x1b",
                    "layers.0, Z\xc3\xbcrich \xe6\x97\xa5 \xf0\x9f\x99\x82 \\x1b");
    check_printable("a\n\t\r\x1b[31m\x7f", "a\\n\\t\\r\\x1b[31m\\x7f");
    check_printable("\xc2\x9b"
                    "31m\xe2\x80\xae"
                    "cba\xef\xbb\xbf\xf3\xa0\x80\x81",
                    "\\u009b31m\\u202ecba\\ufeff\\U000e0001");
    check_printable("\xff\xc3(\xe6\x97", "\\xff\\xc3(\\xe6\\x97");
    assert_int_equal(clv_printable(out, 2, "a\0b", 3), 6);
    assert_string_equal(out, "a");
    assert_int_equal(clv_printable(out, sizeof out, "abc\xc3\xbc\xc3\xbc", 7), 7); /* nothing is cut in two */
    assert_string_equal(out, "abc\xc3\xbc");
    assert_int_equal(clv_printable(NULL, 0, "\n", 1), 2);
}

/* Whatever it names: no message has a second line, or speaks to a terminal. */
static void messages_are_printable(void **state)
{
    clv_error err = {0}, filled = {.code = CLV_EPEER, .op = "\x1b]", .message = "\n"};

    clv_fail_at(&err, CLV_EPEER, 1, "op\x1b[2J", "%s: no such\nfile", "\x1b[31m/tmp/x");
    assert_string_equal(err.op, "op\\x1b[2J");
    assert_string_equal(err.message, "\\x1b[31m/tmp/x: no such\\nfile");
    clv_error_make_printable(&filled);
    assert_string_equal(filled.op, "\\x1b]");
    assert_string_equal(filled.message, "\\n");
}

static void clocks_agree(void **state)
{
    double before = 1e-9 * (double)clv_now_ns(), now = clv_now_seconds(), after = 1e-9 * (double)clv_now_ns();

    assert_true(now > before - 1e-3 && now < after + 1e-3);
}

/* Text for people takes nothing, too. */
static void test_text_of_nothing(void **state)
{
    char out[8] = "x", *copy;
    size_t size;
    assert_int_equal(clv_printable(out, sizeof out, NULL, 4), 0);
    assert_string_equal(out, "");
    assert_int_equal(clv_printable(NULL, 8, "a\n", 2), 3);
    assert_null(clv_printable_copy(NULL));
    assert_int_equal(clv_utf8_character(NULL, 3), 0);
    assert_false(clv_utf8_ends_inside_character(NULL, 3));
    assert_null(clv_utf8_repair(&size, NULL, 1));
    copy = clv_utf8_repair(NULL, "a\xff", 2);
    assert_string_equal(copy, "a\xef\xbf\xbd");
    free(copy);
}

static void dissent_is_from_most_or_from_the_lowest(void **state)
{
    static int64_t many[200];
    clv_mismatch same = clv_mismatch_find((int64_t[]){5, 5, 5}, 3);
    assert_true(same.n == 0 && same.majority == 0 && same.first == -1);
    assert_string_equal(same.members, "");
    clv_mismatch few = clv_mismatch_find((int64_t[]){1, 2, 2, 3}, 4);
    assert_true(few.n == 2 && few.majority == 1 && few.first == 0);
    assert_string_equal(few.members, "0, 3");
    clv_mismatch even = clv_mismatch_find((int64_t[]){7, 8, 8, 7}, 4);
    assert_true(even.n == 2 && even.majority == 0 && even.first == 1);
    assert_string_equal(even.members, "1, 2");
    for (int i = 0; i < 200; i++)
        many[i] = i;
    clv_mismatch all = clv_mismatch_find(many, 200); /* cut */
    assert_true(all.n == 199 && all.first == 1 && strlen(all.members) == sizeof all.members - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text_of_nothing),
        cmocka_unit_test(error_keeps_the_first_failure),
        cmocka_unit_test(error_names_rank_and_op),
        cmocka_unit_test(text_from_outside_is_made_printable),
        cmocka_unit_test(messages_are_printable),
        cmocka_unit_test(error_is_optional_and_cut_to_fit),
        cmocka_unit_test(try_returns_at_the_first_failure),
        cmocka_unit_test(arena_objects_are_aligned_zero_and_disjoint),
        cmocka_unit_test(arena_refuses_what_overflows),
        cmocka_unit_test(arena_copies_and_formats),
        cmocka_unit_test(arena_arrays_grow),
        cmocka_unit_test(clocks_agree),
        cmocka_unit_test(dissent_is_from_most_or_from_the_lowest),
    };
    return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}
