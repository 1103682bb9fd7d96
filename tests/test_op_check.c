/* test_op_check.c - clv_op_check: an op that keeps what it says passes, one that lies is caught by each lie; and the
 * library's own, on what random graphs give them. */
#include <math.h>
#include <string.h>

#include "cleave/op.h"
#include "elementwise_op.h"
#include "graph_interpreter.h"
#include "must.h"
#include "random_graph.h"
#include "unit_test.h"

/* ---- an op: z[n,f] = x[n,f] w[f], or x without w; y[n] = sum over f of z[n,f] ---- */

typedef enum lie {
    NONE,
    CUT,             /* z is a running sum over f, which the rule lets be split */
    UNEVEN,          /* it takes all shards for equally long */
    REDUCTION,       /* y's parts are said to be candidates for a maximum */
    PARTIAL,         /* both square x, which is said to pass in addends */
    ADDENDS,         /* both are said to add up over addends of x and w, of which they are products */
    MAXIMA,          /* they are said to pass maxima */
    GRADIENT,        /* twice what it is by w */
    NO_GRADIENT,     /* none by w */
    BLIND,           /* adds what flows from both results, whether it does or not */
    ALONE,           /* twice what it is where nothing flows from y */
    SMALL,           /* twice what it is, where all is small */
    OF_OTHER_TYPE,   /* f32, whatever the dtype */
    BEHIND,          /* writes the whole z, whatever its part */
    BEFORE,          /* and one before its y */
    UNWRITTEN,       /* leaves the last y out */
    OPERAND,         /* writes into x */
    WORKSPACE,       /* writes behind it */
    WORKSPACE_FALLS, /* it is smaller for larger shards */
    IN_PLACE,        /* reads x after it has written z */
    NOT_A_NUMBER,    /* y is NaN */
    FAILS,           /* by a status of its own */
    FICKLE,          /* it keeps something from call to call */
    LEFT_BEHIND,     /* z begins with what was there before, if that is a number */
    ON_THREADS,      /* z is by as many threads */
    EMPTY,           /* it refuses a shard without columns */
    BOTH,            /* z is off where rows and columns are both cut */
    NEGATIVE,        /* it costs less than nothing on shards of few rows */
    DEARER,          /* it costs more on smaller shards */
    KINK,            /* none: |x| in place of x */
    ROOT             /* none: 1 / sqrt(x) in place of x */
} lie;

typedef struct product_attrs {
    int lie;
} product_attrs;

static lie lie_of(const clv_op *op)
{
    return (lie)((const product_attrs *)clv_op_attrs(op))->lie;
}

static clv_status shape(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err)
{
    if (in[0].rank != 2 || !clv_dtype_is_float(in[0].dtype))
        return clv_fail(err, CLV_ESHAPE, "x[N,F] is needed, of floats");
    out[0] = (clv_type){.dtype = in[0].dtype, .rank = 1, .shape = {in[0].shape[0]}};
    out[1] = in[0];
    return CLV_OK;
}

static void rule(const clv_op *op, const clv_type *in, const clv_type *out, clv_rule *r)
{
    int n = clv_rule_add_factor(r, in[0].shape[0], CLV_REDUCTION_NONE);
    int f = clv_rule_add_factor(r, in[0].shape[1], lie_of(op) == REDUCTION ? CLV_REDUCTION_MAX : CLV_REDUCTION_SUM);
    clv_rule_name_factor(r, f, "columns");
    clv_rule_operand_dim(r, 0, 0, n), clv_rule_operand_dim(r, 0, 1, f);
    clv_rule_result_dim(r, 0, 0, n), clv_rule_result_dim(r, 1, 0, n), clv_rule_result_dim(r, 1, 1, f);
    if (clv_valid(clv_op_operand(op, 1)))
        clv_rule_operand_dim(r, 1, 0, f);
    if (lie_of(op) == ADDENDS)
        clv_rule_additive(r, 3);
    else if (lie_of(op) != KINK && lie_of(op) != ROOT)
        clv_rule_multilinear(r, 1);
    if (lie_of(op) == MAXIMA)
        clv_rule_keeps_partial_max(r);
}

static size_t workspace(const clv_op *op, const clv_view *in, const clv_view *out)
{
    return lie_of(op) == WORKSPACE_FALLS ? 4096 - 8 * (size_t)in[0].shape[1] : 8 * (size_t)in[0].shape[1];
}

