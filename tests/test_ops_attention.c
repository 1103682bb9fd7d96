/* Attention, rope and the KV cache: values against plain formulas in f64, gradients against central differences,
 * sharding rules by running them on cut views, what is refused, and costs. */
#include "op_cases.h"
#include "ops/builtin_ops.h"

/* ---- attention ---- */

typedef struct attention_case {
    int64_t b, sq, sk, h, k, d;
    bool causal, masked;
    int offset; /* -1: none given; OWN: one for each batch row, which is its number */
    int64_t window;
    double dropout;
    int64_t v, joined; /* width of values, if it is their own, and of what holds them and keys */
} attention_case;

enum { OWN = 100 };

static const attention_case attention_cases[] = {
    {2, 5, 5, 4, 4, 4, true, false, -1, 0, 0, 0, 0},   /* MHA */
    {1, 4, 4, 6, 2, 2, true, true, -1, 0, 0, 0, 0},    /* GQA */
    {2, 3, 7, 4, 1, 3, false, true, -1, 0, 0, 0, 0},   /* MQA, cross */
    {1, 2, 8, 6, 3, 4, true, false, 4, 0, 0, 0, 0},    /* chunk of a KV cache */
    {1, 1, 6, 4, 2, 8, true, false, 3, 0, 0, 0, 0},    /* decode */
    {1, 3, 4, 12, 6, 2, false, false, -1, 0, 0, 0, 0}, /* more KV heads than blocks, and neither divides 8 */
    {2, 6, 6, 4, 2, 4, true, false, -1, 3, 0, 0, 0},   /* window */
    {1, 2, 8, 2, 2, 4, true, true, 5, 4, 0, 0, 0},     /* window over a cache */
    {3, 2, 6, 2, 1, 4, true, false, OWN, 0, 0, 0, 0},  /* a cache with rows of their own length */
    {3, 1, 6, 2, 1, 4, true, false, OWN, 2, 0, 0, 0},  /* the same, decoding by a window */
    {2, 5, 5, 6, 2, 4, true, false, -1, 0, 0.3, 0, 0}, /* dropout */
    {3, 1, 6, 4, 2, 4, true, true, OWN, 0, 0.5, 0, 0}, /* the same of one row */
    {2, 5, 5, 4, 4, 6, true, false, -1, 0, 0, 4, 10},  /* narrower values */
    {1, 4, 6, 6, 3, 2, true, true, 2, 0, 0.3, 5, 7},   /* wider ones, groups, a cache, dropout */
    {2, 1, 6, 6, 1, 6, true, false, OWN, 0, 0, 4, 6},  /* a latent is key and value */
    {1, 3, 7, 4, 2, 5, false, true, -1, 0, 0, 4, 7},   /* they overlap */
};
enum { ATTENTION_CASES = sizeof attention_cases / sizeof *attention_cases };

typedef struct attention_graph {
    const attention_case *c;
    clv_graph *graph;
    clv_value q, kv, mask, offset, step, out;
} attention_graph;

static const clv_key dropout_key = {{7, 11}};
enum { STEP = 5 };

static attention_graph attention_of(const attention_case *c, clv_dtype dtype)
{
    attention_graph a = {.c = c, .graph = new_graph()};
    a.q = input(a.graph, "q", dtype, DIMS(c->b, c->sq, c->h, c->d));
    a.kv = c->v ? input(a.graph, "kv", dtype, DIMS(c->b, c->sk, c->k, c->joined))
                : input(a.graph, "kv", dtype, DIMS(c->b, c->sk, 2, c->k, c->d));
    if (c->masked)
        a.mask = input(a.graph, "mask", c->b == 1 ? CLV_BOOL : CLV_U8, DIMS(c->b, c->sk));
    if (c->offset == OWN)
        a.offset = input(a.graph, "offset", CLV_I32, DIMS(c->b));
    else if (c->offset >= 0)
        a.offset = scalar(a.graph, "offset", CLV_I32);
    clv_attention_options options = {.size = sizeof options,
                                     .causal = c->causal,
                                     .mask = a.mask,
                                     .offset = a.offset,
                                     .window = c->window,
                                     .dropout = c->dropout,
                                     .dropout_key = dropout_key,
                                     .value_dim = c->v};
    if (c->dropout > 0)
        a.step = options.dropout_step = scalar(a.graph, "step", CLV_I32);
    a.out = clv_attention(a.graph, a.q, a.kv, &options);
    return a;
}

static bool attends(const attention_case *c, int64_t b, int64_t j)
{
    return !c->masked || (b + j) % 4 != 1;
}

