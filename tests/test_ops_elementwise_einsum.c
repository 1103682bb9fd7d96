/* test_ops_elementwise_einsum.c - products, elementwise ops, reductions and ops that move elements: values against
 * plain formulas, gradients against central differences, rules by cutting every factor, and what is refused. */
#include "op_cases.h"

/* Gradients of y, and the rules of all ops on the way; `cuts` is false where nothing can be split. */
static void check(clv_graph *graph, clv_value y, const clv_value *wrt, int n, bool cuts)
{
    clv_error err = {0};
    if (clv_graph_status(graph, &err) != CLV_OK)
        fail_msg("the graph was not built: %s", err.message);
    int compared = check_gradient(graph, y, wrt, n, NULL, NULL);
    if (cuts)
        assert_true(compared > 0);
    clv_graph_free(graph);
}

static clv_value x_input(clv_graph *graph, int rank, const int64_t *shape)
{
    return input(graph, "x", CLV_F64, rank, shape);
}

/* ---- products ---- */

static const char *const products[] = {
    "ik,kj->ij",       "ki,kj->ij",       "ik,jk->ji",     "bik,bkj->bij",  "bik,bkj->jbi",
    "bsm,mhd->bshd",   "bshd,hdm->bsm",   "bsm,mjf->bsjf", "bsjf,mjf->bsm", "bsm,bsjf->mjf",
    "bsm,mjkd->bsjkd", "bsm,bsjkd->mjkd", "bsm,vm->bsv",   "i,j->ij",       "ik,k->i",
    "i,i->",           "ijk,kl->lij",     "abc,cbd->dab",  "kbi,jkb->bij",  "ab,ab->ab",
};
enum { N_PRODUCTS = sizeof products / sizeof products[0] };

static int64_t size_of(char letter)
{
    return 2 + letter % 3 + (letter == 'j');
}

/* Rank and sizes of the letters up to a stop; returns what follows it. */
static const char *letters(const char *text, char stop, char *out, int *rank, int64_t *shape)
{
    for (*rank = 0; *text && *text != stop; text++) {
        out[*rank] = *text;
        shape[(*rank)++] = size_of(*text);
    }
    out[*rank] = '\0';
    return *text ? text + 1 : text;
}

static clv_value product_graph(clv_graph *graph, const char *subscripts, clv_dtype dtype, clv_value *wrt)
{
    char a[9], b[9];
    int ranks[2];
    int64_t shapes[2][CLV_MAX_RANK];
    const char *rest = letters(subscripts, ',', a, &ranks[0], shapes[0]);
    letters(rest, '-', b, &ranks[1], shapes[1]);
    wrt[0] = input(graph, "a", dtype, ranks[0], shapes[0]);
    wrt[1] = input(graph, "b", dtype, ranks[1], shapes[1]);
    return clv_einsum(graph, subscripts, wrt[0], wrt[1]);
}

static int64_t at(const char *list, const int *index)
{
    int64_t flat = 0;
    for (; *list; list++)
        flat = flat * size_of(*list) + index[(int)*list];
    return flat;
}

/* The sum over all letters, one loop. */
static void plain_product(double *out, const char *subscripts, graph_eval *eval, const clv_value *in)
{
    char list[3][9], all[20] = "";
    int rank;
    int64_t shape[CLV_MAX_RANK];
    const char *rest = letters(letters(subscripts, ',', list[0], &rank, shape), '-', list[1], &rank, shape);
    letters(rest + 1, '\0', list[2], &rank, shape);
    for (int l = 0; l < 2; l++)
        for (const char *p = list[l]; *p; p++)
            if (!strchr(all, *p))
                all[strlen(all)] = *p;
    int index[128] = {0};
    for (;;) {
        out[at(list[2], index)] +=
            graph_eval_get(eval, in[0], at(list[0], index)) * graph_eval_get(eval, in[1], at(list[1], index));
        int d = (int)strlen(all) - 1;
        while (d >= 0 && ++index[(int)all[d]] == size_of(all[d]))
            index[(int)all[d--]] = 0;
        if (d < 0)
            return;
    }
}