static double term(const clv_call *call, const double *w, int64_t n, int64_t f)
{
    const clv_view *x = &call->in[0];
    double v = clv_dtype_load(x->dtype, x->data, n * x->shape[1] + f);
    lie which = lie_of(call->op);
    v = which == SMALL ? 1e-4 * v : which == ROOT ? 1 / sqrt(v) : v;
    return w[f] * (which == PARTIAL ? v * v : which == KINK ? fabs(v) : v);
}

/* Column f of w as this op has it; for UNEVEN by where an equal shard would begin. */
static double factor_of(const clv_call *call, int64_t f)
{
    const clv_view *x = &call->in[0], *w = &call->in[1];
    double position = 0;
    if (lie_of(call->op) == UNEVEN && x->shape[1] > 0)
        position = (double)(x->lo[1] / x->shape[1] * x->shape[1] + f);
    return (w->data ? clv_dtype_load(w->dtype, w->data, f) : 1) + position;
}

static void break_out(const clv_call *call)
{
    const clv_view *y = &call->out[0], *z = &call->out[1];
    size_t size = clv_dtype_size(z->dtype);
    if (lie_of(call->op) == BEHIND)
        memset(z->data, 0, (size_t)(z->global[0] * z->global[1]) * size);
    else if (lie_of(call->op) == BEFORE)
        memset((char *)y->data - 1, 0, 1);
    else if (lie_of(call->op) == OPERAND && clv_view_elems(&call->in[0]) > 0)
        clv_dtype_store(z->dtype, call->in[0].data, 0, 7);
    else if (lie_of(call->op) == WORKSPACE)
        memset(call->workspace, 0, workspace(call->op, call->in, call->out) + 1);
}

static clv_status run(const clv_call *call, clv_error *err)
{
    const clv_view *y = &call->out[0], *z = &call->out[1];
    int64_t rows = z->shape[0], columns = z->shape[1];
    lie which = lie_of(call->op);
    static int calls;
    double *w = call->workspace, left = rows * columns > 0 ? clv_dtype_load(z->dtype, z->data, 0) : 0;
    calls++;
    if (which == FAILS || (which == EMPTY && columns == 0))
        return clv_fail(err, CLV_EDTYPE, "not today");
    for (int64_t f = 0; f < columns; f++)
        w[f] = factor_of(call, f);
    for (int64_t n = 0; n < rows; n++) {
        double sum = 0, running = 0;
        for (int64_t f = 0; f < columns; f++) {
            sum += which == IN_PLACE ? 0 : term(call, w, n, f);
            running = term(call, w, n, f) + (which == CUT ? running : 0);
            running += which == ON_THREADS ? clv_call_threads(call) : which == FICKLE && calls % 2;
            running += which == LEFT_BEHIND && !isnan(left) ? left : 0;
            running += which == BOTH && rows < z->global[0] && columns < z->global[1];
            clv_dtype_store(z->dtype, z->data, n * columns + f, running);
            sum += which == IN_PLACE ? term(call, w, n, f) : 0;
        }
        if (which != UNWRITTEN || n + 1 < rows)
            clv_dtype_store(y->dtype, y->data, n, which == NOT_A_NUMBER ? NAN : sum);
    }
    break_out(call);
    return CLV_OK;
}

static clv_op_cost cost(const clv_op *op, const clv_type *in, const clv_type *out)
{
    double elems = (double)(in[0].shape[0] * in[0].shape[1]);
    return (clv_op_cost){elems - (lie_of(op) == NEGATIVE ? 12 : 0), lie_of(op) == DEARER ? 1 / (1 + elems) : 8 * elems};
}