static void set_attention(graph_eval *eval, void *context)
{
    const attention_graph *a = context;
    for (int64_t i = 0; a->c->masked && i < a->c->b * a->c->sk; i++)
        graph_eval_set(eval, a->mask, i, attends(a->c, i / a->c->sk, i % a->c->sk));
    if (a->c->offset == OWN)
        for (int64_t b = 0; b < a->c->b; b++)
            graph_eval_set(eval, a->offset, b, (double)b);
    else if (a->c->offset >= 0)
        graph_eval_set(eval, a->offset, 0, a->c->offset);
    if (a->c->dropout > 0)
        graph_eval_set(eval, a->step, 0, STEP);
}

/* What clv_dropout multiplies element `at` of a tensor by. */
static double dropout_factor(const attention_case *c, int64_t at)
{
    float uniform;
    clv_random_uniform(&uniform, clv_key_fold_in(dropout_key, STEP), (uint64_t)at, 1, 0, 1);
    return uniform < (float)(1 - c->dropout) ? 1 / (1 - c->dropout) : 0;
}

static int64_t value_width(const attention_case *c)
{
    return c->v ? c->v : c->d;
}

/* Where the key (which = 0) or value (1) of a position and KV head begins in kv. */
static int64_t kv_at(const attention_case *c, int64_t b, int64_t j, int64_t head, int which)
{
    if (c->v)
        return ((b * c->sk + j) * c->k + head) * c->joined + (which ? c->joined - c->v : 0);
    return ((b * c->sk + j) * 2 * c->k + which * c->k + head) * c->d;
}

/* One row of one head, as the formula says. */
static void plain_attention_row(double *out, graph_eval *eval, const attention_graph *a, int64_t b, int64_t i,
                                int64_t h)
{
    const attention_case *c = a->c;
    int64_t head = h / (c->h / c->k), q0 = ((b * c->sq + i) * c->h + h) * c->d,
            last = i + (c->offset == OWN ? b
                        : c->offset > 0  ? c->offset
                                         : 0);
    double p[16], sum = 0;
    for (int64_t j = 0; j < c->sk; j++) {
        int64_t k0 = kv_at(c, b, j, head, 0);
        double s = 0;
        for (int64_t d = 0; d < c->d; d++)
            s += graph_eval_get(eval, a->q, q0 + d) * graph_eval_get(eval, a->kv, k0 + d);
        bool near = c->window == 0 || j > last - c->window;
        p[j] = attends(c, b, j) && near && (!c->causal || j <= last) ? exp(s / sqrt((double)c->d)) : 0;
        sum += p[j];
        p[j] *= dropout_factor(c, ((b * c->h + h) * c->sq + i) * c->sk + j);
    }
    for (int64_t d = 0; d < value_width(c); d++) {
        out[d] = 0;
        for (int64_t j = 0; j < c->sk && sum > 0; j++)
            out[d] += p[j] / sum * graph_eval_get(eval, a->kv, kv_at(c, b, j, head, 1) + d);
    }
}

static void attention_values(void **state)
{
    for (int n = 0; n < ATTENTION_CASES * DTYPES; n++) {
        const attention_case *c = &attention_cases[n / DTYPES];
        clv_dtype dtype = dtypes[n % DTYPES];
        attention_graph a = attention_of(c, dtype);
        graph_eval *eval = graph_eval_new(a.graph, SEED);
        set_attention(eval, &a);
        graph_eval_must_run(eval, -1);
        for (int64_t row = 0; row < c->b * c->sq * c->h; row++) {
            double want[8];
            plain_attention_row(want, eval, &a, row / (c->sq * c->h), row / c->h % c->sq, row % c->h);
            for (int64_t d = 0; d < value_width(c); d++) {
                double got = graph_eval_get(eval, a.out, row * value_width(c) + d);
                if (!(fabs(got - want[d]) <= tolerance(dtype)))
                    fail_msg("case %d, %s, row %lld, %lld: %.12g, expected %.12g", n / DTYPES, clv_dtype_name(dtype),
                             (long long)row, (long long)d, got, want[d]);
            }
        }
        assert_true(graph_eval_check_rules(eval) > 0);
        graph_eval_free(eval);
        clv_graph_free(a.graph);
    }
}

static void attention_gradients(void **state)
{
    for (int n = 0; n < ATTENTION_CASES; n++) {
        attention_graph a = attention_of(&attention_cases[n], CLV_F64);
        assert_true(check_gradient(a.graph, a.out, (clv_value[]){a.q, a.kv}, 2, set_attention, &a) > 0);
        clv_graph_free(a.graph);
    }
}

/* The f32 gradient, which is another kernel, against f64's on the same values; and its rules: dkv of the blocks of
 * query heads and of query rows add up. */
