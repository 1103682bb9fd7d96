/* test_kernels_attention.c: every instruction set and dtype against the f64 reference, the reference against finite
 * differences, and what the header promises: division of rows and threads changes no bit. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cleave/dtype.h"
#include "kernels/cpu/attention_kernel.h"
#include "kernels/cpu/cpu_tuning.h"
#include "kernels/cpu/isa_dispatch.h"
#include "sweep.h"
#include "unit_test.h"

enum { SEED = 20240607 };

static uint64_t state = SEED;

/* Uniform in [-1, 1). */
static double uniform(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (double)(int64_t)state / 9223372036854775808.0;
}

typedef struct shape {
    int64_t b, sq, sk, h, k, d, v, group, head_offset, kv_offset, q_offset, window, zigzag;
    bool causal, mask, fused, own_offsets;
    double dropout;
} shape;

static const shape shapes[] = {
    {.b = 1, .sq = 1, .sk = 1, .h = 1, .k = 1, .d = 1, .group = 1},
    {.b = 2, .sq = 65, .sk = 65, .h = 3, .k = 3, .d = 64, .group = 1, .causal = true},
    {.b = 1, .sq = 130, .sk = 200, .h = 2, .k = 1, .d = 16, .group = 2},
    {.b = 1, .sq = 70, .sk = 193, .h = 4, .k = 2, .d = 40, .group = 2, .q_offset = 100, .causal = true, .fused = true},
    {.b = 2, .sq = 5, .sk = 130, .h = 2, .k = 1, .d = 3, .group = 3, .mask = true},
    {.b = 3,
     .sq = 17,
     .sk = 67,
     .h = 5,
     .k = 3,
     .d = 20,
     .group = 4,
     .head_offset = 7,
     .kv_offset = 1,
     .q_offset = 30,
     .causal = true,
     .mask = true,
     .fused = true},
    {.b = 2, .sq = 33, .sk = 9, .h = 2, .k = 4, .d = 17, .group = 2, .head_offset = 4, .kv_offset = 1},
    {.b = 1, .sq = 40, .sk = 20, .h = 1, .k = 1, .d = 8, .group = 1, .q_offset = -10, .causal = true},
    {.b = 1, .sq = 3, .sk = 70, .h = 2, .k = 2, .d = 128, .group = 1, .causal = true, .q_offset = 66},
    {.b = 1, .sq = 2, .sk = 9, .h = 1, .k = 1, .d = 8, .group = 1, .causal = true, .q_offset = 3},
    /* windows, and offsets of each batch row */
    {.b = 2, .sq = 200, .sk = 200, .h = 2, .k = 1, .d = 16, .group = 2, .causal = true, .window = 70},
    {.b = 1, .sq = 150, .sk = 150, .h = 1, .k = 1, .d = 24, .group = 1, .causal = true, .window = 2},
    {.b = 1, .sq = 90, .sk = 140, .h = 1, .k = 1, .d = 8, .group = 1, .mask = true, .window = 20},
    {.b = 3,
     .sq = 7,
     .sk = 200,
     .h = 2,
     .k = 2,
     .d = 8,
     .group = 1,
     .causal = true,
     .own_offsets = true,
     .q_offset = 3},
    {.b = 3, .sq = 9, .sk = 200, .h = 2, .k = 1, .d = 8, .group = 2, .causal = true, .own_offsets = true, .window = 33},
    {.b = 3, .sq = 1, .sk = 200, .h = 4, .k = 2, .d = 8, .group = 2, .causal = true, .own_offsets = true, .window = 65},
    /* more query rows than share a pass over the keys */
    {.b = 1, .sq = 330, .sk = 330, .h = 2, .k = 1, .d = 16, .group = 2, .causal = true},
    {.b = 1, .sq = 300, .sk = 350, .h = 1, .k = 1, .d = 40, .group = 1, .q_offset = 41, .causal = true, .window = 75},
    {.b = 1, .sq = 135, .sk = 140, .h = 1, .k = 1, .d = 136, .group = 1, .mask = true, .window = 90},
    /* results that go past the caches */
    {.b = 4, .sq = 1100, .sk = 5, .h = 4, .k = 4, .d = 16, .group = 1, .fused = true},
    /* one query row: decoding */
    {.b = 2, .sq = 1, .sk = 131, .h = 3, .k = 3, .d = 64, .group = 1},
    {.b = 2, .sq = 1, .sk = 200, .h = 6, .k = 4, .d = 33, .group = 4, .head_offset = 3, .mask = true, .fused = true},
    {.b = 1, .sq = 1, .sk = 97, .h = 21, .k = 1, .d = 16, .group = 32, .causal = true, .q_offset = 70},
    /* the same in several chunks of keys, and parts of them */
    {.b = 2, .sq = 1, .sk = 1500, .h = 6, .k = 2, .d = 8, .group = 3, .causal = true, .q_offset = 1490},
    {.b = 3, .sq = 1, .sk = 1300, .h = 3, .k = 3, .d = 36, .group = 1, .mask = true, .fused = true},
    {.b = 1,
     .sq = 1,
     .sk = 1200,
     .h = 4,
     .k = 1,
     .d = 100,
     .group = 5,
     .causal = true,
     .q_offset = 1111,
     .window = 700},
    /* values narrower and wider than keys; keys and values of a head side by side */
    {.b = 2, .sq = 70, .sk = 70, .h = 4, .k = 4, .d = 24, .v = 16, .group = 1, .causal = true},
    {.b = 1, .sq = 65, .sk = 130, .h = 4, .k = 2, .d = 12, .v = 40, .group = 2, .q_offset = 65, .causal = true},
    {.b = 2, .sq = 33, .sk = 40, .h = 2, .k = 1, .d = 192, .v = 128, .group = 2, .mask = true},
    {.b = 1, .sq = 200, .sk = 200, .h = 2, .k = 2, .d = 17, .v = 3, .group = 1, .causal = true, .window = 70},
    {.b = 2, .sq = 1, .sk = 300, .h = 6, .k = 2, .d = 24, .v = 9, .group = 3, .causal = true, .q_offset = 290},
    {.b = 1, .sq = 1, .sk = 1200, .h = 20, .k = 1, .d = 20, .v = 36, .group = 20, .mask = true},
    {.b = 1, .sq = 5, .sk = 70, .h = 2, .k = 1, .d = 576, .v = 512, .group = 2, .causal = true, .q_offset = 65},
    /* rows in zig-zag order: of one rank, of all, of parts that are no rank's */
    {.b = 2, .sq = 130, .sk = 260, .h = 2, .k = 1, .d = 24, .group = 2, .q_offset = 130, .causal = true, .zigzag = 2},
    {.b = 1, .sq = 333, .sk = 333, .h = 2, .k = 2, .d = 16, .group = 1, .causal = true, .mask = true, .zigzag = 3},
    {.b = 2,
     .sq = 100,
     .sk = 301,
     .h = 2,
     .k = 2,
     .d = 40,
     .group = 1,
     .q_offset = 77,
     .causal = true,
     .zigzag = 4,
     .window = 90,
     .fused = true},
    {.b = 1, .sq = 4, .sk = 7, .h = 2, .k = 2, .d = 8, .v = 12, .group = 1, .q_offset = 3, .causal = true, .zigzag = 7},
    /* nothing at all */
    {.b = 1, .sq = 4, .sk = 0, .h = 2, .k = 2, .d = 8, .group = 1},
    {.b = 1, .sq = 1, .sk = 0, .h = 2, .k = 2, .d = 8, .group = 1},
    {.b = 1, .sq = 0, .sk = 5, .h = 2, .k = 2, .d = 8, .group = 1},
    {.b = 1, .sq = 4, .sk = 5, .h = 0, .k = 2, .d = 8, .group = 1},
    {.b = 0, .sq = 4, .sk = 5, .h = 2, .k = 2, .d = 8, .group = 1},
    {.b = 1, .sq = 4, .sk = 5, .h = 0, .k = 0, .d = 8, .group = 1},
};