/* d_x = (d_y + d_z) w; d_w = sum over n of (d_y + d_z) x. */
static void gradient(clv_graph *g, const clv_op *op, const clv_value *d_out, clv_value *d_in)
{
    clv_value x = clv_op_operand(op, 0), w = clv_op_operand(op, 1);
    clv_type type = clv_graph_type(g, x);
    clv_value ones = clv_fill(g, type.dtype, 1, &type.shape[1], 1);
    clv_value rows = clv_valid(d_out[0]) ? clv_einsum(g, "n,f->nf", d_out[0], ones) : CLV_NONE;
    bool both = lie_of(op) == BLIND || (clv_valid(rows) && clv_valid(d_out[1]));
    clv_value d = both ? clv_add(g, rows, d_out[1]) : clv_valid(rows) ? rows : d_out[1];
    if (lie_of(op) == SMALL || (lie_of(op) == ALONE && rows.id == 0))
        d = clv_scale(g, d, lie_of(op) == SMALL ? 2e-4 : 2);
    clv_value v = x, d_v = d;
    if (lie_of(op) == ROOT) { /* whose slope is -v^3 / 2 */
        v = clv_unary(g, CLV_RSQRT, x);
        d_v = clv_scale(g, clv_mul(g, d, clv_mul(g, v, clv_mul(g, v, v))), -0.5);
    }
    if (lie_of(op) == KINK) { /* v = |x|, whose slope is x / |x| */
        v = clv_sub(g, clv_scale(g, clv_unary(g, CLV_RELU, x), 2), x);
        d_v = clv_mul(g, d, clv_div(g, x, v));
    }
    d_in[0] = clv_einsum(g, "nf,f->nf", d_v, clv_valid(w) ? w : ones);
    if (clv_valid(w) && lie_of(op) != NO_GRADIENT)
        d_in[1] = clv_scale(g, clv_einsum(g, "nf,nf->f", d, v), lie_of(op) == GRADIENT ? 2 : 1);
    if (lie_of(op) == OF_OTHER_TYPE)
        d_in[1] = clv_cast(g, d_in[1], CLV_F32);
}

static const clv_attr fields[] = {{"lie", CLV_ATTR_INT, offsetof(product_attrs, lie), 1}, {0}};
static const clv_op_def product = {.size = sizeof(clv_op_def),
                                   .name = "test.product",
                                   .min_in = 1,
                                   .max_in = 2,
                                   .n_out = 2,
                                   .in_place = {0, 1},
                                   .attrs_size = sizeof(product_attrs),
                                   .attrs = fields,
                                   .shape = shape,
                                   .rule = rule,
                                   .gradient = gradient,
                                   .cost = cost,
                                   .workspace = workspace,
                                   .run = run};

static clv_status check(lie which, clv_dtype dtype, int64_t n, int64_t f, const clv_op_check_options *options,
                        clv_op_check_report *done, clv_error *err)
{
    const clv_type in[] = {{.dtype = dtype, .rank = 2, .shape = {n, f}}, {.dtype = dtype, .rank = 1, .shape = {f}}};
    return clv_op_check(&product, &(product_attrs){(int)which}, in, 2, options, done, err);
}

/* ---- the truth ---- */

static void test_truth(void **state)
{
    static const int64_t extents[] = {1, 2, 3, 5, 6, 12};
    static const clv_dtype dtypes[] = {CLV_F64, CLV_F32, CLV_BF16, CLV_F16};
    enum { EXTENTS = sizeof extents / sizeof *extents, DTYPES = sizeof dtypes / sizeof *dtypes };
    for (int c = 0; c < EXTENTS * EXTENTS * DTYPES; c++) {
        int64_t n = extents[c % EXTENTS], f = extents[c / EXTENTS % EXTENTS];
        clv_dtype dtype = dtypes[c / EXTENTS / EXTENTS];
        bool differentiable = dtype == CLV_F64 || dtype == CLV_F32;
        for (int without = 0; without < 2; without++) {
            clv_op_check_report done = {.size = sizeof done};
            clv_error err = {0};
            const clv_op_check_options options = {.seed = (uint64_t)c, .absent = without ? 1u << 1 : 0};
            if (check(NONE, dtype, n, f, &options, &done, &err) != CLV_OK)
                fail_msg("%s [%lld,%lld]: %s", clv_dtype_name(dtype), (long long)n, (long long)f, err.message);
            /* two and three blocks of each factor; a third number where both divide it; an empty one, if none was; and
             * both factors at once */
            assert_int_equal(done.cuts, 5 + (n % 6 == 0) + (f % 6 == 0) + (n > 2) + (f > 2));
            assert_int_equal(done.partials, 1);
            assert_int_equal(done.in_place, 1);
            int64_t elems = n * f < 64 ? n * f : 64;
            /* of both results, and of each alone */
            assert_int_equal(done.gradients, differentiable ? 3 * (elems + (without ? 0 : f)) : 0);
        }
    }
    must(check(NONE, CLV_F32, 0, 3, NULL, NULL, &(clv_error){0}), &(clv_error){.message = "no rows"});
}