static void attention_gradients_f32(void **state)
{
    for (int n = 0; n < ATTENTION_CASES; n++) {
        attention_graph a[2];
        clv_value seed[2], d[2][2];
        graph_eval *eval[2];
        for (int p = 0; p < 2; p++) {
            a[p] = attention_of(&attention_cases[n], p == 0 ? CLV_F64 : CLV_F32);
            clv_type type = clv_graph_type(a[p].graph, a[p].out);
            seed[p] = clv_input(a[p].graph, "seed", type.dtype, type.rank, type.shape, NULL);
            clv_gradients(a[p].graph, a[p].out, seed[p], (clv_value[]){a[p].q, a[p].kv}, 2, d[p]);
            eval[p] = graph_eval_new(a[p].graph, SEED);
            set_attention(eval[p], &a[p]);
            graph_eval_must_run(eval[p], -1);
        }
        for (int w = 0; w < 2; w++) {
            clv_type type = clv_graph_type(a[0].graph, d[0][w]);
            int64_t elems = clv_type_elems(&type);
            double *want = calloc((size_t)elems, sizeof *want);
            copy_out(want, eval[0], d[0][w], elems);
            assert_close(eval[1], d[1][w], want, elems, tolerance(CLV_F32));
            free(want);
        }
        assert_true(graph_eval_check_rules(eval[1]) > 0);
        for (int p = 0; p < 2; p++) {
            graph_eval_free(eval[p]);
            clv_graph_free(a[p].graph);
        }
    }
}

/* KV heads hand the blocks that they cannot take to the query heads of their groups. */
static void attention_spills(void **state)
{
    attention_graph a = attention_of(&attention_cases[1], CLV_F32);
    const clv_op *op = &a.graph->ops[0];
    clv_type in[CLV_MAX_IN] = {clv_graph_type(a.graph, a.q), clv_graph_type(a.graph, a.kv)};
    clv_type out[CLV_MAX_OUT] = {clv_graph_type(a.graph, a.out)};
    clv_rule rule;
    memset(&rule, 0, sizeof rule);
    op->def->rule(op, in, out, &rule);
    const clv_dim_factors *heads = &rule.in[0][2];
    assert_int_equal(heads->n, 2);
    assert_int_equal(rule.factor[heads->factor[0]].size, 2);
    assert_int_equal(rule.factor[heads->factor[1]].size, 3);
    assert_int_equal(rule.factor[heads->factor[0]].overflow, heads->factor[1]);
    clv_graph_free(a.graph);
}

static void attention_refuses(void **state)
{
    clv_graph *graph = new_graph();
    clv_attention(graph, input(graph, "q", CLV_F32, DIMS(1, 4, 5, 8)), input(graph, "kv", CLV_F32, DIMS(1, 4, 2, 2, 8)),
                  NULL);
    assert_refused(graph, CLV_ESHAPE, "5 query heads (q is f32[1,4,5,8]) are not a multiple of 2 KV heads");
    graph = new_graph();
    clv_attention(graph, input(graph, "q", CLV_F32, DIMS(1, 4, 4, 8)), input(graph, "kv", CLV_F32, DIMS(1, 4, 2, 2, 4)),
                  NULL);
    assert_refused(graph, CLV_ESHAPE, "[B,Sk,2,K,D]");
    graph = new_graph();
    clv_attention(graph, input(graph, "q", CLV_F32, DIMS(1, 4, 4, 8)),
                  input(graph, "kv", CLV_BF16, DIMS(1, 4, 2, 2, 8)), NULL);
    assert_refused(graph, CLV_EDTYPE, "dtypes must be equal");
    graph = new_graph();
    clv_attention(graph, input(graph, "q", CLV_F32, DIMS(1, 4, 4, 8)), input(graph, "kv", CLV_F32, DIMS(1, 4, 2, 2, 8)),
                  &(clv_attention_options){.mask = input(graph, "m", CLV_U8, DIMS(1, 5))});
    assert_refused(graph, CLV_ESHAPE, "mask is u8[1,5]; [B,Sk] = [1,4]");
    graph = new_graph();
    clv_attention(graph, input(graph, "q", CLV_F32, DIMS(1, 4, 4, 8)), input(graph, "kv", CLV_F32, DIMS(1, 4, 2, 2, 8)),
                  &(clv_attention_options){.offset = scalar(graph, "o", CLV_F32)});
    assert_refused(graph, CLV_EDTYPE, "offset is f32[]; i32 is needed");
    const double rates[] = {-0.1, 1, NAN};
    for (int i = 0; i < 4; i++) {
        graph = new_graph();
        clv_attention_options o = {.size = sizeof o, .dropout = i < 3 ? rates[i] : 0.5};
        o.dropout_step = scalar(graph, "step", CLV_F32);
        clv_attention(graph, input(graph, "q", CLV_F32, DIMS(1, 4, 4, 8)),
                      input(graph, "kv", CLV_F32, DIMS(1, 4, 2, 2, 8)), &o);
        assert_refused(graph, i < 3 ? CLV_EINVAL : CLV_EDTYPE, i < 3 ? "0 <= dropout < 1" : "step is f32[]");
    }
    graph = new_graph();
    clv_attention(graph, input(graph, "q", CLV_F32, DIMS(1, 1, 1, 1025)),
                  input(graph, "kv", CLV_F32, DIMS(1, 1, 2, 1, 1025)), NULL);
    assert_refused(graph, CLV_ELIMIT, "head_dim of 1025");
    static const struct {
        int64_t value_dim, width;
        clv_status status;
        const char *what;
    } joined[] = {{4, 13, CLV_ESHAPE, "[B,Sk,K,C], with C from the larger of D and the 4 of values to their sum"},
                  {4, 7, CLV_ESHAPE, "q is f32[1,4,4,8] and kv is f32[1,4,2,7]"},
                  {-1, 12, CLV_EINVAL, "values of width -1"}};
    for (size_t i = 0; i < sizeof joined / sizeof *joined; i++) {
        graph = new_graph();
        clv_attention(
            graph, input(graph, "q", CLV_F32, DIMS(1, 4, 4, 8)),
            input(graph, "kv", CLV_F32, DIMS(1, 4, 2, joined[i].width)),
            &(clv_attention_options){.size = sizeof(clv_attention_options), .value_dim = joined[i].value_dim});
        assert_refused(graph, joined[i].status, joined[i].what);
    }
}