/* All the buffers of one call. */
typedef struct problem {
    clv_attention_args args;
    void *q, *kv, *k, *v, *out, *d_out, *dq, *dkv, *dk, *dv;
    int64_t q_elems, out_elems, kv_elems;
    uint8_t *mask;
    int32_t offsets[3];
} problem;

static void *buffer(int64_t elems, clv_dtype dtype)
{
    size_t bytes = (size_t)(elems > 0 ? elems : 1) * clv_dtype_size(dtype);
    void *p = aligned_alloc(64, (bytes + 63) / 64 * 64);
    assert_non_null(p);
    for (int64_t i = 0; i < elems; i++)
        clv_dtype_store(dtype, p, i, 777.0); /* shows what was not written */
    return p;
}

static void *offset(void *p, int64_t elems, clv_dtype dtype)
{
    return (char *)p + (size_t)elems * clv_dtype_size(dtype);
}

static clv_attention_view dense(void *p, int64_t s, int64_t h, int64_t d)
{
    return (clv_attention_view){p, s * h * d, h * d, d};
}

static clv_attention_view kv_view(const shape *s, void *kv, int which, clv_dtype dtype)
{
    if (s->v)
        return dense(offset(kv, which * s->d, dtype), s->sk, s->k, s->d + s->v);
    if (s->fused)
        return (clv_attention_view){offset(kv, which * s->k * s->d, dtype), s->sk * 2 * s->k * s->d, 2 * s->k * s->d,
                                    s->d};
    return dense(offset(kv, which * s->b * s->sk * s->k * s->d, dtype), s->sk, s->k, s->d);
}