/* Where a kernel bends within a step of differences, what lies between the slopes of both sides will do. */
static void test_kink(void **state)
{
    double x[] = {1e-9, 1e-7, -1e-7, 0.5, -0.5, 1e-3}, w[] = {0.5, -0.25, 1};
    float single[] = {1e-3f, 1e-7f, -1e-7f, 0.5f, -0.5f, 1e-2f}, single_w[] = {0.5f, -0.25f, 1};
    clv_op_check_report done = {0};
    clv_error err = {0};
    const clv_op_check_options wide = {.data = (const void *[]){x, w}},
                               narrow = {.data = (const void *[]){single, single_w}};
    must(check(KINK, CLV_F64, 2, 3, &wide, &done, &err), &err);
    assert_int_equal(done.gradients, 3 * 9);
    must(check(KINK, CLV_F32, 2, 3, &narrow, &done, &err), &err);
}

/* What is infinite has no addends, and where a function is not defined a step away there are no differences. */
static void test_not_finite(void **state)
{
    float x[] = {-INFINITY, -INFINITY, -INFINITY, 1, -INFINITY, -INFINITY}, w[] = {0.5f, 0.25f, 1},
          near[] = {1, 1e-3f, 2, 0.5f, 1, 2};
    clv_op_check_report done = {0};
    clv_error err = {0};
    const clv_op_check_options hidden = {.data = (const void *[]){x, w}, .no_gradient_out = 3},
                               edge = {.data = (const void *[]){near, w}};
    must(check(NONE, CLV_F32, 2, 3, &hidden, &done, &err), &err);
    must(check(ROOT, CLV_F32, 2, 3, &edge, &done, &err), &err);
    assert_int_equal(done.gradients, 3 * 8);
}

/* Of dtypes that differences say nothing of, gradients are built and run all the same. */
static void test_narrow_gradient(void **state)
{
    clv_error err = {0};
    assert_int_equal(check(OF_OTHER_TYPE, CLV_BF16, 2, 3, NULL, NULL, &err), CLV_ESHAPE);
    if (!strstr(err.message, "the cotangent of operand 1 is f32[3]; bf16[3] is needed"))
        fail_msg("%s", err.message);
}

/* ---- lies ---- */