/* ---- rope ---- */

typedef struct rope_case {
    bool packed, interleaved;
    int64_t dims;
    int offset;
    double factor, low, high; /* scaling */
    bool given;               /* frequencies[] in the place of theta */
    bool yarn, exact;
} rope_case;

static const float frequencies[] = {1, 0.3F, 0.07F};

/* Pairs turn by 1, 0.22, 0.05 radians a position: 16, 3.4 and 0.7 turns in 100 positions. */
static const rope_case rope_cases[] = {{.dims = 0, .offset = -1},
                                       {.interleaved = true, .offset = 5},
                                       {.packed = true, .dims = 4, .offset = 3},
                                       {.packed = true, .interleaved = true, .offset = -1},
                                       {.offset = 2, .factor = 4},
                                       {.offset = 2, .factor = 8, .low = 1, .high = 5},
                                       {.packed = true, .interleaved = true, .offset = OWN},
                                       {.packed = true, .offset = 3, .given = true},
                                       {.offset = 2, .factor = 8, .low = 1, .high = 8, .yarn = true},
                                       {.offset = 2, .factor = 8, .low = 1, .high = 8, .yarn = true, .exact = true}};
/* Of its own frequency a pair keeps so much: 8 turns are those of pair 0.448, 1 turn that of pair 1.803; of YaRN, of
 * pairs 0 and 2. */
static const double yarn_shares[] = {1, 0.5, 0}, exact_shares[] = {1, 0.5925804434591658, 0};
enum {
    ROPE_CASES = sizeof rope_cases / sizeof *rope_cases,
    ORIGINAL = 100,
    ROPE_B = 2,
    ROPE_S = 3,
    ROPE_H = 2,
    ROPE_D = 6
};

typedef struct rope_graph {
    const rope_case *c;
    clv_graph *graph;
    clv_value x, offset, out;
} rope_graph;

static rope_graph rope_of(const rope_case *c, clv_dtype dtype)
{
    rope_graph r = {.c = c, .graph = new_graph(), .offset = CLV_NONE};
    r.x = c->packed ? input(r.graph, "x", dtype, DIMS(ROPE_B, ROPE_S, 2, ROPE_H, ROPE_D))
                    : input(r.graph, "x", dtype, DIMS(ROPE_B, ROPE_S, ROPE_H, ROPE_D));
    if (c->offset == OWN)
        r.offset = input(r.graph, "offset", CLV_I32, DIMS(ROPE_B));
    else if (c->offset >= 0)
        r.offset = scalar(r.graph, "offset", CLV_I32);
    clv_rope_options how = {.theta = c->given ? 0 : 100,
                            .inv_freq = c->given ? frequencies : NULL,
                            .dims = c->dims,
                            .interleaved = c->interleaved,
                            .factor = c->factor,
                            .yarn = c->yarn,
                            .yarn_exact = c->exact,
                            .low_frequency = c->low,
                            .high_frequency = c->high,
                            .original_positions = c->high > 0 ? ORIGINAL : 0};
    r.out = clv_rope(r.graph, r.x, r.offset, &how);
    return r;
}

static void set_rope(graph_eval *eval, void *context)
{
    const rope_graph *r = context;
    if (r->c->offset == OWN)
        for (int64_t b = 0; b < ROPE_B; b++)
            graph_eval_set(eval, r->offset, b, (double)b);
    else if (r->c->offset >= 0)
        graph_eval_set(eval, r->offset, 0, r->c->offset);
}