static void problem_make(problem *p, const shape *s, clv_dtype dtype)
{
    memset(p, 0, sizeof *p);
    p->q_elems = s->b * s->sq * s->h * s->d;
    p->out_elems = s->b * s->sq * s->h * (s->v ? s->v : s->d);
    p->kv_elems = s->b * s->sk * s->k * (s->d + (s->v ? s->v : s->d));
    p->q = buffer(p->q_elems, dtype);
    p->out = buffer(p->out_elems, dtype);
    p->d_out = buffer(p->out_elems, dtype);
    p->dq = buffer(p->q_elems, dtype);
    p->kv = buffer(p->kv_elems, dtype);
    p->dkv = buffer(p->kv_elems, dtype);
    p->mask = calloc((size_t)(s->b * s->sk) + 1, 1);
    for (int i = 0; i < 3; i++)
        p->offsets[i] = (int32_t[]){-4, 71, 300}[i]; /* before, in and past the keys: parts of a cache */
    p->args = (clv_attention_args){.q = dense(p->q, s->sq, s->h, s->d),
                                   .out = dense(p->out, s->sq, s->h, s->v ? s->v : s->d),
                                   .d_out = dense(p->d_out, s->sq, s->h, s->v ? s->v : s->d),
                                   .dq = dense(p->dq, s->sq, s->h, s->d),
                                   .k = kv_view(s, p->kv, 0, dtype),
                                   .v = kv_view(s, p->kv, 1, dtype),
                                   .dk = kv_view(s, p->dkv, 0, dtype),
                                   .dv = kv_view(s, p->dkv, 1, dtype),
                                   .lse = buffer(s->b * s->h * s->sq, CLV_F32),
                                   .key_mask = s->mask ? p->mask : NULL,
                                   .batch = s->b,
                                   .q_rows = s->sq,
                                   .k_rows = s->sk,
                                   .heads = s->h,
                                   .kv_heads = s->k,
                                   .head_dim = s->d,
                                   .value_dim = s->v,
                                   .group = s->group,
                                   .head_offset = s->head_offset,
                                   .kv_offset = s->kv_offset,
                                   .q_offset = s->q_offset,
                                   .offsets = s->own_offsets ? p->offsets : NULL,
                                   .window = s->window,
                                   .causal = s->causal,
                                   .dropout = s->dropout,
                                   .dropout_key = {{0x12345678u, 0x9abcdef0u}},
                                   .batch_offset = 100003, /* flat indices pass 2^32 */
                                   .row_offset = s->zigzag ? s->q_offset : 11,
                                   .zigzag = s->zigzag,
                                   .global_heads = s->head_offset + s->h + 2,
                                   .global_rows = 20000 + s->sq,
                                   .scale = (float)(1 / sqrt((double)s->d)),
                                   .dtype = dtype,
                                   .threads = 2};
}