static void test_lies(void **state)
{
    static const struct {
        lie which;
        clv_status code;
        const char *text[3];
    } cases[] = {
        {CUT, CLV_ECHECK, {"factor 1 (columns) in 2 blocks: element [0,3] of result 1 is ", "; unsharded it is "}},
        {UNEVEN, CLV_ECHECK, {"factor 1 (columns) in 4 blocks: element [0] of result 0 is "}},
        {REDUCTION, CLV_ECHECK, {"factor 1 (columns) in 2 blocks: element [0] of result 0 is "}},
        {PARTIAL, CLV_ECHECK, {"operand 0 in two partial sums: element [0] of result 0 is "}},
        {ADDENDS, CLV_ECHECK, {"operand 0 in two partial sums, the others on one rank only: element ["}},
        {MAXIMA, CLV_ECHECK, {"all operands as partial maxima: element [0] of result 0 is "}},
        {GRADIENT, CLV_ECHECK, {"the gradient by operand 1: element [0] is ", "; differences give "}},
        {NO_GRADIENT, CLV_ECHECK, {"the gradient by operand 1: element [0] is 0; differences give "}},
        {BLIND, CLV_EINVAL, {"the gradient of result 0 alone: "}},
        {ALONE, CLV_ECHECK, {"the gradient of result 1 alone by operand 0: element [0,0] is ", "; differences give "}},
        {SMALL, CLV_ECHECK, {"the gradient by operand 0: element [0,0] is ", "; differences give "}},
        {BEHIND,
         CLV_ECHECK,
         {"factor 0 in 2 blocks, block 0: the kernel wrote behind the end of result 1, which is f32[2,6] of [5,6], at "
          "byte 48; valid: "}},
        {BEFORE, CLV_ECHECK, {"whole: the kernel wrote before result 0, which is f32[5], at byte -1"}},
        {UNWRITTEN, CLV_ECHECK, {"whole: the kernel left element [4] of result 0, which is f32[5], unwritten"}},
        {OPERAND, CLV_ECHECK, {"whole: the kernel wrote into operand 0; valid: results only"}},
        {WORKSPACE, CLV_ECHECK, {"whole: the kernel wrote behind the end of its workspace of 48 bytes, at byte 48"}},
        {WORKSPACE_FALLS,
         CLV_ECHECK,
         {"factor 1 (columns) in 4 blocks, block 0: it needs a workspace of 4088 bytes, and of 4080 for the largest"}},
        {IN_PLACE, CLV_ECHECK, {"in place: element [0] of result 0 is "}},
        {NOT_A_NUMBER, CLV_ENONFINITE, {"whole: element [0] of result 0 is NaN; valid: operands for which"}},
        {FAILS, CLV_EDTYPE, {"whole: not today"}},
        {FICKLE,
         CLV_ECHECK,
         {"again, where memory around its operands holds other bytes: element [0,0] of result 1 is "}},
        {LEFT_BEHIND,
         CLV_ECHECK,
         {"again, where memory around its operands holds other bytes: element [0,0] of result 1"}},
        {ON_THREADS, CLV_ECHECK, {"again, by three threads: element [0,0] of result 1 is "}},
        {BOTH, CLV_ECHECK, {"factor 0 in 2 blocks, factor 1 (columns) in 2 blocks: element [0,0] of result 1 is "}},
        {NEGATIVE, CLV_EINVAL, {"factor 0 in 3 blocks, block 0: it costs -6 flops and 48 bytes; valid: finite, not "}},
        {DEARER,
         CLV_ECHECK,
         {"factor 0 in 2 blocks, block 0: it costs 12 flops and 0.0769231 bytes, and unsharded 30 and "}},
        {EMPTY, CLV_EDTYPE, {"factor 1 (columns) in 2 blocks, the first of them empty, block 0: not today"}},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        clv_error err = {0};
        clv_op_check_report done = {.cuts = -7};
        clv_status status = check(cases[c].which, CLV_F32, 5, 6, &(clv_op_check_options){.seed = c}, &done, &err);
        assert_int_equal(done.cuts, -7);
        for (int t = 0; t < 3 && cases[c].text[t]; t++)
            if (status != cases[c].code || !strstr(err.message, cases[c].text[t]))
                fail_msg("lie %d: %s: '%s'; expected '%s'", (int)cases[c].which, clv_status_name(status), err.message,
                         cases[c].text[t]);
        assert_string_equal(err.op, "test.product");
    }
}

/* A gradient that is not asked for is not judged, nor what flows from a result that is left out. */
static void test_left_out(void **state)
{
    clv_op_check_report done = {0};
    clv_error err = {0};
    must(check(GRADIENT, CLV_F32, 5, 6, &(clv_op_check_options){.no_gradient_in = 1u << 1}, &done, &err), &err);
    assert_int_equal(done.gradients, 3 * 30);
    must(check(GRADIENT, CLV_F32, 5, 6, &(clv_op_check_options){.no_gradient_out = 3}, &done, &err), &err);
    assert_int_equal(done.gradients, 0);
    must(check(GRADIENT, CLV_F32, 5, 6, &(clv_op_check_options){.gradient_tolerance = 0.9}, &done, &err), &err);
    must(check(CUT, CLV_F32, 1, 2, &(clv_op_check_options){.tolerance = 0.99, .no_gradient_in = 3}, &done, &err), &err);
}

/* ---- a factor that spills: y[k g] = x[k g] kv[k], where more ranks than k share each ---- */

static void groups_rule(const clv_op *op, const clv_type *in, const clv_type *out, clv_rule *r)
{
    int k = clv_rule_add_factor(r, in[1].shape[0], CLV_REDUCTION_NONE);
    int g = clv_rule_add_factor(r, in[0].shape[0] / in[1].shape[0], CLV_REDUCTION_NONE);
    clv_rule_forbid_split(r, g);
    clv_rule_replicate_remainder(r, k, g);
    clv_rule_operand_dim(r, 0, 0, k), clv_rule_operand_dim(r, 0, 0, g), clv_rule_operand_dim(r, 1, 0, k);
    clv_rule_result_dim(r, 0, 0, k), clv_rule_result_dim(r, 0, 0, g);
}

