/* expert_dispatch_kernel.c - copies of tokens to the places of their experts, and their weighted sums. */
#include "kernels/cpu/expert_dispatch_kernel.h"

#include <string.h>

#include "kernels/cpu/f32_blocks.h"

void clv_assign_expert_places(int32_t *place, const int32_t *ids, int64_t groups, int64_t rows, int64_t top_k,
                              int64_t experts, int64_t capacity)
{
    for (int64_t g = 0; g < groups; g++, ids += rows * top_k, place += rows * top_k)
        for (int64_t e = 0; e < experts; e++) {
            int64_t taken = 0;
            for (int64_t i = 0; i < rows * top_k; i++)
                if (ids[i] == e) {
                    place[i] = (int32_t)(taken < capacity ? e * capacity + taken : experts * capacity);
                    taken++;
                } else if (e == 0 && (ids[i] < 0 || ids[i] >= experts))
                    place[i] = (int32_t)(experts * capacity);
        }
}

/* Row among [groups, n_experts * capacity] of choice i of group g; -1: it is with another rank, or dropped. */
static int64_t row_of(const clv_dispatch_args *a, int64_t g, int64_t i)
{
    const int64_t here = a->n_experts * a->capacity;
    const int64_t at = a->place[g * a->rows * a->top_k + i] - a->first * a->capacity;
    return at >= 0 && at < here ? g * here + at : -1;
}

static double weight_of(const clv_dispatch_args *a, int64_t g, int64_t i)
{
    return a->weights ? clv_dtype_load(a->weights_dtype, a->weights, g * a->rows * a->top_k + i) : 1;
}

static bool in_f32(const clv_dispatch_args *a)
{
    return clv_computes_in_f32(a->dtype);
}

static void put_row(const clv_dispatch_args *a, void *out, int64_t to, const void *x, int64_t from, double weight)
{
    const size_t size = (size_t)a->width * clv_dtype_size(a->dtype);
    if (!a->weights) {
        memcpy((char *)out + (size_t)to * size, (const char *)x + (size_t)from * size, size);
        return;
    }
    for (int64_t m = 0; m < a->width; m++) {
        const double value = clv_dtype_load(a->dtype, x, from * a->width + m);
        clv_dtype_store(a->dtype, out, to * a->width + m, in_f32(a) ? (float)weight * (float)value : weight * value);
    }
}

static void dispatch_group(const clv_dispatch_args *a, void *out, const void *x, int64_t g)
{
    const size_t group = (size_t)(a->n_experts * a->capacity * a->width) * clv_dtype_size(a->dtype);
    memset((char *)out + (size_t)g * group, 0, group);
    for (int64_t i = 0; i < a->rows * a->top_k; i++) {
        const int64_t to = row_of(a, g, i);
        if (to >= 0)
            put_row(a, out, to, x, g * a->rows + i / a->top_k, weight_of(a, g, i));
    }
}

void clv_dispatch_rows(const clv_dispatch_args *a, void *out, const void *x)
{
    CLV_PARALLEL_FOR_EACH(g, a->groups, a->groups * a->rows * a->top_k * a->width, dispatch_group(a, out, x, g));
}

static void combine_row(const clv_dispatch_args *a, void *out, const void *y, int64_t row)
{
    const int64_t g = row / a->rows, first = row % a->rows * a->top_k;
    for (int64_t m = 0; m < a->width; m++) {
        float narrow = 0;
        double wide = 0;
        for (int64_t j = 0; j < a->top_k; j++) {
            const int64_t from = row_of(a, g, first + j);
            if (from < 0)
                continue;
            const double value = clv_dtype_load(a->dtype, y, from * a->width + m), weight = weight_of(a, g, first + j);
            narrow += (float)weight * (float)value;
            wide += weight * value;
        }
        clv_dtype_store(a->dtype, out, row * a->width + m, in_f32(a) ? narrow : wide);
    }
}

void clv_combine_rows(const clv_dispatch_args *a, void *out, const void *y)
{
    const int64_t rows = a->groups * a->rows;
    CLV_PARALLEL_FOR_EACH(row, rows, rows * a->top_k * a->width, combine_row(a, out, y, row));
}

static void dot_row(const clv_dispatch_args *a, void *out, const void *d, const void *y, int64_t row)
{
    const int64_t g = row / a->rows, first = row % a->rows * a->top_k;
    for (int64_t j = 0; j < a->top_k; j++) {
        const int64_t from = row_of(a, g, first + j);
        float narrow = 0;
        double wide = 0;
        for (int64_t m = 0; from >= 0 && m < a->width; m++) {
            const double of_d = clv_dtype_load(a->dtype, d, row * a->width + m);
            const double of_y = clv_dtype_load(a->dtype, y, from * a->width + m);
            narrow += (float)of_d * (float)of_y;
            wide += of_d * of_y;
        }
        clv_dtype_store(a->weights_dtype, out, row * a->top_k + j, in_f32(a) ? narrow : wide);
    }
}

void clv_dot_rows(const clv_dispatch_args *a, void *out, const void *d, const void *y)
{
    const int64_t rows = a->groups * a->rows;
    CLV_PARALLEL_FOR_EACH(row, rows, rows * a->top_k * a->width, dot_row(a, out, d, y, row));
}