static void problem_free(problem *p)
{
    void *all[] = {p->q, p->kv, p->out, p->d_out, p->dq, p->dkv, p->mask, p->args.lse, p->args.workspace};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

static void problem_fill(problem *p)
{
    clv_dtype dtype = p->args.dtype;
    for (int64_t i = 0; i < p->q_elems; i++)
        clv_dtype_store(dtype, p->q, i, 3 * uniform());
    for (int64_t i = 0; i < p->out_elems; i++)
        clv_dtype_store(dtype, p->d_out, i, uniform());
    for (int64_t i = 0; i < p->kv_elems; i++)
        clv_dtype_store(dtype, p->kv, i, 2 * uniform());
    for (int64_t i = 0; i < p->args.batch * p->args.k_rows; i++)
        p->mask[i] = uniform() > -0.4;
    if (p->args.batch > 1) /* batch row 1 sees nothing */
        memset(p->mask + p->args.k_rows, 0, (size_t)p->args.k_rows);
}

/* The same inputs in f64. */
static void problem_widen(problem *to, const problem *from)
{
    clv_dtype_convert(CLV_F64, to->q, from->args.dtype, from->q, from->q_elems);
    clv_dtype_convert(CLV_F64, to->d_out, from->args.dtype, from->d_out, from->out_elems);
    clv_dtype_convert(CLV_F64, to->kv, from->args.dtype, from->kv, from->kv_elems);
    memcpy(to->mask, from->mask, (size_t)(from->args.batch * from->args.k_rows));
}

static void run_forward(problem *p)
{
    clv_error err = {0};
    size_t bytes = clv_attention_forward_workspace(&p->args);
    free(p->args.workspace);
    p->args.workspace = malloc(bytes + 1);
    memset(p->args.workspace, 0xff, bytes); /* NaN: what is used before it is written shows */
    if (clv_attention_forward(&p->args, &err) != CLV_OK)
        fail_msg("%s", err.message);
}

static void run_backward(problem *p)
{
    clv_error err = {0};
    size_t bytes = clv_attention_backward_workspace(&p->args);
    free(p->args.workspace);
    p->args.workspace = malloc(bytes + 1);
    memset(p->args.workspace, 0xff, bytes);
    if (clv_attention_backward(&p->args, &err) != CLV_OK)
        fail_msg("%s", err.message);
}

/* Largest difference against largest reference value; the floor keeps tensors that are zero but for rounding. */
static void compare(const char *what, size_t shape_index, clv_dtype dtype, const void *got, const void *want,
                    int64_t elems, double tolerance, double floor)
{
    double largest = floor;
    for (int64_t i = 0; i < elems; i++)
        largest = fmax(largest, fabs(clv_dtype_load(CLV_F64, want, i)));
    for (int64_t i = 0; i < elems; i++) {
        double x = clv_dtype_load(dtype, got, i), y = clv_dtype_load(CLV_F64, want, i);
        if (!(fabs(x - y) <= tolerance * largest))
            fail_msg("%s, shape %zu, %s, %s: [%lld] is %.9g, not %.9g (seed %d)", what, shape_index,
                     clv_dtype_name(dtype), clv_isa_name(clv_cpu_isa()), (long long)i, x, y, SEED);
    }
}

static void compare_lse(size_t index, const problem *got, const problem *want)
{
    int64_t n = got->args.batch * got->args.heads * got->args.q_rows;
    for (int64_t i = 0; i < n; i++) {
        float x = got->args.lse[i], y = want->args.lse[i];
        if (!(x == y || fabsf(x - y) <= 1e-5f * fmaxf(1, fabsf(y))))
            fail_msg("lse, shape %zu: [%lld] is %.9g, not %.9g", index, (long long)i, (double)x, (double)y);
    }
}

/* Rounding of the result, and of `out` on its way into the backward pass; f32 sums of a few hundred terms. */
static double tolerance_of(clv_dtype dtype)
{
    return dtype == CLV_F32 ? 2e-6 : dtype == CLV_F16 ? 1e-3 : 8e-3;
}

/* On each kind of CPU, beside what is in f64. */
static void check_shape(size_t index, clv_dtype dtype, double dropout)
{
    problem want;
    shape s = shapes[index];
    double tolerance = tolerance_of(dtype) / (1 - dropout); /* what is kept is larger by so much */
    double floor = dropout > 0 ? 0.25 : 0.05; /* out, no mean of values any more, is rounded even of one key */
    s.dropout = dropout;
    problem_make(&want, &s, CLV_F64);
    for (int kind = 0, n = 0; kind < CLV_CPU_KINDS; kind++) {
        problem got;
        if ((kind > CLV_CPU_AVX512 && dtype != CLV_BF16) || /* they have nothing for others */
            clv_tuning_set_for_test((clv_cpu_kind)kind) != 0)
            continue;
        problem_make(&got, &s, dtype);
        state = SEED + index; /* whatever other shapes there are */
        problem_fill(&got);
        if (n++ == 0) {
            problem_widen(&want, &got);
            run_forward(&want);
            run_backward(&want);
        }
        run_forward(&got);
        compare("out", index, dtype, got.out, want.out, got.out_elems, tolerance, floor);
        compare_lse(index, &got, &want);
        run_backward(&got);
        compare("dq", index, dtype, got.dq, want.dq, got.q_elems, 2 * tolerance, floor);
        compare("dk, dv", index, dtype, got.dkv, want.dkv, got.kv_elems, 2 * tolerance, floor);
        problem_free(&got);
    }
    problem_free(&want);
}

static void check_all(double dropout)
{
    static const clv_dtype dtypes[] = {CLV_F32, CLV_BF16, CLV_F16};
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
            if (dropout > 0 ? sweep_takes() : sweep_takes_thinned(5))
                check_shape(i, dtypes[d], dropout);
    clv_tuning_reset_for_test();
}

/* Every kind that this CPU is of. */
static void test_against_reference(void **unused)
{
    for (int kind = 0; kind < CLV_CPU_KINDS; kind++)
        if (clv_tuning_set_for_test((clv_cpu_kind)kind) != 0)
            print_message("this CPU is not of kind %d: not tested\n", kind);
    check_all(0);
    check_all(0.3);
}

/* Zig-zag order is a permutation in which each of P ranks has two granules, that from the begin and that from the end,
 * and attention in it is that of rows in order, permuted. */
static void test_zigzag(void **unused)
{
    enum { N = 29 };
    for (int64_t ranks = 1; ranks <= N + 2; ranks++) {
        shape s = {.b = 1, .sq = N, .sk = N, .h = 2, .k = 2, .d = 4, .group = 1, .causal = true, .dropout = 0.3};
        problem plain, order;
        const int64_t row = s.h * s.d;
        bool seen[N] = {false};
        problem_make(&plain, &s, CLV_F64);
        s.zigzag = ranks;
        problem_make(&order, &s, CLV_F64);
        problem_fill(&plain);
        plain.args.row_offset = order.args.row_offset = 0;
        plain.args.global_rows = order.args.global_rows = N;
        for (int64_t i = 0; i < N; i++) {
            const int64_t at = clv_zigzag_position(N, ranks, i), rank = ((i + 1) * ranks - 1) / N;
            assert_true(at >= 0 && at < N && !seen[at] && clv_zigzag_row(N, ranks, at) == i);
            assert_true((at >= rank * N / ranks / 2 && at < (rank + 1) * N / ranks / 2) ||
                        (at >= N - ((rank + 1) * N / ranks + 1) / 2 && at < N - (rank * N / ranks + 1) / 2));
            seen[at] = true;
            memcpy((double *)order.q + i * row, (double *)plain.q + at * row, (size_t)row * 8);
            memcpy((double *)order.d_out + i * row, (double *)plain.d_out + at * row, (size_t)row * 8);
            for (int64_t which = 0; which < 2; which++)
                memcpy((double *)order.kv + (which * N + i) * row, (double *)plain.kv + (which * N + at) * row,
                       (size_t)row * 8);
        }
        run_forward(&plain);
        run_forward(&order);
        run_backward(&plain);
        run_backward(&order);
        for (int64_t i = 0; i < N * row; i++) {
            const int64_t from = clv_zigzag_position(N, ranks, i / row) * row + i % row;
            assert_true(((double *)order.out)[i] == ((double *)plain.out)[from]);
            assert_true(((double *)order.dq)[i] == ((double *)plain.dq)[from]);
            for (int64_t which = 0; which < 2; which++) {
                const double got = ((double *)order.dkv)[which * N * row + i],
                             want = ((double *)plain.dkv)[which * N * row + from];
                assert_true(fabs(got - want) <= 1e-13 * fmax(1, fabs(want))); /* summed in the order of rows */
            }
        }
        problem_free(&plain);
        problem_free(&order);
    }
}

/* sum(d_out * out) */
static double loss(problem *p)
{
    double sum = 0;
    run_forward(p);
    for (int64_t i = 0; i < p->out_elems; i++)
        sum += ((double *)p->out)[i] * ((double *)p->d_out)[i];
    return sum;
}

static void check_gradient(problem *p, double *x, const double *dx, int64_t elems)
{
    const double step = 1e-5;
    for (int64_t i = 0; i < elems; i++) {
        double before = x[i];
        x[i] = before + step;
        double up = loss(p);
        x[i] = before - step;
        double down = loss(p);
        x[i] = before;
        if (!(fabs((up - down) / (2 * step) - dx[i]) <= 1e-8))
            fail_msg("[%lld]: %.12g, differences say %.12g", (long long)i, dx[i], (up - down) / (2 * step));
    }
}

static void test_finite_differences(void **unused)
{
    static const shape small[] = {
        {.b = 2,
         .sq = 4,
         .sk = 5,
         .h = 3,
         .k = 2,
         .d = 3,
         .group = 2,
         .head_offset = 1,
         .q_offset = 1,
         .causal = true,
         .fused = true},
        {.b = 2, .sq = 3, .sk = 6, .h = 2, .k = 2, .d = 2, .group = 1, .mask = true},
        {.b = 2, .sq = 6, .sk = 8, .h = 2, .k = 1, .d = 2, .group = 2, .q_offset = 2, .causal = true, .window = 3},
        {.b = 1, .sq = 5, .sk = 5, .h = 1, .k = 1, .d = 2, .group = 1, .window = 2},
        {.b = 2, .sq = 4, .sk = 5, .h = 3, .k = 2, .d = 3, .group = 2, .head_offset = 1, .mask = true, .dropout = 0.4},
    };
    for (size_t i = 0; i < sizeof small / sizeof *small; i++) {
        problem p;
        problem_make(&p, &small[i], CLV_F64);
        problem_fill(&p);
        run_forward(&p);
        run_backward(&p);
        check_gradient(&p, p.q, p.dq, p.q_elems);
        check_gradient(&p, p.kv, p.dkv, p.kv_elems);
        problem_free(&p);
    }
}

/* Query rows computed in two calls, and with any number of threads, have the bits of one call. */
static void divide(int64_t window, double dropout)
{
    const shape whole = {.b = 2,
                         .sq = 150,
                         .sk = 180,
                         .h = 4,
                         .k = 2,
                         .d = 24,
                         .group = 2,
                         .q_offset = 30,
                         .causal = true,
                         .window = window,
                         .mask = true,
                         .dropout = dropout};
    static const int64_t cuts[] = {2, 64, 77};
    problem p, one;
    problem_make(&p, &whole, CLV_F32);
    problem_fill(&p);
    p.args.threads = 1;
    run_forward(&p);
    run_backward(&p);

    problem_make(&one, &whole, CLV_F32);
    memcpy(one.q, p.q, (size_t)p.q_elems * 4);
    memcpy(one.d_out, p.d_out, (size_t)p.q_elems * 4);
    memcpy(one.kv, p.kv, (size_t)p.kv_elems * 4);
    memcpy(one.mask, p.mask, (size_t)(whole.b * whole.sk));
    one.args.threads = 3;
    run_forward(&one);
    run_backward(&one);
    assert_memory_equal(one.out, p.out, (size_t)p.q_elems * 4);
    assert_memory_equal(one.dq, p.dq, (size_t)p.q_elems * 4);
    assert_memory_equal(one.dkv, p.dkv, (size_t)p.kv_elems * 4);

    for (size_t c = 0; c < sizeof cuts / sizeof *cuts; c++) {
        clv_attention_args all = one.args;
        memset(one.out, 0, (size_t)p.q_elems * 4);
        one.args.lse = NULL;
        one.args.q_rows = cuts[c];
        run_forward(&one);
        one.args.q_rows = whole.sq - cuts[c];
        one.args.q_offset += cuts[c];
        one.args.row_offset += cuts[c];
        one.args.q.data = (float *)one.q + cuts[c] * whole.h * whole.d;
        one.args.out.data = (float *)one.out + cuts[c] * whole.h * whole.d;
        run_forward(&one);
        assert_memory_equal(one.out, p.out, (size_t)p.q_elems * 4);
        all.workspace = one.args.workspace;
        one.args = all;
    }
    problem_free(&one);
    problem_free(&p);
}

/* A token decoded by any number of threads, beside others or alone, with other heads or alone, has the same bits. */
static void test_decoding_divided(void **unused)
{
    static const shape s = {.b = 3,
                            .sq = 1,
                            .sk = 1800,
                            .h = 6,
                            .k = 3,
                            .d = 24,
                            .group = 2,
                            .causal = true,
                            .q_offset = 1500,
                            .own_offsets = true,
                            .mask = true};
    problem p, one;
    problem_make(&p, &s, CLV_F32);
    problem_fill(&p);
    p.args.threads = 1;
    run_forward(&p);
    one = p;
    one.out = buffer(p.q_elems, CLV_F32);
    one.args.out.data = one.out;
    one.args.lse = NULL;
    one.args.workspace = NULL;
    for (one.args.threads = 2; one.args.threads <= 4; one.args.threads++) {
        run_forward(&one);
        assert_memory_equal(one.out, p.out, (size_t)p.q_elems * 4);
    }
    for (int64_t b = 0; b < s.b; b++)
        for (int64_t h = 0; h < s.h; h++) {
            one.args.batch = one.args.heads = 1;
            one.args.head_offset = h;
            one.args.threads = 1 + (int)h % 4;
            one.args.offsets = p.offsets + b;
            one.args.key_mask = p.mask + b * s.sk;
            one.args.q.data = (float *)p.q + (b * s.h + h) * s.d;
            one.args.k.data = (float *)p.args.k.data + b * p.args.k.batch_stride;
            one.args.v.data = (float *)p.args.v.data + b * p.args.v.batch_stride;
            run_forward(&one);
            assert_memory_equal(one.out, (float *)p.out + (b * s.h + h) * s.d, (size_t)s.d * 4);
        }
    free(one.out);
    free(one.args.workspace);
    problem_free(&p);
}

static void test_division_changes_no_bit(void **unused)
{
    divide(0, 0);
    divide(50, 0);
    divide(0, 0.5);
}

/* Values of ones, and keys of zeros: each row's output is a mean of z. */
static void test_share_that_is_dropped(void **unused)
{
    static const shape s = {
        .b = 2, .sq = 100, .sk = 500, .h = 4, .k = 4, .d = 1, .group = 1, .dropout = 0.2}; /* 400,000 pairs */
    problem p;
    double mean = 0, kept = 0;
    problem_make(&p, &s, CLV_F32);
    for (int64_t i = 0; i < p.q_elems; i++)
        ((float *)p.q)[i] = ((float *)p.d_out)[i] = 1;
    for (int64_t i = 0; i < p.kv_elems; i++)
        ((float *)p.kv)[i] = i < p.kv_elems / 2 ? 0 : 1;
    run_forward(&p);
    for (int64_t i = 0; i < p.q_elems; i++) {
        double z = ((float *)p.out)[i];
        mean += z / (double)p.q_elems;
        assert_true(fabs(z - 1) < 6 * 0.5 / sqrt(500)); /* a deviation of z: root of 0.2 / 0.8 */
        assert_true(fabsf(p.args.lse[i] - logf(500)) < 1e-5f);
    }
    assert_true(fabs(mean - 1) < 5 * 0.5 / sqrt(400000));
    run_backward(&p);
    for (int64_t i = 0; i < s.b * s.sk * s.k; i++)
        kept += (double)((float *)p.args.dv.data)[i] / (double)(s.b * s.sk * s.k);
    assert_true(fabs(kept * 500 / 100 - mean) < 1e-4); /* the same are dropped backward */
    p.args.dropout_key.word[0]++;
    run_forward(&p);
    double other = 0;
    for (int64_t i = 0; i < p.q_elems; i++)
        other += ((float *)p.out)[i] / (double)p.q_elems;
    assert_true(other != mean && fabs(other - 1) < 5 * 0.5 / sqrt(400000));
    problem_free(&p);
}

/* Blocks of keys that the windows of a block of queries have left behind are not read, in either direction. */
static void test_what_is_far_is_not_read(void **unused)
{
    static const shape s = {
        .b = 1, .sq = 320, .sk = 320, .h = 2, .k = 1, .d = 8, .group = 2, .causal = true, .window = 60};
    enum { FAR = 64, FIRST = 2 * CLV_ATTENTION_KEYS }; /* query rows from FIRST on see keys from FIRST - 59 on */
    problem p;
    problem_make(&p, &s, CLV_F32);
    problem_fill(&p);
    run_forward(&p);
    for (int64_t i = 0; i < FAR * s.d; i++)
        ((float *)p.args.k.data)[i] = ((float *)p.args.v.data)[i] = NAN;
    p.args.q_offset = FIRST;
    p.args.q_rows = s.sq - FIRST;
    p.args.q.data = (float *)p.q + FIRST * s.h * s.d;
    run_forward(&p);
    run_backward(&p);
    for (int64_t i = 0; i < p.args.q_rows * s.h * s.d; i++)
        assert_true(isfinite(((float *)p.out)[i]) && isfinite(((float *)p.dq)[i]));
    for (int64_t i = 0; i < FAR * s.d; i++)
        assert_true(((float *)p.args.dk.data)[i] == 0 && ((float *)p.args.dv.data)[i] == 0);
    p.args.q_rows = 1; /* decoding */
    run_forward(&p);
    for (int64_t i = 0; i < s.h * s.d; i++)
        assert_true(isfinite(((float *)p.out)[i]));
    problem_free(&p);
}

/* A NaN in one query stays in its row; one in a visible key reaches every row that sees it and no other. */
static void test_nan_goes_where_it_must(void **unused)
{
    static const shape s = {.b = 1, .sq = 70, .sk = 70, .h = 1, .k = 1, .d = 8, .group = 1, .causal = true};
    problem p;
    problem_make(&p, &s, CLV_F32);
    problem_fill(&p);
    ((float *)p.q)[3 * 8] = NAN;
    ((float *)p.kv)[60 * 8] = NAN;
    run_forward(&p);
    for (int64_t i = 0; i < 70; i++)
        assert_int_equal(!isnan(((float *)p.out)[i * 8]), i != 3 && i < 60);
    problem_free(&p);
}

static bool all_finite(clv_dtype dtype, const void *x, int64_t elems)
{
    for (int64_t i = 0; i < elems; i++)
        if (!isfinite(clv_dtype_load(dtype, x, i)))
            return false;
    return true;
}

/* Scores so large that their rounding is beyond what an exponential stands: their differences are no better, but p is
 * between 0 and 1. */
static void check_large_scores(clv_dtype dtype, int kind, double by)
{
    static const shape s = {.b = 1, .sq = 70, .sk = 70, .h = 2, .k = 1, .d = 32, .group = 2, .causal = true};
    problem p;
    problem_make(&p, &s, dtype);
    problem_fill(&p);
    for (int64_t i = 0; i < p.q_elems; i++)
        clv_dtype_store(dtype, p.q, i, by * clv_dtype_load(dtype, p.q, i));
    run_forward(&p);
    run_backward(&p);
    if (!all_finite(dtype, p.out, p.q_elems) || !all_finite(dtype, p.dq, p.q_elems) ||
        !all_finite(dtype, p.dkv, p.kv_elems) || !all_finite(CLV_F32, p.args.lse, 2 * s.sq))
        fail_msg("%s, CPU kind %d, queries %g: not finite", clv_dtype_name(dtype), kind, by);
    problem_free(&p);
}

static void test_large_scores(void **unused)
{
    for (int kind = 0; kind < CLV_CPU_KINDS; kind++)
        for (double by = 1e4; clv_tuning_set_for_test((clv_cpu_kind)kind) == 0 && by < 1e20; by *= 10) {
            check_large_scores(CLV_BF16, kind, by);
            check_large_scores(CLV_F32, kind, by);
        }
    clv_tuning_reset_for_test();
}

static void test_errors(void **unused)
{
    static const shape s = {.b = 1, .sq = 2, .sk = 2, .h = 4, .k = 2, .d = 8, .group = 2};
    problem p;
    clv_error err = {0};
    problem_make(&p, &s, CLV_F32);
    assert_int_equal(clv_attention_forward(&p.args, &err), CLV_EINVAL);
    assert_non_null(strstr(err.message, "workspace"));
    p.args.head_offset = 2;
    err = (clv_error){0};
    assert_int_equal(clv_attention_backward(&p.args, &err), CLV_EINVAL);
    assert_non_null(strstr(err.message, "KV heads"));
    p.args.head_dim = CLV_ATTENTION_MAX_DIM + 1;
    assert_int_equal(clv_attention_forward(&p.args, NULL), CLV_EINVAL);
    p.args.head_dim = 8;
    p.args.dropout = 1;
    err = (clv_error){0};
    assert_int_equal(clv_attention_forward(&p.args, &err), CLV_EINVAL);
    assert_non_null(strstr(err.message, "a dropout of 1"));
    p.args.dropout = NAN;
    assert_int_equal(clv_attention_backward(&p.args, NULL), CLV_EINVAL);
    p.args.dropout = 0;
    p.args.group = 0;
    assert_int_equal(clv_attention_forward(&p.args, NULL), CLV_EINVAL);
    p.args.q_rows = -1;
    assert_int_equal(clv_attention_forward(&p.args, NULL), CLV_EINVAL);
    p.args.dtype = CLV_I32;
    assert_int_equal(clv_attention_forward(&p.args, NULL), CLV_EUNSUPPORTED);
    p.args.dtype = CLV_F32;
    problem_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_zigzag),
        cmocka_unit_test(test_against_reference),
        cmocka_unit_test(test_finite_differences),
        cmocka_unit_test(test_decoding_divided),
        cmocka_unit_test(test_division_changes_no_bit),
        cmocka_unit_test(test_what_is_far_is_not_read),
        cmocka_unit_test(test_nan_goes_where_it_must),
        cmocka_unit_test(test_large_scores),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_share_that_is_dropped),
    };
    print_message("seed %d\n", SEED);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