/* Radians a position, scaled as transformers' _compute_llama3_parameters does it, by wavelengths. */
static double plain_frequency(const rope_case *c, int64_t pair, int64_t dims)
{
    if (c->given)
        return (double)frequencies[pair];
    double f = pow(100, -2.0 * (double)pair / (double)dims), wavelength = 2 * acos(-1.0) / f;
    if (c->high == 0)
        return c->factor > 0 ? f / c->factor : f;
    if (c->yarn) {
        const double share = (c->exact ? exact_shares : yarn_shares)[pair];
        return (1 - share) * f / c->factor + share * f;
    }
    if (wavelength > ORIGINAL / c->low)
        return f / c->factor;
    if (wavelength < ORIGINAL / c->high)
        return f;
    double smooth = (ORIGINAL / wavelength - c->low) / (c->high - c->low);
    return (1 - smooth) * f / c->factor + smooth * f;
}

/* Element d of a head whose elements start at x0, at a position. */
static double plain_rope(graph_eval *eval, const rope_graph *r, int64_t x0, int64_t d, int64_t position)
{
    int64_t dims = r->c->dims ? r->c->dims : ROPE_D, half = dims / 2;
    if (d >= dims)
        return graph_eval_get(eval, r->x, x0 + d);
    int64_t pair = r->c->interleaved ? d / 2 : d % half;
    bool second = r->c->interleaved ? d % 2 : d >= half;
    int64_t partner = r->c->interleaved ? (second ? d - 1 : d + 1) : (second ? d - half : d + half);
    double angle = (double)position * plain_frequency(r->c, pair, dims);
    double x = graph_eval_get(eval, r->x, x0 + d), y = graph_eval_get(eval, r->x, x0 + partner);
    return x * cos(angle) + (second ? y : -y) * sin(angle);
}

static void rope_values(void **state)
{
    for (int n = 0; n < ROPE_CASES * DTYPES; n++) {
        rope_graph r = rope_of(&rope_cases[n / DTYPES], dtypes[n % DTYPES]);
        graph_eval *eval = graph_eval_new(r.graph, SEED);
        int64_t kinds = r.c->packed ? 2 : 1, heads = ROPE_B * ROPE_S * kinds * ROPE_H;
        set_rope(eval, &r);
        graph_eval_must_run(eval, -1);
        for (int64_t i = 0; i < heads * ROPE_D; i++) {
            int64_t head = i / ROPE_D, row = head / (kinds * ROPE_H);
            bool value = r.c->packed && head / ROPE_H % 2 == 1;
            int64_t position = row % ROPE_S + (r.c->offset == OWN ? row / ROPE_S : r.c->offset > 0 ? r.c->offset : 0);
            double want =
                value ? graph_eval_get(eval, r.x, i) : plain_rope(eval, &r, head * ROPE_D, i % ROPE_D, position);
            if (!(fabs(graph_eval_get(eval, r.out, i) - want) <= tolerance(dtypes[n % DTYPES])))
                fail_msg("case %d, element %lld: %.12g, expected %.12g", n, (long long)i,
                         graph_eval_get(eval, r.out, i), want);
        }
        assert_true(graph_eval_check_rules(eval) > 0);
        graph_eval_free(eval);
        clv_graph_free(r.graph);
    }
}

static void rope_gradients(void **state)
{
    for (int n = 0; n < ROPE_CASES; n++) {
        rope_graph r = rope_of(&rope_cases[n], CLV_F64);
        assert_true(check_gradient(r.graph, r.out, &r.x, 1, set_rope, &r) > 0);
        clv_graph_free(r.graph);
    }
}

static void rope_refuses(void **state)
{
    clv_graph *graph = new_graph();
    clv_rope(graph, input(graph, "x", CLV_F32, DIMS(1, 2, 2, 5)), CLV_NONE, &(clv_rope_options){.theta = 1e4});
    assert_refused(graph, CLV_EINVAL, "5 rotated dims of a head_dim of 5");
    graph = new_graph();
    clv_rope(graph, input(graph, "x", CLV_F32, DIMS(1, 2, 3, 2, 4)), CLV_NONE, &(clv_rope_options){.theta = 1e4});
    assert_refused(graph, CLV_ESHAPE, "[B,S,2,K,D]");
    graph = new_graph();
    clv_rope(graph, input(graph, "x", CLV_F32, DIMS(1, 2, 2, 4)), CLV_NONE, &(clv_rope_options){.theta = 0});
    assert_refused(graph, CLV_EINVAL, "theta must be above 0");
    graph = new_graph();
    clv_rope(graph, input(graph, "x", CLV_F32, DIMS(2, 2, 2, 4)), input(graph, "o", CLV_I32, DIMS(3)),
             &(clv_rope_options){.theta = 1});
    assert_refused(graph, CLV_ESHAPE, "i32[] or i32[2], one for each row");
    static const struct {
        clv_rope_options how;
        const char *fault;
    } faults[] = {{{.theta = 1, .factor = -1}, "factor"},
                  {{.theta = 1, .factor = 1.0 / 0.0}, "factor"},
                  {{.inv_freq = frequencies, .factor = 2}, "inv_freq"},
                  {{.theta = 1, .factor = 8, .high_frequency = -1}, "high_frequency"},
                  {{.theta = 1, .factor = 8, .high_frequency = 4, .original_positions = 8}, "low_frequency"},
                  {{.theta = 1, .factor = 8, .low_frequency = 4, .high_frequency = 4, .original_positions = 8}, "low"},
                  {{.theta = 1, .factor = 8, .low_frequency = 1, .high_frequency = 4}, "original_positions"},
                  {{.theta = 10, .factor = 8, .yarn = true}, "yarn needs high_frequency"}};
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        graph = new_graph();
        clv_rope(graph, input(graph, "x", CLV_F32, DIMS(1, 2, 2, 4)), CLV_NONE, &faults[i].how);
        assert_refused(graph, CLV_EINVAL, faults[i].fault);
    }
}