static void test_product_values(void **state)
{
    for (int n = 0; n < N_PRODUCTS; n++)
        for (int t = 0; t < DTYPES; t++) {
            clv_graph *graph = new_graph();
            clv_value in[2], y = product_graph(graph, products[n], dtypes[t], in);
            graph_eval *eval = graph_eval_new(graph, SEED + (uint64_t)n);
            double want[4096] = {0};
            clv_type type = clv_graph_type(graph, y);
            graph_eval_must_run(eval, -1);
            plain_product(want, products[n], eval, in);
            assert_close(eval, y, want, clv_type_elems(&type), tolerance(dtypes[t]));
            graph_eval_free(eval);
            clv_graph_free(graph);
        }
}

static void test_product_gradients(void **state)
{
    for (int n = 0; n < N_PRODUCTS; n++) {
        clv_graph *graph = new_graph();
        clv_value in[2], y = product_graph(graph, products[n], CLV_F64, in);
        check(graph, y, in, 2, true);
    }
}

/* A product that is added to another: as the sum of both, for results that pass through the workspace, too. */
static void test_product_added(void **state)
{
    for (int n = 0; n < N_PRODUCTS; n++)
        for (int t = 0; t < DTYPES; t++) {
            clv_graph *graph = new_graph();
            clv_value in[3], y = product_graph(graph, products[n], dtypes[t], in);
            clv_type type = clv_graph_type(graph, y);
            bool wide = n % 2 == 0 && clv_dtype_size(type.dtype) == 2;
            in[2] = input(graph, "c", wide ? CLV_F32 : type.dtype, type.rank, type.shape);
            clv_value sum = clv_einsum_accumulate(graph, products[n], in[0], in[1], in[2], wide ? CLV_F32 : type.dtype);
            graph_eval *eval = graph_eval_new(graph, SEED + (uint64_t)n);
            double want[4096] = {0};
            graph_eval_must_run(eval, -1);
            plain_product(want, products[n], eval, in);
            for (int64_t i = 0; i < clv_type_elems(&type); i++)
                want[i] += graph_eval_get(eval, in[2], i);
            assert_close(eval, sum, want, clv_type_elems(&type), tolerance(wide ? CLV_F32 : dtypes[t]));
            assert_true(graph_eval_check_rules(eval) > 0);
            graph_eval_free(eval);
            if (type.dtype == CLV_F64)
                check(graph, sum, in, 3, true);
            else
                clv_graph_free(graph);
        }
}

static void test_product_empty(void **state)
{
    clv_graph *graph = new_graph();
    clv_value a = input(graph, "a", CLV_F32, DIMS(3, 0)), b = input(graph, "b", CLV_F32, DIMS(0, 2));
    clv_value y = clv_einsum(graph, "ik,kj->ij", a, b);
    graph_eval *eval = graph_eval_new(graph, SEED);
    graph_eval_must_run(eval, -1);
    assert_close(eval, y, (double[6]){0}, 6, 0);
    graph_eval_free(eval);
    clv_graph_free(graph);
}