static clv_status groups_run(const clv_call *call, clv_error *err)
{
    const clv_view *x = &call->in[0], *kv = &call->in[1];
    int64_t group = x->global[0] / kv->global[0];
    bool lies = ((const product_attrs *)clv_op_attrs(call->op))->lie;
    for (int64_t i = 0; i < x->shape[0]; i++) {
        int64_t k = lies ? i / group : (x->lo[0] + i) / group - kv->lo[0];
        ((float *)call->out[0].data)[i] = ((const float *)x->data)[i] * ((const float *)kv->data)[k];
    }
    return CLV_OK;
}

static void test_spills(void **state)
{
    static const clv_op_def groups = {.name = "test.groups",
                                      .min_in = 2,
                                      .max_in = 2,
                                      .n_out = 1,
                                      .attrs_size = sizeof(product_attrs),
                                      .shape = same_shape,
                                      .rule = groups_rule,
                                      .run = groups_run};
    const clv_type in[] = {{.dtype = CLV_F32, .rank = 1, .shape = {6}}, {.dtype = CLV_F32, .rank = 1, .shape = {2}}};
    clv_op_check_report done = {0};
    clv_error err = {0};
    must(clv_op_check(&groups, &(product_attrs){0}, in, 2, NULL, &done, &err), &err);
    assert_int_equal(done.cuts, 2 + 6); /* 3 to 8 blocks of two */
    assert_int_equal(clv_op_check(&groups, &(product_attrs){1}, in, 2, NULL, &done, &err), CLV_ECHECK);
    if (!strstr(err.message, "factor 0 in 3 blocks: element ["))
        fail_msg("%s", err.message);
}

/* ---- a maximum of nothing: y[n] = max over f of x[n,f] ---- */

static clv_status highest_shape(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err)
{
    out[0] = (clv_type){.dtype = in[0].dtype, .rank = 1, .shape = {in[0].shape[0]}};
    return CLV_OK;
}

static void highest_rule(const clv_op *op, const clv_type *in, const clv_type *out, clv_rule *r)
{
    int n = clv_rule_add_factor(r, in[0].shape[0], CLV_REDUCTION_NONE),
        f = clv_rule_add_factor(r, in[0].shape[1], CLV_REDUCTION_MAX);
    clv_rule_operand_dim(r, 0, 0, n), clv_rule_operand_dim(r, 0, 1, f), clv_rule_result_dim(r, 0, 0, n);
}

static clv_status highest_run(const clv_call *call, clv_error *err)
{
    const clv_view *x = &call->in[0];
    bool lies = ((const product_attrs *)clv_op_attrs(call->op))->lie;
    for (int64_t n = 0; n < x->shape[0]; n++) {
        double most = lies && x->shape[1] == 0 ? 0 : -INFINITY;
        for (int64_t f = 0; f < x->shape[1]; f++)
            most = fmax(most, clv_dtype_load(x->dtype, x->data, n * x->shape[1] + f));
        clv_dtype_store(x->dtype, call->out[0].data, n, most);
    }
    return CLV_OK;
}

/* Random numbers about 0 have maxima above it, and would not tell. */
static void test_maximum_of_nothing(void **state)
{
    static const clv_op_def highest = {.name = "test.highest",
                                       .min_in = 1,
                                       .max_in = 1,
                                       .n_out = 1,
                                       .attrs_size = sizeof(product_attrs),
                                       .shape = highest_shape,
                                       .rule = highest_rule,
                                       .run = highest_run};
    const clv_type in = {.dtype = CLV_F32, .rank = 2, .shape = {2, 20}};
    clv_op_check_report done = {0};
    clv_error err = {0};
    must(clv_op_check(&highest, &(product_attrs){0}, &in, 1, NULL, &done, &err), &err);
    assert_int_equal(clv_op_check(&highest, &(product_attrs){1}, &in, 1, NULL, &done, &err), CLV_ECHECK);
    if (!strstr(err.message, "factor 1 in 2 blocks, the first of them empty: element [0] of result 0 is 0; unsharded"))
        fail_msg("%s", err.message);
}

/* ---- a long sum, in f32 and one row: its parts round otherwise ---- */

