/* attention_kernel.c - flash attention driver: checks, workspace, tasks over threads and ranks, f64 reference. */
#include "kernels/cpu/attention_kernel.h"

#include <math.h>

#include "base/error.h"
#include "kernels/cpu/f32_blocks.h"
#include "kernels/cpu/isa/attention_simd.h"
#include "kernels/cpu/openmp.h"

enum { ROWS = CLV_ATTENTION_ROWS, KEYS = CLV_ATTENTION_KEYS };

static const int64_t MOST_KEYS = INT64_C(1) << 40; /* more than any memory; keeps products of sizes from overflowing */

/* -------------------------------------------------------------------------------------------------- sizes */

/* 0 rows count as decoding, because a rank without rows plans workspace for ranks with one. */
static bool decodes(const clv_attention_args *a)
{
    return a->q_rows <= 1 && a->dropout == 0 && !a->zigzag;
}

/* Floats for decoding, without the sums of parts. */
static int64_t decode_floats(const clv_attention_args *a)
{
    return (CLV_ATTENTION_HEADS + KEYS) * clv_attention_pad_to_vector(clv_attention_widest(a)) +
           CLV_ATTENTION_HEADS * CLV_ATTENTION_CHUNK;
}

/* Floats of a slot: multiples of 16, so that slots begin on cache lines. For bf16 the larger of what
 * isa/attention_simd.c and isa/attention_bf16.c need, so that plans are the same on every CPU. */
static int64_t forward_floats(const clv_attention_args *a)
{
    int64_t width = clv_attention_pad_to_vector(clv_attention_widest(a)),
            tiled = clv_attention_pad_to_tile(clv_attention_widest(a));
    int64_t k_rows = (a->k_rows + KEYS - 1) / KEYS * KEYS;
    if (decodes(a))
        return decode_floats(a) + CLV_ATTENTION_PARTS * clv_attention_decode_split_floats(clv_attention_widest(a));
    int64_t both = KEYS * ROWS + 2 * ROWS;
    int64_t floats =
        2 * KEYS * width + KEYS * ROWS + clv_attention_blocks_per_key_pass(a) * (2 * width * ROWS + 2 * ROWS);
    return a->dtype == CLV_BF16 ? clv_max_i64(floats, 5 * ROWS * tiled / 2 + both + k_rows * tiled) : floats;
}

static int64_t backward_floats(const clv_attention_args *a)
{
    int64_t width = clv_attention_pad_to_vector(clv_attention_widest(a)),
            tiled = clv_attention_pad_to_tile(clv_attention_widest(a));
    int64_t k_rows = (a->k_rows + KEYS - 1) / KEYS * KEYS, both = 2 * KEYS * ROWS + 2 * ROWS;
    int64_t floats = 2 * KEYS * width + 2 * KEYS * ROWS + 2 * a->k_rows * width +
                     clv_attention_blocks_per_key_pass(a) * (5 * ROWS * width + 2 * ROWS);
    int64_t tiles = 7 * ROWS * tiled / 2 + both + KEYS * ROWS / 2 + 7 * k_rows * tiled / 2;
    return a->dtype == CLV_BF16 ? clv_max_i64(floats, tiles) : floats;
}

static int team(const clv_attention_args *a)
{
    return a->threads > 1 ? a->threads : 1;
}

static int slots(const clv_attention_args *a)
{
    return a->workspace_slots > team(a) ? a->workspace_slots : team(a);
}

size_t clv_attention_forward_workspace(const clv_attention_args *a)
{
    if (a->dtype == CLV_F64)
        return 0;
    return a->k_rows > MOST_KEYS ? SIZE_MAX : (size_t)forward_floats(a) * (size_t)slots(a) * sizeof(float);
}

size_t clv_attention_backward_workspace(const clv_attention_args *a)
{
    if (a->dtype == CLV_F64)
        return clv_attention_reference_workspace(a);
    if (a->k_rows > MOST_KEYS)
        return SIZE_MAX;
    return (size_t)backward_floats(a) * (size_t)slots(a) * sizeof(float);
}

