/* test_kernels_thread_determinism.c - the kernels that sum give the same bits with any number of threads. */
#include "kernel_check.h"
#include "kernels/cpu/cross_entropy_kernel.h"
#include "kernels/cpu/embedding_kernel.h"
#include "kernels/cpu/norm_kernel.h"
#include "kernels/cpu/reduce_kernel.h"

#ifdef _OPENMP
#include <omp.h>
#endif

enum { ROWS = 130, COLS = 517, N = ROWS * COLS, RESULTS = 4 * COLS + 6 * ROWS + COLS * ROWS };

/* All results, one after another. */
static void run_all(double *results, operand x, operand d_y, const int32_t *ids)
{
    const int64_t shape[] = {ROWS, COLS};
    const bool last[] = {false, true};
    clv_norm norm = {CLV_NORM_LAYER, x.dtype, CLV_F64, ROWS, COLS, COLS, 1e-5};
    clv_embedding_args embedding = {CLV_I32, ROWS, 0, ROWS, COLS};
    clv_cross_entropy_args ce = {x.dtype, CLV_I32, ROWS, COLS, 0, CLV_IGNORE_INDEX};
    float *max = check_alloc(ROWS, sizeof *max), *sums = check_alloc(2 * ROWS, sizeof *sums);
    float *table = check_alloc(N, sizeof *table);

    memset(results, 0, RESULTS * sizeof *results);
    clv_reduce_forward(CLV_REDUCTION_SUM, 1, CLV_F64, results, x.dtype, x.data, 2, (int64_t[]){ROWS, COLS},
                       (bool[]){true, false});
    results += COLS;
    clv_reduce_forward(CLV_REDUCTION_SUM, 1, CLV_F64, results, x.dtype, x.data, 2, shape, last);
    results += ROWS;
    clv_norm_moments(&norm, results, x.data);
    clv_norm_backward_weights(&norm, results + 2 * ROWS, results + 2 * ROWS + COLS, d_y.data, x.data, results);
    results += 2 * ROWS + 2 * COLS;
    clv_cross_entropy_max(&ce, max, x.data);
    clv_cross_entropy_sums(&ce, sums, x.data, ids, max);
    for (int i = 0; i < 2 * ROWS; i++)
        results[i] = (double)sums[i];
    results += 2 * ROWS;
    *results++ = clv_sum_squares(x.dtype, x.data, N);
    memset(table, 0, N * sizeof *table);
    clv_embedding_scatter(&embedding, CLV_F32, table, d_y.dtype, d_y.data, ids);
    for (int i = 0; i < N; i++)
        results[i] = (double)table[i];
    free(max), free(sums), free(table);
}

static void same_bits(clv_dtype dtype)
{
    if (dtype == CLV_F64)
        return;
    operand x = operand_random(dtype, N, -1, 1), d_y = operand_random(dtype, N, -1, 1);
    double *one = check_alloc(RESULTS, sizeof *one), *many = check_alloc(RESULTS, sizeof *many);
    int32_t ids[ROWS];
    for (int i = 0; i < ROWS; i++)
        ids[i] = (int32_t)(check_next() % 7);
#ifdef _OPENMP
    for (int threads = 1; threads <= 7; threads += 3) {
        omp_set_num_threads(threads);
        run_all(threads == 1 ? one : many, x, d_y, ids);
        if (threads > 1)
            assert_memory_equal(many, one, RESULTS * sizeof *one);
    }
#else
    run_all(one, x, d_y, ids);
    run_all(many, x, d_y, ids);
    assert_memory_equal(many, one, RESULTS * sizeof *one);
#endif
    free(one), free(many);
    operand_free(x), operand_free(d_y);
}

static void any_number_of_threads(void **state)
{
    check_everywhere(same_bits);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_number_of_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