/* ---- KV cache ---- */

/* Each row of the batch at a place of its own. */
static void cache_of_own_rows(void **state)
{
    enum { B = 3, ROOM = 6, S = 2, ROW = 4 };
    clv_graph *graph = new_graph();
    clv_value cache = input(graph, "cache", CLV_F32, DIMS(B, ROOM, ROW));
    clv_value rows = input(graph, "rows", CLV_F32, DIMS(B, S, ROW)), offset = input(graph, "offset", CLV_I32, DIMS(B));
    clv_value out = clv_cache_update(graph, cache, rows, offset);
    graph_eval *eval = graph_eval_new(graph, SEED);
    for (int64_t b = 0; b < B; b++)
        graph_eval_set(eval, offset, b, (double)(2 * b));
    graph_eval_must_run(eval, -1);
    for (int64_t i = 0; i < B * ROOM * ROW; i++) {
        int64_t b = i / (ROOM * ROW), s = i / ROW % ROOM - 2 * b;
        double want =
            s >= 0 && s < S ? graph_eval_get(eval, rows, (b * S + s) * ROW + i % ROW) : graph_eval_get(eval, cache, i);
        assert_true(graph_eval_get(eval, out, i) == want);
    }
    assert_true(graph_eval_check_rules(eval) > 0);
    graph_eval_set(eval, offset, 1, ROOM - S + 1);
    assert_int_equal(graph_eval_run(eval, -1, NULL), CLV_ELIMIT);
    graph_eval_free(eval);
    clv_graph_free(graph);
}

static void cache_values(void **state)
{
    enum { B = 2, ROOM = 5, S = 2, K = 3, D = 2, ROW = 2 * K * D };
    clv_graph *graph = new_graph();
    clv_value cache = input(graph, "cache", CLV_F32, DIMS(B, ROOM, 2, K, D));
    clv_value rows = input(graph, "rows", CLV_F32, DIMS(B, S, 2, K, D)), offset = scalar(graph, "offset", CLV_I32);
    clv_value out = clv_cache_update(graph, cache, rows, offset);
    graph_eval *eval = graph_eval_new(graph, SEED);
    clv_error err = {0};
    for (int at = 0; at <= ROOM - S; at++) {
        graph_eval_set(eval, offset, 0, at);
        graph_eval_must_run(eval, -1);
        for (int64_t i = 0; i < B * ROOM * ROW; i++) {
            int64_t b = i / (ROOM * ROW), s = i / ROW % ROOM - at;
            double want = s >= 0 && s < S ? graph_eval_get(eval, rows, (b * S + s) * ROW + i % ROW)
                                          : graph_eval_get(eval, cache, i);
            assert_true(graph_eval_get(eval, out, i) == want);
        }
    }
    assert_true(graph_eval_check_rules(eval) > 0);
    graph_eval_set(eval, offset, 0, ROOM - S + 1);
    assert_int_equal(graph_eval_run(eval, -1, &err), CLV_ELIMIT);
    assert_non_null(strstr(err.message, "context full: 2 rows from 4 on do not fit a cache of 5 rows"));
    graph_eval_set(eval, offset, 0, -1);
    assert_int_equal(graph_eval_run(eval, -1, NULL), CLV_ELIMIT);
    graph_eval_free(eval);
    clv_graph_free(graph);

    graph = new_graph();
    clv_cache_update(graph, input(graph, "c", CLV_F32, DIMS(2, 5, 3)), input(graph, "r", CLV_BF16, DIMS(2, 5, 3)),
                     scalar(graph, "o", CLV_I32));
    assert_refused(graph, CLV_EDTYPE, "rows are bf16[2,5,3], cache is f32[2,5,3]");
    graph = new_graph();
    clv_cache_update(graph, input(graph, "c", CLV_F32, DIMS(2, 5, 3)), input(graph, "r", CLV_F32, DIMS(2, 6, 3)),
                     scalar(graph, "o", CLV_I32));
    assert_refused(graph, CLV_ESHAPE, "rows f32[2,6,3] do not fit cache f32[2,5,3]");
    for (int d = 0; d < 3; d += 2) { /* other sequences, other widths */
        int64_t shape[] = {2, 2, 3};
        shape[d]--;
        graph = new_graph();
        clv_cache_update(graph, input(graph, "c", CLV_F32, DIMS(2, 5, 3)), input(graph, "r", CLV_F32, 3, shape),
                         scalar(graph, "o", CLV_I32));
        assert_refused(graph, CLV_ESHAPE, "do not fit cache f32[2,5,3]");
    }
}