size_t clv_attention_reference_workspace(const clv_attention_args *a)
{
    return (size_t)(2 * a->batch * a->heads * a->q_rows) * sizeof(double);
}

/* ------------------------------------------------------------------------------------------------- checks */

static clv_status check(const clv_attention_args *a, clv_error *err)
{
    if (!clv_dtype_is_float(a->dtype))
        return clv_fail(err, CLV_EUNSUPPORTED, "attention of %s: f32, bf16, f16 and f64 are computed",
                        clv_dtype_name(a->dtype));
    if (a->batch < 0 || a->q_rows < 0 || a->k_rows < 0 || a->heads < 0 || a->kv_heads < 0)
        return clv_fail(err, CLV_EINVAL, "attention: an extent is negative");
    if (a->head_dim < 1 || a->head_dim > CLV_ATTENTION_MAX_DIM)
        return clv_fail(err, CLV_EINVAL, "attention: head_dim %lld is not in 1..%d", (long long)a->head_dim,
                        CLV_ATTENTION_MAX_DIM);
    if (a->value_dim < 0 || a->value_dim > CLV_ATTENTION_MAX_DIM)
        return clv_fail(err, CLV_EINVAL, "attention: value_dim %lld is not in 0..%d", (long long)a->value_dim,
                        CLV_ATTENTION_MAX_DIM);
    if (!(a->dropout >= 0 && a->dropout < 1))
        return clv_fail(err, CLV_EINVAL, "attention: a dropout of %g is not in [0, 1)", a->dropout);
    if (a->zigzag < 0 || (a->zigzag && (a->row_offset < 0 || a->row_offset + a->q_rows > a->k_rows)))
        return clv_fail(err, CLV_EINVAL, "attention: query rows %lld..%lld of %lld in zig-zag order of %lld ranks",
                        (long long)a->row_offset, (long long)(a->row_offset + a->q_rows), (long long)a->k_rows,
                        (long long)a->zigzag);
    if (a->group < 1 || a->head_offset < 0 || a->kv_offset < 0 || a->window < 0)
        return clv_fail(err, CLV_EINVAL, "attention: group must be >= 1, the offsets and the window >= 0");
    if (a->heads > 0 && (a->head_offset / a->group < a->kv_offset ||
                         (a->head_offset + a->heads - 1) / a->group >= a->kv_offset + a->kv_heads))
        return clv_fail(err, CLV_EINVAL,
                        "attention: query heads %lld..%lld with %lld a KV head need KV heads that are not here (%lld "
                        "from %lld on)",
                        (long long)a->head_offset, (long long)(a->head_offset + a->heads - 1), (long long)a->group,
                        (long long)a->kv_heads, (long long)a->kv_offset);
    return CLV_OK;
}

static clv_status check_workspace(const clv_attention_args *a, size_t bytes, clv_error *err)
{
    if (bytes > 0 && !a->workspace)
        return clv_fail(err, CLV_EINVAL, "attention: needs a workspace of %zu bytes", bytes);
    return CLV_OK;
}

/* The local query heads that read KV head c: [*first, *first + result). */
static int64_t heads_of(const clv_attention_args *a, int64_t c, int64_t *first)
{
    int64_t lo = (c + a->kv_offset) * a->group - a->head_offset;
    int64_t hi = lo + a->group;
    lo = lo > 0 ? lo : 0;
    hi = hi < a->heads ? hi : a->heads;
    *first = lo;
    return hi > lo ? hi - lo : 0;
}

/* ------------------------------------------------------------------------------------------ tasks */

/* A set of independent tasks. */
typedef struct pass {
    const clv_attention_args *a;
    /* Runs a task in the workspace slot of a thread or rank. */
    void (*run)(const struct pass *p, int64_t task, int who);
    int64_t tasks;
    int64_t each;     /* query rows of a task, or heads when decoding */
    int64_t products; /* most products of a task: one is a query row of a head times all rows of k, or of v */
    int64_t strides;  /* task i runs i, i + strides, ... so that their number fits in an int */
} pass;

static void run_stride(void *arg, int stride, int who)
{
    const pass *p = arg;
    for (int64_t task = stride; task < p->tasks; task += p->strides)
        p->run(p, task, who);
}