static void test_product_refusals(void **state)
{
    static const struct {
        const char *subscripts, *says;
        clv_status code;
    } cases[] = {
        {"ik,kj", "subscripts", CLV_ESYNTAX},        {"ik kj->ij", "subscripts", CLV_ESYNTAX},
        {"i1,kj->ij", "subscripts", CLV_ESYNTAX},    {"ii,kj->ij", "stands twice", CLV_EINVAL},
        {"ik,kj->ijq", "in no operand", CLV_EINVAL}, {"iz,kj->ikj", "one operand alone", CLV_EINVAL},
        {"ikb,kj->ibj", "names 3", CLV_ESHAPE},      {"ik,ij->kj", "different sizes", CLV_ESHAPE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        clv_graph *graph = new_graph();
        clv_einsum(graph, cases[i].subscripts, input(graph, "a", CLV_F32, DIMS(2, 3)),
                   input(graph, "b", CLV_F32, DIMS(3, 4)));
        assert_refused(graph, cases[i].code, cases[i].says);
    }
    clv_graph *graph = new_graph();
    clv_einsum(graph, "ik,kj->ij", input(graph, "a", CLV_F32, DIMS(2, 3)), input(graph, "b", CLV_BF16, DIMS(3, 4)));
    assert_refused(graph, CLV_EDTYPE, "one float dtype");
}

/* ---- elementwise ---- */

static double plain_map(clv_unary_kind kind, double x)
{
    switch (kind) {
    case CLV_EXP:
        return exp(x);
    case CLV_LOG:
        return log(x);
    case CLV_TANH:
        return tanh(x);
    case CLV_SIGMOID:
        return 1 / (1 + exp(-x));
    case CLV_GELU:
        return 0.5 * x * (1 + erf(x / sqrt(2.0)));
    case CLV_GELU_TANH:
        return 0.5 * x * (1 + tanh(sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
    case CLV_SILU:
        return x / (1 + exp(-x));
    case CLV_RELU:
        return x > 0 ? x : 0;
    case CLV_RSQRT:
        return 1 / sqrt(x);
    case CLV_NEG:
        return -x;
    case CLV_SQRT:
        return sqrt(x);
    }
    return NAN;
}

static bool needs_positive(clv_unary_kind kind)
{
    return kind == CLV_LOG || kind == CLV_RSQRT || kind == CLV_SQRT;
}

static void test_map(void **state)
{
    for (int kind = CLV_EXP; kind <= CLV_SQRT; kind++) {
        clv_graph *graph = new_graph();
        clv_value x = x_input(graph, DIMS(3, 5));
        clv_value positive = clv_unary(graph, CLV_EXP, x);
        clv_value in = needs_positive((clv_unary_kind)kind) ? positive : x,
                  y = clv_unary(graph, (clv_unary_kind)kind, in);
        graph_eval *eval = graph_eval_new(graph, SEED);
        double want[15];
        graph_eval_must_run(eval, -1);
        for (int i = 0; i < 15; i++)
            want[i] = plain_map((clv_unary_kind)kind, graph_eval_get(eval, in, i));
        assert_close(eval, y, want, 15, 1e-13);
        graph_eval_free(eval);
        check(graph, y, &x, 1, true);
    }
}

static double plain_combine(clv_binary_kind kind, double a, double b)
{
    switch (kind) {
    case CLV_ADD:
        return a + b;
    case CLV_SUB:
        return a - b;
    case CLV_MUL:
        return a * b;
    case CLV_DIV:
        return a / b;
    case CLV_MAXIMUM:
        return fmax(a, b);
    case CLV_MINIMUM:
        return fmin(a, b);
    }
    return NAN;
}

/* [3,1,5] with [4,1]: both are broadcast. */
static void test_combine(void **state)
{
    for (int kind = CLV_ADD; kind <= CLV_MINIMUM; kind++) {
        clv_graph *graph = new_graph();
        clv_value in[] = {x_input(graph, DIMS(3, 1, 5)), input(graph, "y", CLV_F64, DIMS(4, 1))};
        clv_value b = kind == CLV_DIV ? clv_unary(graph, CLV_EXP, in[1]) : in[1];
        clv_value y = clv_binary(graph, (clv_binary_kind)kind, in[0], b);
        graph_eval *eval = graph_eval_new(graph, SEED);
        double want[60];
        graph_eval_must_run(eval, -1);
        for (int i = 0; i < 60; i++)
            want[i] = plain_combine((clv_binary_kind)kind, graph_eval_get(eval, in[0], i / 20 * 5 + i % 5),
                                    graph_eval_get(eval, b, i / 5 % 4));
        assert_close(eval, y, want, 60, 1e-14);
        graph_eval_free(eval);
        check(graph, y, in, 2, true);
    }
}

static void test_combine_refusals(void **state)
{
    clv_graph *graph = new_graph();
    clv_add(graph, input(graph, "a", CLV_F32, DIMS(2, 3)), input(graph, "b", CLV_F32, DIMS(4)));
    assert_refused(graph, CLV_ESHAPE, "f32[2,3] and f32[4] do not broadcast");
    graph = new_graph();
    clv_mul(graph, input(graph, "a", CLV_F32, DIMS(2)), input(graph, "b", CLV_F64, DIMS(2)));
    assert_refused(graph, CLV_EDTYPE, "cast one");
}

static void test_where(void **state)
{
    clv_graph *graph = new_graph();
    clv_value in[] = {x_input(graph, DIMS(3, 5)), input(graph, "y", CLV_F64, DIMS(3, 5))};
    clv_value condition = input(graph, "c", CLV_U8, DIMS(3, 1));
    clv_value y = clv_where(graph, condition, in[0], in[1]);
    graph_eval *eval = graph_eval_new(graph, SEED);
    double want[15];
    graph_eval_set(eval, condition, 1, 1);
    graph_eval_must_run(eval, -1);
    for (int i = 0; i < 15; i++)
        want[i] = graph_eval_get(eval, in[i / 5 == 1 ? 0 : 1], i);
    assert_close(eval, y, want, 15, 0);
    graph_eval_free(eval);
    check(graph, y, in, 2, true);
}

static void test_scale_cast_fill(void **state)
{
    clv_graph *graph = new_graph();
    clv_value x = x_input(graph, DIMS(4, 3));
    clv_value narrow = clv_cast(graph, x, CLV_BF16), wide = clv_cast(graph, narrow, CLV_F32);
    clv_value twos = clv_fill(graph, CLV_F64, DIMS(4, 3), 2), y = clv_scale(graph, clv_mul(graph, x, twos), -1.5);
    graph_eval *eval = graph_eval_new(graph, SEED);
    graph_eval_must_run(eval, -1);
    for (int i = 0; i < 12; i++) {
        double value = graph_eval_get(eval, x, i);
        assert_true(fabs(graph_eval_get(eval, wide, i) - value) <= fabs(value) / 256);
        assert_true(graph_eval_get(eval, y, i) == value * 2 * -1.5);
    }
    graph_eval_free(eval);
    check(graph, y, &x, 1, true);
}

static void test_iota(void **state)
{
    clv_graph *graph = new_graph();
    clv_value offset = scalar(graph, "offset", CLV_I32), from = clv_iota(graph, 7, offset);
    clv_value plain = clv_iota(graph, 7, CLV_NONE);
    graph_eval *eval = graph_eval_new(graph, SEED);
    graph_eval_set(eval, offset, 0, 30);
    graph_eval_must_run(eval, -1);
    assert_close(eval, plain, (double[]){0, 1, 2, 3, 4, 5, 6}, 7, 0);
    assert_close(eval, from, (double[]){30, 31, 32, 33, 34, 35, 36}, 7, 0);
    assert_true(graph_eval_check_rules(eval) > 0);
    graph_eval_free(eval);
    clv_graph_free(graph);

    graph = new_graph();
    offset = input(graph, "offset", CLV_I32, DIMS(2));
    from = clv_iota(graph, 3, offset);
    eval = graph_eval_new(graph, SEED);
    graph_eval_set(eval, offset, 0, 5);
    graph_eval_set(eval, offset, 1, 9);
    graph_eval_must_run(eval, -1);
    assert_close(eval, from, (double[]){5, 6, 7, 9, 10, 11}, 6, 0);
    assert_true(graph_eval_check_rules(eval) > 0);
    graph_eval_free(eval);
    clv_graph_free(graph);

    graph = new_graph();
    clv_iota(graph, -1, CLV_NONE);
    assert_refused(graph, CLV_EINVAL, "iota of -1");
    graph = new_graph();
    clv_iota(graph, 3, scalar(graph, "offset", CLV_I64));
    assert_refused(graph, CLV_EDTYPE, "offset is i64[]; i32 is needed");
}

static void test_equal(void **state)
{
    clv_graph *graph = new_graph();
    clv_value x = input(graph, "x", CLV_I32, DIMS(2, 3)), y = input(graph, "y", CLV_I32, DIMS(2, 1));
    clv_value same = clv_equal(graph, x, y);
    graph_eval *eval = graph_eval_new(graph, SEED);
    for (int i = 0; i < 6; i++)
        graph_eval_set(eval, x, i, i % 4); /* 0 1 2; 3 0 1 */
    graph_eval_set(eval, y, 0, 2);
    graph_eval_set(eval, y, 1, 0);
    graph_eval_must_run(eval, -1);
    assert_close(eval, same, (double[]){0, 0, 1, 0, 1, 0}, 6, 0);
    assert_true(graph_eval_check_rules(eval) > 0);
    graph_eval_free(eval);
    clv_graph_free(graph);

    graph = new_graph();
    clv_equal(graph, input(graph, "x", CLV_I32, DIMS(2, 3)), input(graph, "y", CLV_I64, DIMS(2, 3)));
    assert_refused(graph, CLV_ESHAPE, "x is i32[2,3], y is i64[2,3]");
    graph = new_graph();
    clv_equal(graph, input(graph, "x", CLV_I32, DIMS(2, 3)), input(graph, "y", CLV_I32, DIMS(3)));
    assert_refused(graph, CLV_ESHAPE, "y is i32[3]");
}

/* ---- fused activations ---- */

static void test_activations(void **state)
{
    static const clv_unary_kind kinds[] = {CLV_GELU, CLV_GELU_TANH, CLV_SILU, CLV_RELU};
    for (int k = 0; k < 4; k++) {
        clv_graph *graph = new_graph();
        clv_value x = x_input(graph, DIMS(3, 2, 5)), y = clv_gated(graph, x, kinds[k]);
        graph_eval *eval = graph_eval_new(graph, SEED);
        double want[15];
        graph_eval_must_run(eval, -1);
        for (int i = 0; i < 15; i++)
            want[i] = plain_map(kinds[k], graph_eval_get(eval, x, i / 5 * 10 + i % 5)) *
                      graph_eval_get(eval, x, i / 5 * 10 + 5 + i % 5);
        assert_close(eval, y, want, 15, 1e-13);
        graph_eval_free(eval);
        check(graph, y, &x, 1, true);
    }
    for (int k = 0; k < 2; k++) {
        clv_graph *graph = new_graph();
        clv_value in[] = {x_input(graph, DIMS(2, 3, 5)), input(graph, "bias", CLV_F64, DIMS(5))};
        check(graph, clv_bias_gelu(graph, in[0], in[1], kinds[k]), in, 2, true);
    }
    clv_graph *graph = new_graph();
    clv_gated(graph, x_input(graph, DIMS(3, 5)), CLV_SILU);
    assert_refused(graph, CLV_ESHAPE, "[...,2,F]");
}

/* ---- reductions ---- */

static void test_reduce(void **state)
{
    for (int kind = CLV_SUM; kind <= CLV_MEAN; kind++)
        for (int keep = 0; keep < 2; keep++) {
            clv_graph *graph = new_graph();
            clv_value x = x_input(graph, DIMS(3, 4, 5));
            clv_value y = clv_reduce(graph, (clv_reduce_kind)kind, x, (int[]){0, 2}, 2, keep);
            graph_eval *eval = graph_eval_new(graph, SEED);
            double want[4];
            graph_eval_must_run(eval, -1);
            for (int j = 0; j < 4; j++) {
                want[j] = kind == CLV_MAX ? -INFINITY : 0;
                for (int i = 0; i < 15; i++) {
                    double value = graph_eval_get(eval, x, i / 5 * 20 + j * 5 + i % 5);
                    want[j] = kind == CLV_MAX ? fmax(want[j], value) : want[j] + value;
                }
                want[j] /= kind == CLV_MEAN ? 15 : 1;
            }
            assert_int_equal(clv_graph_type(graph, y).rank, keep ? 3 : 1);
            assert_close(eval, y, want, 4, 1e-14);
            graph_eval_free(eval);
            check(graph, y, &x, 1, true);
        }
    clv_graph *graph = new_graph();
    clv_reduce(graph, CLV_SUM, x_input(graph, DIMS(3, 4)), (int[]){2}, 1, false);
    assert_refused(graph, CLV_EINVAL, "dimension 2; valid: each of 0 to 1 once");
}

/* ---- ops that move elements ---- */

static void test_reshape(void **state)
{
    static const struct {
        int rank, to_rank;
        int64_t shape[4], to[4];
        bool cuts;
    } cases[] = {
        {3, 4, {2, 3, 8}, {2, 3, 4, 2}, true}, {3, 2, {2, 3, 8}, {6, 8}, true}, {2, 2, {4, 6}, {3, 8}, false},
        {3, 1, {1, 6, 1}, {6}, true},          {1, 3, {12}, {2, 1, 6}, true},   {2, 3, {6, 4}, {2, 3, 4}, true},
        {3, 2, {2, 5, 6}, {2, 30}, true},      {2, 2, {6, 5}, {10, 3}, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        clv_graph *graph = new_graph();
        clv_value x = x_input(graph, cases[i].rank, cases[i].shape);
        check(graph, clv_reshape(graph, x, cases[i].to_rank, cases[i].to), &x, 1, cases[i].cuts);
    }
    clv_graph *graph = new_graph();
    clv_reshape(graph, x_input(graph, DIMS(3, 4)), DIMS(5));
    assert_refused(graph, CLV_ESHAPE, "f64[3,4] cannot become f64[5]");
}

static void test_transpose(void **state)
{
    clv_graph *graph = new_graph();
    clv_value x = x_input(graph, DIMS(2, 3, 4)), y = clv_transpose(graph, x, (int[]){2, 0, 1});
    graph_eval *eval = graph_eval_new(graph, SEED);
    graph_eval_must_run(eval, -1);
    for (int i = 0; i < 24; i++) /* y[k,i,j] = x[i,j,k] */
        assert_true(graph_eval_get(eval, y, i % 4 * 6 + i / 4) == graph_eval_get(eval, x, i));
    graph_eval_free(eval);
    check(graph, y, &x, 1, true);
    graph = new_graph();
    clv_transpose(graph, x_input(graph, DIMS(2, 3)), (int[]){1, 1});
    assert_refused(graph, CLV_EINVAL, "each of 0 to 1 once");
}

static void test_slice_pad_concat(void **state)
{
    clv_graph *graph = new_graph();
    clv_value in[] = {x_input(graph, DIMS(4, 5)), input(graph, "y", CLV_F64, DIMS(2, 5))};
    clv_value part = clv_slice(graph, in[0], (int64_t[]){1, 0}, (int64_t[]){3, 5});
    clv_value padded = clv_pad(graph, part, (int64_t[]){1, 0}, (int64_t[]){0, 0});
    clv_value y = clv_concat(graph, (clv_value[]){padded, in[1]}, 2, 0);
    graph_eval *eval = graph_eval_new(graph, SEED);
    double want[25] = {0};
    graph_eval_must_run(eval, -1);
    for (int i = 0; i < 10; i++) {
        want[5 + i] = graph_eval_get(eval, in[0], 5 + i);
        want[15 + i] = graph_eval_get(eval, in[1], i);
    }
    assert_close(eval, y, want, 25, 0);
    graph_eval_free(eval);
    check(graph, y, in, 2, true);
    graph = new_graph();
    clv_slice(graph, x_input(graph, DIMS(4)), (int64_t[]){2}, (int64_t[]){5});
    assert_refused(graph, CLV_ESHAPE, "not inside its 4 elements");
    graph = new_graph();
    clv_concat(graph, (clv_value[]){x_input(graph, DIMS(4, 2)), input(graph, "y", CLV_F64, DIMS(4, 3))}, 2, 0);
    assert_refused(graph, CLV_ESHAPE, "differ in more than dimension 0");
}

/* ---- constraints and the graph itself ---- */

static void test_constraint(void **state)
{
    clv_graph *graph = new_graph();
    clv_value x = x_input(graph, DIMS(4, 3));
    clv_layout layout = clv_graph_layout(graph, 2, "x,_");
    check(graph, clv_constrain(graph, x, &layout), &x, 1, true);
    graph = new_graph();
    layout = clv_graph_layout(graph, 2, "x,_ + sum{x}");
    assert_refused(graph, CLV_EAXIS, "x");
    graph = new_graph();
    layout = clv_graph_layout(graph, 2, "_,_ + sum{x}");
    clv_constrain(graph, x_input(graph, DIMS(4, 3)), &layout);
    assert_refused(graph, CLV_EINVAL, "partial");
}

static void test_graph_refusals(void **state)
{
    clv_graph *graph = new_graph();
    x_input(graph, DIMS(2));
    x_input(graph, DIMS(3));
    assert_refused(graph, CLV_EEXIST, "'x' exists already");
    static const struct {
        clv_dtype dtype;
        double value;
    } not_held[] = {{CLV_I32, 1.5},       {CLV_I32, NAN}, {CLV_I32, 0x1p31}, {CLV_I64, 0x1p63},
                    {CLV_I64, -INFINITY}, {CLV_U8, 300},  {CLV_U8, -1},      {CLV_BOOL, 7}};
    for (size_t i = 0; i < sizeof not_held / sizeof *not_held; i++) {
        graph = new_graph();
        clv_fill(graph, not_held[i].dtype, DIMS(2), not_held[i].value);
        assert_refused(graph, CLV_EINVAL, "does not hold");
    }
    graph = new_graph();
    clv_fill(graph, CLV_I64, DIMS(2), -0x1p63);
    clv_fill(graph, CLV_U8, DIMS(2), 255);
    clv_fill(graph, CLV_F16, DIMS(2), 1e300);
    clv_value x = x_input(graph, DIMS(2, 3)), d;
    clv_gradients(graph, x, CLV_NONE, &x, 1, &d);
    assert_refused(graph, CLV_ESHAPE, "6 elements");
    graph = new_graph();
    clv_input(graph, "big", CLV_F32, DIMS(1LL << 40, 1LL << 40), NULL);
    assert_refused(graph, CLV_ELIMIT, "2^60");
    graph = new_graph();
    clv_graph_pop_scope(graph);
    assert_refused(graph, CLV_EINVAL, "without a push");
}

/* A value that the loss does not depend on has the gradient zero; scopes name state. */
static void test_zero_gradient_and_names(void **state)
{
    clv_graph *graph = new_graph();
    clv_graph_push_scope(graph, "layers.%d", 3);
    clv_value w = clv_state(graph, "w", CLV_F64, DIMS(2), NULL, (clv_init){CLV_INIT_ONES, 0});
    clv_graph_pop_scope(graph);
    clv_value x = x_input(graph, DIMS(2)), d;
    clv_value loss = clv_reduce(graph, CLV_SUM, x, (int[]){0}, 1, false);
    clv_gradients(graph, loss, CLV_NONE, &w, 1, &d);
    assert_string_equal(clv_value_name(graph, w), "layers.3.w");
    graph_eval *eval = graph_eval_new(graph, SEED);
    graph_eval_must_run(eval, -1);
    assert_close(eval, d, (double[2]){0}, 2, 0);
    graph_eval_free(eval);
    clv_graph_free(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_product_values),
        cmocka_unit_test(test_product_gradients),
        cmocka_unit_test(test_product_added),
        cmocka_unit_test(test_product_empty),
        cmocka_unit_test(test_product_refusals),
        cmocka_unit_test(test_map),
        cmocka_unit_test(test_combine),
        cmocka_unit_test(test_combine_refusals),
        cmocka_unit_test(test_where),
        cmocka_unit_test(test_scale_cast_fill),
        cmocka_unit_test(test_iota),
        cmocka_unit_test(test_equal),
        cmocka_unit_test(test_activations),
        cmocka_unit_test(test_reduce),
        cmocka_unit_test(test_reshape),
        cmocka_unit_test(test_transpose),
        cmocka_unit_test(test_slice_pad_concat),
        cmocka_unit_test(test_constraint),
        cmocka_unit_test(test_graph_refusals),
        cmocka_unit_test(test_zero_gradient_and_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