/* Two parts of a cache of 5 positions for 2 sequences: rows go to the part that has their positions, and none beyond
 * the last are taken, though the parts together have room for 6. */
static void cache_in_parts(void **state)
{
    enum { PARTS = 2, B = 2, ROOM = 3, POSITIONS = 5, S = 2, W = 2 };
    clv_graph *graph = new_graph();
    clv_value cache = input(graph, "cache", CLV_F32, DIMS(PARTS * B, ROOM, W));
    clv_value rows = input(graph, "rows", CLV_F32, DIMS(PARTS * B, S, W));
    clv_value offset = input(graph, "offset", CLV_I32, DIMS(PARTS * B));
    clv_value out = clv_cache_update_parts(graph, cache, rows, offset, PARTS, POSITIONS);
    graph_eval *eval = graph_eval_new(graph, SEED);
    clv_error err = {0};
    for (int at = 0; at <= POSITIONS - S; at++) {
        for (int b = 0; b < PARTS * B; b++)
            graph_eval_set(eval, offset, b, at - b / B * ROOM);
        graph_eval_must_run(eval, -1);
        for (int64_t i = 0; i < PARTS * B * ROOM * W; i++) {
            int64_t b = i / (ROOM * W), s = b / B * ROOM + i / W % ROOM - at;
            double want =
                s >= 0 && s < S ? graph_eval_get(eval, rows, (b * S + s) * W + i % W) : graph_eval_get(eval, cache, i);
            assert_true(graph_eval_get(eval, out, i) == want);
        }
        assert_true(graph_eval_check_rules(eval) > 0);
    }
    graph_eval_set(eval, offset, B, POSITIONS - S + 1 - ROOM);
    assert_int_equal(graph_eval_run(eval, -1, &err), CLV_ELIMIT);
    assert_non_null(strstr(err.message, "context full: 2 rows from 4 on do not fit a cache of 5 rows"));
    graph_eval_free(eval);
    clv_graph_free(graph);
}

/* ---- zig-zag order ---- */

/* Ops that go by positions, in the order of rows of 3 ranks: their parts on any ranks are those of the whole. (What the
 * whole is, test_kernels_attention.c and test_context.c say.) */
static void rows_in_zigzag_order(void **state)
{
    enum { B = 2, S = 7, H = 4, K = 2, D = 4 };
    for (int packed = 0; packed < 2; packed++) {
        clv_graph *graph = new_graph();
        graph->zigzag = 3;
        const clv_rope_options rope = {.theta = 100};
        clv_value ids = clv_tokens_in_row_order(graph, input(graph, "ids", CLV_I32, DIMS(B, S)));
        clv_value q = input(graph, "q", CLV_F64, DIMS(B, S, H, D));
        clv_value kv = packed ? input(graph, "kv", CLV_F64, DIMS(B, S, 2, K, D))
                              : input(graph, "kv", CLV_F64, DIMS(B, S, K, D + 3));
        const clv_attention_options options = {.size = sizeof options,
                                               .causal = true,
                                               .mask = input(graph, "mask", CLV_U8, DIMS(B, S)),
                                               .value_dim = packed ? 0 : 3,
                                               .window = packed ? 0 : 3,
                                               .dropout = packed ? 0 : 0.4,
                                               .dropout_key = dropout_key};
        q = clv_dropout(graph, clv_rope(graph, q, CLV_NONE, &rope), 0.3, dropout_key, CLV_NONE);
        kv = packed ? clv_rope(graph, kv, CLV_NONE, &rope) : kv;
        clv_value y = clv_attention(graph, q, kv, &options), wrt[] = {q, kv}, d[2];
        clv_value loss = clv_reduce(graph, CLV_SUM, clv_mul(graph, y, y), (int[]){0, 1, 2, 3}, 4, false);
        clv_gradients(graph, loss, CLV_NONE, wrt, 2, d);
        assert_true(clv_valid(ids) && clv_valid(clv_positions_in_row_order(graph, S, CLV_NONE)));
        graph_eval *eval = graph_eval_new(graph, SEED);
        graph_eval_must_run(eval, -1);
        assert_true(graph_eval_check_rules(eval) > 20);
        graph_eval_free(eval);
        clv_graph_free(graph);
    }
    clv_graph *graph = new_graph();
    graph->zigzag = 2;
    clv_attention(graph, input(graph, "q", CLV_F32, DIMS(1, 4, 2, 4)), input(graph, "kv", CLV_F32, DIMS(1, 5, 2, 2, 4)),
                  NULL);
    assert_refused(graph, CLV_EUNSUPPORTED, "rows in zig-zag order with 4 query rows and 5 keys");
    graph = new_graph();
    graph->zigzag = 2;
    clv_rope(graph, input(graph, "x", CLV_F32, DIMS(1, 4, 2, 4)), scalar(graph, "o", CLV_I32),
             &(clv_rope_options){.theta = 10});
    assert_refused(graph, CLV_EUNSUPPORTED, "rows in zig-zag order with an offset");
}