/* Runs all tasks by several threads, or by one, which shares them with idle ranks unless a task takes more than some
 * 10 ms, in which an idle rank would notice nothing else. */
static void run_tasks(pass p)
{
    enum { MOST = 1 << 24 }; /* fits in an int */
    const double longest = 5e8;
    p.strides = clv_min_i64(p.tasks, MOST);
    if (team(p.a) == 1) {
        const double multiplies = (double)p.products * (double)p.a->k_rows * (double)clv_attention_widest(p.a);
        const clv_task_pool_member work = multiplies <= longest ? p.a->work : (clv_task_pool_member){0};
        clv_task_pool_run(work, slots(p.a), run_stride, &p, (int)p.strides);
        return;
    }
#pragma omp parallel for num_threads(team(p.a)) schedule(dynamic, 1)
    for (int stride = 0; stride < (int)p.strides; stride++)
        run_stride(&p, stride, clv_threads_index());
}

/* Query rows of a task: several blocks if they can share copies of k and v and all threads have tasks. Results do not
 * depend on it. */
static int64_t task_rows(const clv_attention_args *a)
{
#if defined(__x86_64__)
    if (clv_attention_uses_bf16(a))
        return CLV_ATTENTION_TILED_ROWS;
#endif
    int64_t rows = clv_attention_blocks_per_key_pass(a) * ROWS;
    return team(a) == 1 || a->batch * a->heads * (a->q_rows / rows) >= 4 * team(a) ? rows : ROWS;
}

static float *slot(const clv_attention_args *a, int64_t who)
{
    return (float *)a->workspace + who * forward_floats(a);
}

static void forward_task(const pass *p, int64_t task, int who)
{
    const clv_attention_args *a = p->a;
    int64_t blocks = clv_ceil_div(a->q_rows, p->each), pair = task / blocks, row = task % blocks * p->each;
    CLV_ISA_SELECT(clv_attention_forward_rows)
    (a, slot(a, who), pair / a->heads, pair % a->heads, row, clv_min_i64(row + p->each, a->q_rows));
}

static void forward_blocks(const clv_attention_args *a)
{
    int64_t rows = task_rows(a), blocks = clv_ceil_div(a->q_rows, rows);
    run_tasks(
        (pass){.a = a, .run = forward_task, .tasks = a->batch * a->heads * blocks, .each = rows, .products = 2 * rows});
}

/* The heads [h, h + n) of sequence b that a task decodes. */
typedef struct decoded {
    int64_t b, h, n;
} decoded;

static decoded decode_task_at(const pass *p, int64_t task)
{
    int64_t of_row = p->tasks / p->a->batch, h = task % of_row * p->each;
    return (decoded){task / of_row, h, clv_min_i64(p->each, p->a->heads - h)};
}

/* Runs in the slot of `who` and writes the sums to the slot of `owner`. */
static void decode_part(const pass *p, int64_t task, int64_t part, int64_t who, int64_t owner)
{
    decoded t = decode_task_at(p, task);
    float *sums = slot(p->a, owner) + decode_floats(p->a);
    CLV_ISA_SELECT(clv_attention_decode_part)(p->a, slot(p->a, who), sums, part, t.b, t.h, t.n);
}

static void decode_combine(const pass *p, int64_t task, int64_t owner)
{
    decoded t = decode_task_at(p, task);
    CLV_ISA_SELECT(clv_attention_decode_combine)(p->a, slot(p->a, owner) + decode_floats(p->a), t.b, t.h, t.n);
}

static void decode_task(const pass *p, int64_t task, int who)
{
    for (int64_t part = 0; part < CLV_ATTENTION_PARTS; part++)
        decode_part(p, task, part, who, who);
    decode_combine(p, task, who);
}

/* Tasks of CLV_ATTENTION_HEADS heads, or fewer if threads would be idle, but all that share a KV head. No bits depend
 * on it. */