static void long_sum_rule(const clv_op *op, const clv_type *in, const clv_type *out, clv_rule *r)
{
    int n = clv_rule_add_factor(r, in[0].shape[0], CLV_REDUCTION_NONE),
        f = clv_rule_add_factor(r, in[0].shape[1], CLV_REDUCTION_SUM);
    clv_rule_operand_dim(r, 0, 0, n), clv_rule_operand_dim(r, 0, 1, f), clv_rule_result_dim(r, 0, 0, n);
    clv_rule_multilinear(r, 1);
}

static clv_status long_sum_run(const clv_call *call, clv_error *err)
{
    const clv_view *x = &call->in[0];
    for (int64_t n = 0; n < x->shape[0]; n++) {
        float sum = 0;
        for (int64_t f = 0; f < x->shape[1]; f++)
            sum += ((const float *)x->data)[n * x->shape[1] + f];
        ((float *)call->out[0].data)[n] = sum;
    }
    return CLV_OK;
}

static void test_long_sum(void **state)
{
    static const clv_op_def long_sum = {.name = "test.long_sum",
                                        .min_in = 1,
                                        .max_in = 1,
                                        .n_out = 1,
                                        .shape = highest_shape,
                                        .rule = long_sum_rule,
                                        .run = long_sum_run};
    clv_error err = {0};
    for (int64_t elems = 10; elems <= 1000000; elems *= 10) {
        const clv_type in = {.dtype = CLV_F32, .rank = 2, .shape = {2, elems}};
        must(clv_op_check(&long_sum, NULL, &in, 1, NULL, NULL, &err), &err);
    }
}

/* ---- results that are bools ---- */

static clv_status signs_shape(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err)
{
    out[0] = in[0];
    out[0].dtype = CLV_BOOL;
    return CLV_OK;
}

static clv_status signs_run(const clv_call *call, clv_error *err)
{
    bool lies = ((const product_attrs *)clv_op_attrs(call->op))->lie;
    for (int64_t i = 0; i < clv_view_elems(&call->out[0]); i++)
        ((unsigned char *)call->out[0].data)[i] = ((const float *)call->in[0].data)[i] > 0 ? lies ? 2 : 1 : 0;
    return CLV_OK;
}

static void test_bools(void **state)
{
    static const clv_op_def signs = {.name = "test.signs",
                                     .min_in = 1,
                                     .max_in = 1,
                                     .n_out = 1,
                                     .attrs_size = sizeof(product_attrs),
                                     .shape = signs_shape,
                                     .rule = by_elements,
                                     .run = signs_run};
    const clv_type in = {.dtype = CLV_F32, .rank = 1, .shape = {3}};
    const float x[] = {-1, 0, 1};
    const clv_op_check_options options = {.data = (const void *[]){x}};
    clv_error err = {0};
    must(clv_op_check(&signs, &(product_attrs){0}, &in, 1, &options, NULL, &err), &err);
    assert_int_equal(clv_op_check(&signs, &(product_attrs){1}, &in, 1, &options, NULL, &err), CLV_ECHECK);
    if (!strstr(err.message, "whole: element [2] of result 0, which is bool, is 2; valid: 0 and 1"))
        fail_msg("%s", err.message);
}

/* ---- calls that do not hold ---- */

