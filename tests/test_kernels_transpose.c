/* test_kernels_transpose.c - every permutation of some shapes, and boxes, against index arithmetic. */
#include "kernel_check.h"
#include "kernels/cpu/transpose_kernel.h"

static void fill_bytes(unsigned char *x, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        x[i] = (unsigned char)check_next();
}

static int64_t count_of(int rank, const int64_t *shape)
{
    int64_t n = 1;
    for (int d = 0; d < rank; d++)
        n *= shape[d];
    return n;
}

static void transpose_case(size_t elem, int rank, const int64_t *shape, const int *perm)
{
    int64_t n = count_of(rank, shape), stride[4], out_shape[4], step = 1;
    unsigned char *in = check_alloc(n, elem), *out = check_alloc(n, elem);
    fill_bytes(in, (size_t)n * elem);
    for (int d = rank - 1; d >= 0; d--)
        stride[d] = step, step *= shape[d], out_shape[d] = shape[perm[d]];
    clv_transpose_tensor(elem, out, in, rank, shape, perm);
    for (int64_t i = 0; i < n; i++) {
        int64_t from = 0, rest = i;
        for (int d = rank - 1; d >= 0; d--) {
            from += rest % out_shape[d] * stride[perm[d]];
            rest /= out_shape[d];
        }
        assert_memory_equal(out + (size_t)i * elem, in + (size_t)from * elem, elem);
    }
    free(in), free(out);
}

/* Steps perm to the next permutation in order; false after the last. */
static bool next_permutation(int *perm, int n)
{
    int i = n - 2, j = n - 1;
    while (i >= 0 && perm[i] > perm[i + 1])
        i--;
    if (i < 0)
        return false;
    while (perm[j] < perm[i])
        j--;
    int swap = perm[i];
    perm[i] = perm[j], perm[j] = swap;
    for (i++, j = n - 1; i < j; i++, j--)
        swap = perm[i], perm[i] = perm[j], perm[j] = swap;
    return true;
}

static void every_permutation(void **state)
{
    const struct {
        int rank;
        int64_t shape[4];
    } shapes[] = {{0, {0}},         {1, {9}},          {2, {33, 70}},      {2, {1, 5}},        {2, {0, 5}},
                  {3, {3, 40, 35}}, {4, {2, 3, 4, 5}}, {4, {2, 1, 33, 7}}, {4, {5, 34, 2, 33}}};
    print_message("seed %llu\n", (unsigned long long)check_seed);
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (size_t elem = 1; elem <= 8; elem *= 2) {
            int perm[4] = {0, 1, 2, 3};
            do
                transpose_case(elem, shapes[s].rank, shapes[s].shape, perm);
            while (next_permutation(perm, shapes[s].rank));
        }
}

/* A slice of [6,7,8], put back by a concat: the rest is untouched. */
static void boxes(void **state)
{
    const int64_t whole[] = {6, 7, 8}, box[] = {2, 3, 4}, lo[] = {1, 4, 3}, none[] = {0, 0, 0};
    unsigned char in[336 * 4], slice[24 * 4], out[336 * 4] = {0};
    fill_bytes(in, sizeof in);
    clv_copy_slice(4, slice, box, none, in, whole, lo, 3, box);
    clv_copy_slice(4, out, whole, lo, slice, box, none, 3, box);
    for (int i = 0; i < 336; i++) {
        bool inside = i / 56 - 1 >= 0 && i / 56 - 1 < 2 && i / 8 % 7 >= 4 && i % 8 >= 3 && i % 8 < 7;
        unsigned char want[4] = {0};
        if (inside)
            memcpy(want, in + i * 4, 4);
        assert_memory_equal(out + i * 4, want, 4);
    }
    const int64_t empty[] = {2, 0, 4};
    clv_copy_slice(4, out, whole, none, in, whole, lo, 3, empty);
    clv_copy_slice(4, out, none, none, in, none, none, 0, none); /* a scalar */
    assert_memory_equal(out, in, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_permutation),
        cmocka_unit_test(boxes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