static pass divide_heads(const clv_attention_args *a)
{
    int64_t threads = team(a), each = CLV_ATTENTION_HEADS, shared = clv_min_i64(a->group, CLV_ATTENTION_HEADS);
    if (threads > 1)
        each = clv_min_i64(each, clv_max_i64(shared, a->batch * a->heads / threads / shared * shared));
    return (pass){.a = a,
                  .run = decode_task,
                  .tasks = a->batch * clv_ceil_div(a->heads, each),
                  .each = each,
                  .products = 2 * each};
}

/* For fewer tasks than threads: threads also divide the parts of the keys. */
static void decode_by_parts(const pass *p)
{
#pragma omp parallel for num_threads(team(p->a)) schedule(dynamic, 1)
    for (int64_t i = 0; i < p->tasks * CLV_ATTENTION_PARTS; i++) {
        int64_t task = i / CLV_ATTENTION_PARTS;
        decode_part(p, task, i % CLV_ATTENTION_PARTS, clv_threads_index(), task);
    }
    for (int64_t task = 0; task < p->tasks; task++)
        decode_combine(p, task, task);
}

/* Whether enough of k and v is read for a parallel region (f32_blocks.h), or for sharing with ranks. */
static bool is_worth_parallel(const clv_attention_args *a)
{
    int64_t keys = 0;
    for (int64_t b = 0; b < a->batch; b++)
        keys += clv_attention_visible_keys(a, b, 1) - clv_attention_first_key(a, b, 0);
    return 2 * keys * a->heads * a->head_dim >= CLV_PARALLEL_MIN;
}

static void decode(const clv_attention_args *a)
{
    pass p = divide_heads(a);
    if (!is_worth_parallel(a))
        for (int64_t task = 0; task < p.tasks; task++)
            decode_task(&p, task, 0);
    else if (p.tasks < team(a))
        decode_by_parts(&p);
    else
        run_tasks(p);
}

clv_status clv_attention_forward(const clv_attention_args *a, clv_error *err)
{
    clv_attention_args run;
    CLV_TRY(check(a, err));
    CLV_TRY(check_workspace(a, clv_attention_forward_workspace(a), err));
    if (a->dtype == CLV_F64)
        clv_attention_forward_reference(a);
    else if (decodes(a) && a->q_rows > 0)
        decode(a);
    else
        for (int64_t row = 0; clv_attention_next_run(&run, a, row); row += run.q_rows)
            forward_blocks(&run);
    return CLV_OK;
}

static void backward_task(const pass *p, int64_t task, int who)
{
    const clv_attention_args *a = p->a;
    float *workspace = (float *)a->workspace + who * backward_floats(a);
    int64_t first;
    int64_t n = heads_of(a, task % a->kv_heads, &first);
    CLV_ISA_SELECT(clv_attention_backward_head)(a, workspace, task / a->kv_heads, task % a->kv_heads, first, n);
}

clv_status clv_attention_backward(const clv_attention_args *a, clv_error *err)
{
    CLV_TRY(check(a, err));
    CLV_TRY(check_workspace(a, clv_attention_backward_workspace(a), err));
    if (a->dtype == CLV_F64)
        clv_attention_backward_reference(a);
    else
        run_tasks((pass){.a = a,
                         .run = backward_task,
                         .tasks = a->batch * a->kv_heads,
                         .products = 5 * clv_min_i64(a->group, a->heads) * a->q_rows});
    return CLV_OK;
}

/* ---------------------------------------------------------------------------------------------- reference */

static int64_t at(const clv_attention_view *view, int64_t b, int64_t s, int64_t h)
{
    return b * view->batch_stride + s * view->row_stride + h * view->head_stride;
}

static int64_t key_row(const clv_attention_args *a, int64_t key)
{
    int64_t n;
    return clv_attention_key_row(a, key, 1, &n);
}

/* The dot product of two rows of n elements. */
static double dot(const clv_attention_args *a, int64_t n, const void *x, int64_t i, const void *y, int64_t j)
{
    double sum = 0;
    for (int64_t d = 0; d < n; d++)
        sum += clv_dtype_load(a->dtype, x, i + d) * clv_dtype_load(a->dtype, y, j + d);
    return sum;
}