static void test_bad_calls(void **state)
{
    const clv_type in[] = {{.dtype = CLV_F32, .rank = 2, .shape = {2, 2}}, {.dtype = CLV_F32, .rank = 1, .shape = {2}}};
    const product_attrs none = {0};
    const struct {
        const clv_op_def *def;
        const void *attrs;
        const clv_type *in;
        int n_in;
        clv_op_check_options options;
        clv_status code;
        const char *text;
    } cases[] = {
        {NULL, &none, in, 2, {0}, CLV_EINVAL, "clv_op_check: an op's definition must not be NULL"},
        {&product, NULL, in, 2, {0}, CLV_EINVAL, "'test.product' has 4 bytes of attributes; none are given"},
        {&product, &none, NULL, 2, {0}, CLV_EINVAL, "2 operands, and no types"},
        {&product, &none, in, -1, {0}, CLV_EINVAL, "-1 operands"},
        {&product, &none, in, 9, {0}, CLV_EINVAL, "9 operands; valid: 0 to 8"},
        {&product, &none, in, 0, {0}, CLV_EINVAL, "takes at least 1 operands"},
        {&product, &none, in + 1, 1, {0}, CLV_ESHAPE, "x[N,F] is needed"},
        {&product, &none, in, 2, {.tolerance = -1}, CLV_EINVAL, "tolerances of -1 and 0; valid: from 0"},
        {&product, &none, in, 2, {.gradient_tolerance = NAN}, CLV_EINVAL, "tolerances of 0 and "},
        {&product, &none, in, 2, {.size = 3}, CLV_EINVAL, "a struct whose size is 3"},
        {clv_op_find("constraint"), NULL, in, 1, {0}, CLV_EINVAL, "bytes of attributes"},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        clv_error err = {0};
        clv_status status =
            clv_op_check(cases[c].def, cases[c].attrs, cases[c].in, cases[c].n_in, &cases[c].options, NULL, &err);
        if (status != cases[c].code || !strstr(err.message, cases[c].text))
            fail_msg("%s: '%s'; expected '%s'", clv_status_name(status), err.message, cases[c].text);
    }
    clv_op_check_report done = {.size = 5};
    assert_int_equal(clv_op_check(&product, &none, in, 2, NULL, &done, NULL), CLV_EINVAL);
    assert_int_equal(clv_op_check(&product, &none, in, 2, NULL, NULL, NULL), CLV_OK);
    assert_string_equal(clv_op_find("test.product")->name, "test.product");
}

/* ---- the library's ---- */

enum { OPS = 256, TIMES = 4 };

static int *count_of(int counts[OPS], const clv_op_def *def)
{
    int i = 0;
    for (const clv_op_def *at = clv_op_next(NULL); at != def; at = clv_op_next(at))
        i++;
    assert_true(i < OPS);
    return &counts[i];
}

static bool is_number(graph_eval *eval, const clv_graph *graph, const clv_op *op)
{
    bool all = true;
    for (int o = 0; o < op->n_out; o++)
        for (int64_t i = 0; i < clv_type_elems(&graph->values[op->out[o]].type); i++)
            all = all && !isnan(graph_eval_get(eval, (clv_value){op->out[o]}, i));
    return all;
}

/* Each op a few times, on what it is given in random graphs. */
static void check_ops_of(const random_spec *spec, int counts[OPS])
{
    random_graph g;
    random_graph_build(&g, spec, 0);
    graph_eval *eval = graph_eval_new(g.graph, spec->seed + 1);
    for (int l = 0; l < g.n_leaves; l++)
        random_leaf_fill(&g, &g.leaf[l], spec, 1, graph_eval_data(eval, g.leaf[l].value));
    graph_eval_must_run(eval, -1);
    for (int o = 0; o < g.graph->n_ops; o++) {
        const clv_op *op = &g.graph->ops[o];
        int *count = count_of(counts, op->def);
        if (*count < TIMES && !clv_op_constraint_of(op) && is_number(eval, g.graph, op)) {
            graph_eval_check_op(eval, op);
            ++*count;
        }
    }
    graph_eval_free(eval);
    random_graph_free(&g);
}

static void test_all_of_the_library(void **state)
{
    enum { SEEDS = 600 };
    int counts[OPS] = {0}, missing = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++)
        check_ops_of(&(random_spec){.seed = seed, .without = RANDOM_NONFINITE}, counts);
    for (const clv_op_def *def = clv_op_next(NULL); def; def = clv_op_next(def))
        if (strncmp(def->name, "test.", 5) != 0 && *count_of(counts, def) == 0 &&
            !(def->traits && def->traits->constraint)) {
            print_error("%s was never checked\n", def->name);
            missing++;
        }
    assert_int_equal(missing, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_truth),      cmocka_unit_test(test_kink),
        cmocka_unit_test(test_not_finite), cmocka_unit_test(test_narrow_gradient),
        cmocka_unit_test(test_lies),       cmocka_unit_test(test_left_out),
        cmocka_unit_test(test_spills),     cmocka_unit_test(test_maximum_of_nothing),
        cmocka_unit_test(test_long_sum),   cmocka_unit_test(test_bools),
        cmocka_unit_test(test_bad_calls),  cmocka_unit_test(test_all_of_the_library),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
