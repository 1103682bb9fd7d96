/* test_box_runs.c - a tensor's range, or a box of it, as boxes: for random shapes the pieces are consecutive, in order,
 * and no larger than allowed. */

#include "tensor/box_runs.h"
#include "unit_test.h"

static uint64_t seed = 1;

static int64_t draw(int64_t n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)(seed >> 33) % n;
}

static int random_shape(int64_t *shape)
{
    int rank = (int)draw(5);
    for (int d = 0; d < rank; d++)
        shape[d] = 1 + draw(5);
    return rank;
}

/* The flat indices of a box within a shape, in row-major order, must be next, next + 1, ... */
static int64_t check_consecutive(const int64_t *shape, const clv_shard *box, int64_t next)
{
    assert_true(clv_box_within(box, box->rank, shape));
    for (clv_box_runs runs = clv_box_runs_begin(shape, box); !runs.done; clv_box_runs_next(&runs)) {
        assert_int_equal(runs.first, next);
        next += runs.run_elems;
    }
    return next;
}

static void test_ranges(void **state)
{
    for (int i = 0; i < 20000; i++) {
        int64_t shape[CLV_MAX_RANK];
        int rank = random_shape(shape), pieces = 0;
        int64_t elems = clv_shape_elems(rank, shape), first = draw(elems), last = first + draw(elems - first + 1);
        int64_t next = first;
        clv_shard box;
        for (; clv_box_next_in_range(&box, &first, last, rank, shape); pieces++) {
            next = check_consecutive(shape, &box, next);
            assert_int_equal(first, next);
        }
        assert_int_equal(next, last);
        assert_true(pieces <= 2 * rank + 1);
    }
}

/* The pieces of a box, seen as a tensor of its own, are that tensor's ranges. */
static void test_pieces(void **state)
{
    for (int i = 0; i < 20000; i++) {
        clv_shard box = {0}, piece;
        int64_t shape[CLV_MAX_RANK], done = 0, next = 0, most = 1 + draw(12);
        box.rank = random_shape(shape);
        for (int d = 0; d < box.rank; d++) {
            box.lo[d] = draw(4);
            box.hi[d] = box.lo[d] + shape[d];
        }
        while (clv_box_next_chunk(&piece, &done, &box, most)) {
            assert_true(clv_shard_elems(&piece) >= 1 && clv_shard_elems(&piece) <= most);
            for (int d = 0; d < box.rank; d++) {
                piece.lo[d] -= box.lo[d];
                piece.hi[d] -= box.lo[d];
            }
            next = check_consecutive(shape, &piece, next);
            assert_int_equal(done, next);
        }
        assert_int_equal(next, clv_shard_elems(&box));
    }
}

static void test_empty(void **state)
{
    clv_shard box, none = {.rank = 2, .hi = {3, 0}};
    int64_t at = 0;
    assert_false(clv_box_next_chunk(&box, &at, &none, 4));
    assert_false(clv_box_next_in_range(&box, &at, 0, 2, (int64_t[]){3, 0}));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ranges), cmocka_unit_test(test_pieces),
                                       cmocka_unit_test(test_empty)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