/* The definition in attention_kernel.h, independent of the fast kernels. */
static bool visible(const clv_attention_args *a, int64_t b, int64_t i, int64_t j)
{
    int64_t place = clv_attention_query_position(a, b, i);
    if ((a->causal && j > place) || (a->window && j <= place - a->window))
        return false;
    return !a->key_mask || *clv_attention_mask_at(a, b, j);
}

static double score(const clv_attention_args *a, int64_t b, int64_t h, int64_t c, int64_t i, int64_t j)
{
    return (double)a->scale *
           dot(a, a->head_dim, a->q.data, at(&a->q, b, i, h), a->k.data, at(&a->k, b, key_row(a, j), c));
}

/* log(sum_j exp(score)) over visible keys; -inf if there are none, NaN if a score is NaN or the largest is infinite.
 */
static double log_sum_exp(const clv_attention_args *a, int64_t b, int64_t h, int64_t c, int64_t i)
{
    double max = -INFINITY, sum = 0;
    bool any = false;
    for (int64_t j = 0; j < a->k_rows; j++) {
        if (!visible(a, b, i, j))
            continue;
        double s = score(a, b, h, c, i, j);
        max = s > max || isnan(s) ? s : max; /* a NaN stays: nothing is greater */
        any = true;
    }
    if (!any)
        return max;
    for (int64_t j = 0; j < a->k_rows; j++)
        if (visible(a, b, i, j))
            sum += exp(score(a, b, h, c, i, j) - max);
    return max + log(sum);
}

/* What dropout multiplies p by. */
static double dropout_factor(const clv_attention_args *a, int64_t b, int64_t h, int64_t i, int64_t j)
{
    float uniform = 0, keep = (float)(1 - a->dropout);
    if (a->dropout > 0)
        clv_random_uniform(&uniform, a->dropout_key, clv_attention_dropout_index(a, b, h, i) + (uint64_t)j, 1, 0, 1);
    return uniform < keep ? 1 / (1 - a->dropout) : 0;
}

/* Of a visible key. */
static double probability(const clv_attention_args *a, int64_t b, int64_t h, int64_t c, int64_t i, int64_t j,
                          double lse)
{
    return exp(score(a, b, h, c, i, j) - lse);
}

static void reference_row(const clv_attention_args *a, int64_t b, int64_t h, int64_t i)
{
    int64_t c = (a->head_offset + h) / a->group - a->kv_offset;
    double lse = log_sum_exp(a, b, h, c, i);
    double out[CLV_ATTENTION_MAX_DIM] = {0};

    for (int64_t j = 0; j < a->k_rows; j++) {
        if (!visible(a, b, i, j))
            continue;
        double p = probability(a, b, h, c, i, j, lse) * dropout_factor(a, b, h, i, j);
        for (int64_t d = 0; d < clv_attention_value_dim(a); d++)
            out[d] += p * clv_dtype_load(a->dtype, a->v.data, at(&a->v, b, key_row(a, j), c) + d);
    }
    for (int64_t d = 0; d < clv_attention_value_dim(a); d++)
        clv_dtype_store(a->dtype, a->out.data, at(&a->out, b, i, h) + d, out[d]);
    if (a->lse)
        a->lse[clv_attention_lse_index(a, b, h, i)] = (float)lse;
    if (a->exact_lse)
        a->exact_lse[clv_attention_lse_index(a, b, h, i)] = lse;
}

void clv_attention_forward_reference(const clv_attention_args *a)
{
    for (int64_t b = 0; b < a->batch; b++)
        for (int64_t h = 0; h < a->heads; h++)
            for (int64_t i = 0; i < a->q_rows; i++)
                reference_row(a, b, h, i);
}

/* The gradient of p of a visible key. */
static double reference_dp(const clv_attention_args *a, int64_t b, int64_t h, int64_t c, int64_t i, int64_t j)
{
    double factor = dropout_factor(a, b, h, i, j);
    return factor == 0 ? 0
                       : factor * dot(a, clv_attention_value_dim(a), a->d_out.data, at(&a->d_out, b, i, h), a->v.data,
                                      at(&a->v, b, key_row(a, j), c));
}