/* ---- costs ---- */

static clv_op_cost cost_of(const clv_graph *graph, const char *name)
{
    for (int o = 0; o < graph->n_ops; o++) {
        const clv_op *op = &graph->ops[o];
        clv_type in[CLV_MAX_IN] = {0}, out[CLV_MAX_OUT] = {0};
        for (int i = 0; i < op->n_in; i++)
            in[i] = clv_graph_type(graph, clv_op_operand(op, i));
        for (int r = 0; r < op->n_out; r++)
            out[r] = clv_graph_type(graph, clv_op_result(op, r));
        if (strcmp(op->def->name, name) == 0)
            return op->def->cost(op, in, out);
    }
    fail_msg("no op %s", name);
    return (clv_op_cost){0};
}

/* Of 16 keys a query sees 8 on average, or all; a window of 4 hides 0 to 12 of them, 4.5 on average (12^2 / 32). */
static void costs_of_windows(void **state)
{
    static const struct {
        bool causal;
        int64_t window;
        double keys;
    } cases[] = {{true, 0, 8}, {true, 4, 3.5}, {true, 16, 8}, {true, 100, 8}, {false, 0, 16}, {false, 4, 11.5}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        clv_graph *graph = new_graph();
        clv_value q = input(graph, "q", CLV_F32, DIMS(2, 16, 4, 8)),
                  kv = input(graph, "kv", CLV_F32, DIMS(2, 16, 2, 4, 8)), d[2];
        clv_value out =
            clv_attention(graph, q, kv, &(clv_attention_options){.causal = cases[i].causal, .window = cases[i].window});
        clv_gradients(graph, out, q, (clv_value[]){q, kv}, 2, d);
        assert_true(cost_of(graph, "attention").flops == 4 * 2 * 16 * 4 * 8 * cases[i].keys);
        assert_true(cost_of(graph, "attention_gradient").flops == 2.5 * 4 * 2 * 16 * 4 * 8 * cases[i].keys);
        clv_graph_free(graph);
    }
}

static void costs(void **state)
{
    clv_graph *graph = new_graph();
    clv_value q = input(graph, "q", CLV_F32, DIMS(2, 16, 4, 8)), kv = input(graph, "kv", CLV_F32, DIMS(2, 16, 2, 4, 8));
    clv_value out = clv_attention(graph, q, kv, &(clv_attention_options){.causal = true}), d[2];
    clv_gradients(graph, out, q, (clv_value[]){q, kv}, 2, d);
    double products = 4.0 * 2 * 16 * 16 * 4 * 8 / 2, q_bytes = 4.0 * 2 * 16 * 4 * 8, lse = 4.0 * 2 * 4 * 16;
    assert_true(cost_of(graph, "attention").flops == products);
    assert_true(cost_of(graph, "attention").bytes == q_bytes * 4 + lse); /* q, keys, values, out */
    assert_true(cost_of(graph, "attention_gradient").flops == 2.5 * products);

    /* what a table or a cache holds beyond the rows in use costs nothing */
    clv_value table = input(graph, "table", CLV_F32, DIMS(50000, 8)), picked = input(graph, "ids", CLV_I32, DIMS(3));
    clv_embedding(graph, table, picked);
    assert_true(cost_of(graph, "embedding").bytes == 3 * 4 + 2 * 3 * 8 * 4);
    clv_cache_update(graph, input(graph, "cache", CLV_F32, DIMS(1, 4096, 8)),
                     input(graph, "row", CLV_F32, DIMS(1, 1, 8)), scalar(graph, "offset", CLV_I32));
    assert_true(cost_of(graph, "cache_update").bytes == 2 * 8 * 4);
    clv_graph_free(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_values),        cmocka_unit_test(attention_gradients),
        cmocka_unit_test(attention_gradients_f32), cmocka_unit_test(attention_spills),
        cmocka_unit_test(attention_refuses),       cmocka_unit_test(rope_values),
        cmocka_unit_test(rope_gradients),          cmocka_unit_test(rope_refuses),
        cmocka_unit_test(cache_of_own_rows),       cmocka_unit_test(cache_values),
        cmocka_unit_test(cache_in_parts),          cmocka_unit_test(rows_in_zigzag_order),
        cmocka_unit_test(costs_of_windows),        cmocka_unit_test(costs),
    };
    printf("seed %d\n", SEED);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
