/* test_kernels_embedding.c - gather and scatter-add of table rows, the vocabulary whole and cut, tables of 16 bits too.
 */
#include "kernel_check.h"
#include "kernels/cpu/embedding_kernel.h"

typedef struct size_case {
    int64_t count, vocab, lo, hi, width;
} size_case;

static const size_case sizes[] = {
    {0, 5, 0, 5, 8}, {1, 1, 0, 1, 1}, {40, 7, 0, 7, 33}, {40, 7, 2, 5, 33}, {40, 7, 4, 4, 33}, {90, 50, 25, 50, 1100},
};
enum { SIZES = sizeof sizes / sizeof *sizes };

static void *random_ids(clv_dtype dtype, int64_t count, int64_t vocab)
{
    void *ids = check_alloc(count, clv_dtype_size(dtype));
    for (int64_t i = 0; i < count; i++)
        clv_dtype_store(dtype, ids, i, (double)(check_next() % (uint64_t)vocab));
    return ids;
}

static void gather_case(clv_dtype dtype, clv_dtype out_dtype, const size_case *s, clv_dtype id_dtype)
{
    operand table = operand_random(dtype, (s->hi - s->lo) * s->width, -1, 1);
    operand out = operand_blank(out_dtype, s->count * s->width);
    void *ids = random_ids(id_dtype, s->count, s->vocab);
    clv_embedding_args e = {id_dtype, s->count, s->lo, s->hi, s->width};
    for (int64_t i = 0; i < out.n; i++) {
        int64_t id = (int64_t)clv_dtype_load(id_dtype, ids, i / s->width);
        out.exact[i] = id >= s->lo && id < s->hi ? table.exact[(id - s->lo) * s->width + i % s->width] : 0;
    }
    clv_embedding_gather(&e, out_dtype, out.data, dtype, table.data, ids);
    check_close("gather", out_dtype, out.data, out.exact, out.n, 0, 0);
    free(ids);
    operand_free(table), operand_free(out);
}

static void scatter_case(clv_dtype table_dtype, clv_dtype dtype, const size_case *s, clv_dtype id_dtype)
{
    operand d_out = operand_random(dtype, s->count * s->width, -1, 1);
    operand d_table = operand_random(table_dtype, (s->hi - s->lo) * s->width, -1, 1);
    void *ids = random_ids(id_dtype, s->count, s->vocab);
    clv_embedding_args e = {id_dtype, s->count, s->lo, s->hi, s->width};
    for (int64_t i = 0; i < d_out.n; i++) {
        int64_t id = (int64_t)clv_dtype_load(id_dtype, ids, i / s->width);
        if (id >= s->lo && id < s->hi)
            d_table.exact[(id - s->lo) * s->width + i % s->width] += d_out.exact[i];
    }
    clv_embedding_scatter(&e, table_dtype, d_table.data, dtype, d_out.data, ids);
    check_close("scatter", table_dtype, d_table.data, d_table.exact, d_table.n, (double)s->count + 1, 1);
    free(ids);
    operand_free(d_out), operand_free(d_table);
}

static void matches(clv_dtype dtype)
{
    for (int s = 0; s < SIZES; s++)
        for (int d = 0; d < CHECK_DTYPES; d++) {
            clv_dtype ids = s % 2 ? CLV_I32 : CLV_I64;
            gather_case(dtype, check_dtypes[d], &sizes[s], ids);
            scatter_case(check_dtypes[d], dtype, &sizes[s], ids);
        }
}

static void gather_and_scatter(void **state)
{
    check_everywhere(matches);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gather_and_scatter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