/* lse and delta of a row, delta = sum_j p dP; then dq = scale * sum_j p (dP - delta) k. */
static void reference_dq(const clv_attention_args *a, int64_t b, int64_t h, int64_t i, double terms[2])
{
    int64_t c = (a->head_offset + h) / a->group - a->kv_offset;
    double lse = a->exact_lse ? a->exact_lse[clv_attention_lse_index(a, b, h, i)] : log_sum_exp(a, b, h, c, i);
    double delta = 0, dq[CLV_ATTENTION_MAX_DIM] = {0};

    if (a->exact_lse)
        delta = dot(a, clv_attention_value_dim(a), a->d_out.data, at(&a->d_out, b, i, h), a->out.data,
                    at(&a->out, b, i, h));
    for (int64_t j = 0; !a->exact_lse && j < a->k_rows; j++)
        if (visible(a, b, i, j))
            delta += probability(a, b, h, c, i, j, lse) * reference_dp(a, b, h, c, i, j);
    for (int64_t j = 0; j < a->k_rows; j++) {
        if (!visible(a, b, i, j))
            continue;
        double ds = probability(a, b, h, c, i, j, lse) * (reference_dp(a, b, h, c, i, j) - delta);
        for (int64_t d = 0; d < a->head_dim; d++)
            dq[d] += a->scale * ds * clv_dtype_load(a->dtype, a->k.data, at(&a->k, b, key_row(a, j), c) + d);
    }
    for (int64_t d = 0; d < a->head_dim; d++)
        clv_dtype_store(a->dtype, a->dq.data, at(&a->dq, b, i, h) + d, dq[d]);
    terms[0] = lse;
    terms[1] = delta;
}

/* dk = scale * sum p (dP - delta) q and dv = sum p d_out of one key, over the heads and rows that see it. */
static void reference_dkv(const clv_attention_args *a, int64_t b, int64_t c, int64_t j, const double *terms)
{
    double dk[CLV_ATTENTION_MAX_DIM] = {0}, dv[CLV_ATTENTION_MAX_DIM] = {0};
    int64_t first;
    int64_t n = heads_of(a, c, &first);

    for (int64_t h = first; h < first + n; h++)
        for (int64_t i = 0; i < a->q_rows; i++) {
            if (!visible(a, b, i, j))
                continue;
            const double *term = terms + 2 * ((b * a->heads + h) * a->q_rows + i);
            double p = probability(a, b, h, c, i, j, term[0]);
            double dp = reference_dp(a, b, h, c, i, j), factor = dropout_factor(a, b, h, i, j);
            for (int64_t d = 0; d < a->head_dim; d++)
                dk[d] += a->scale * p * (dp - term[1]) * clv_dtype_load(a->dtype, a->q.data, at(&a->q, b, i, h) + d);
            for (int64_t d = 0; d < clv_attention_value_dim(a); d++)
                dv[d] += factor * p * clv_dtype_load(a->dtype, a->d_out.data, at(&a->d_out, b, i, h) + d);
        }
    for (int64_t d = 0; d < a->head_dim; d++)
        clv_dtype_store(a->dtype, a->dk.data, at(&a->dk, b, key_row(a, j), c) + d, dk[d]);
    for (int64_t d = 0; d < clv_attention_value_dim(a); d++)
        clv_dtype_store(a->dtype, a->dv.data, at(&a->dv, b, key_row(a, j), c) + d, dv[d]);
}

void clv_attention_backward_reference(const clv_attention_args *a)
{
    double *terms = a->workspace; /* [B, H, Sq, {lse, delta}] */
    for (int64_t b = 0; b < a->batch; b++)
        for (int64_t h = 0; h < a->heads; h++)
            for (int64_t i = 0; i < a->q_rows; i++)
                reference_dq(a, b, h, i, terms + 2 * ((b * a->heads + h) * a->q_rows + i));
    for (int64_t b = 0; b < a->batch; b++)
        for (int64_t c = 0; c < a->kv_heads; c++)
            for (int64_t j = 0; j < a->k_rows; j++)
                reference_dkv(a, b, c, j, terms);
}
