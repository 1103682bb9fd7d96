/* einsum.c - einsum of two operands (dot_general): sharding rule by letters, lowered to one strided batched GEMM.
 *
 *   out[...] = sum over the contracted letters of a[...] * b[...]
 *
 * A letter in both operands and the result is batch, in one operand and the result a row or column, in both operands
 * only contracted.      factors: one a letter; contracted letters reduce(sum), the others pass; multilinear
 * gradient: d_a = einsum(d_out, b), d_b = einsum(a, d_out), by swapping subscripts.
 *
 * A rank computes one (strided batch) matrix product. Operands whose letters are not grouped as batch, rows, columns
 * and contracted are transposed into the workspace first, and such a result is transposed out of it. This is decided
 * from the whole shapes, so that all ranks use the workspace alike, whatever their shards.
 */
#include <stdio.h>

#include "kernels/cpu/gemm/gemm.h"
#include "kernels/cpu/transpose_kernel.h"
#include "ops/builtin_ops.h"

enum { LETTERS = CLV_MAX_RANK + 1, ALIGN = 64 };

typedef struct einsum_attrs {
    char a[LETTERS], b[LETTERS], c[LETTERS];
} einsum_attrs;

static const clv_attr attr_table[] = {{"a", CLV_ATTR_TEXT, offsetof(einsum_attrs, a), LETTERS},
                                      {"b", CLV_ATTR_TEXT, offsetof(einsum_attrs, b), LETTERS},
                                      {"c", CLV_ATTR_TEXT, offsetof(einsum_attrs, c), LETTERS},
                                      {0}};

static bool has(const char *letters, char letter)
{
    return strchr(letters, letter) != NULL;
}

/* ---- shape and rule ---- */

static clv_status check_letters(const einsum_attrs *e, clv_error *err)
{
    const char *lists[] = {e->a, e->b, e->c};
    for (int l = 0; l < 3; l++)
        for (const char *p = lists[l]; *p; p++)
            if (has(p + 1, *p))
                return clv_fail(err, CLV_EINVAL, "the letter '%c' stands twice in '%s'", *p, lists[l]);
    for (int l = 0; l < 2; l++)
        for (const char *p = lists[l]; *p; p++)
            if (!has(lists[1 - l], *p) && !has(e->c, *p))
                return clv_fail(err, CLV_EINVAL, "the letter '%c' stands in one operand alone; sum it with clv_reduce",
                                *p);
    for (const char *p = e->c; *p; p++)
        if (!has(e->a, *p) && !has(e->b, *p))
            return clv_fail(err, CLV_EINVAL, "the result's letter '%c' stands in no operand", *p);
    return CLV_OK;
}

/* Operands: two, and optionally a tensor that the product is added to. */
enum { TO = 2, OPERANDS };

static bool accumulates(const clv_op *op)
{
    return clv_op_operand_count(op) > TO;
}

/* The result has the dtype of `to`, which may be f32 if operands are 16-bit. */
static clv_status check_accumulator(clv_type *out, const clv_type *to, clv_error *err)
{
    CLV_TRY(clv_check_same_shape("the accumulator", to, "the product", out, err));
    if (to->dtype != out->dtype && (to->dtype != CLV_F32 || clv_dtype_size(out->dtype) > 2))
        return clv_fail(err, CLV_EDTYPE,
                        "the accumulator is %s, operands are %s; %s is needed, or f32 for 16-bit operands",
                        clv_dtype_name(to->dtype), clv_dtype_name(out->dtype), clv_dtype_name(out->dtype));
    out->dtype = to->dtype;
    return CLV_OK;
}

static clv_status einsum_shape(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err)
{
    const einsum_attrs *e = op->attrs;
    const char *lists[] = {e->a, e->b};
    char text[2][CLV_TYPE_TEXT];
    CLV_TRY(check_letters(e, err));
    for (int i = 0; i < 2; i++) {
        clv_type_print(text[i], sizeof text[i], &in[i]);
        if ((int)strlen(lists[i]) != in[i].rank)
            return clv_fail(err, CLV_ESHAPE, "'%s' names %zu dimensions, operand %d is %s", lists[i], strlen(lists[i]),
                            i, text[i]);
    }
    if (in[0].dtype != in[1].dtype || !clv_dtype_is_float(in[0].dtype))
        return clv_fail(err, CLV_EDTYPE, "operands are %s and %s; they must be of one float dtype", text[0], text[1]);
    *out = (clv_type){.dtype = in[0].dtype, .rank = (int)strlen(e->c)};
    for (const char *p = e->a; *p; p++)
        if (has(e->b, *p) && in[0].shape[p - e->a] != in[1].shape[strchr(e->b, *p) - e->b])
            return clv_fail(err, CLV_ESHAPE, "'%c' has different sizes in %s (%s) and %s (%s)", *p, text[0], e->a,
                            text[1], e->b);
    for (int d = 0; d < out->rank; d++)
        out->shape[d] =
            has(e->a, e->c[d]) ? in[0].shape[strchr(e->a, e->c[d]) - e->a] : in[1].shape[strchr(e->b, e->c[d]) - e->b];
    return accumulates(op) ? check_accumulator(out, &in[TO], err) : CLV_OK;
}

/* A letter as a static string. */
static const char *letter_name(char letter)
{
    static const char names[] = "a\0b\0c\0d\0e\0f\0g\0h\0i\0j\0k\0l\0m\0n\0o\0p\0q\0r\0s\0t\0u\0v\0w\0x\0y\0z\0"
                                "A\0B\0C\0D\0E\0F\0G\0H\0I\0J\0K\0L\0M\0N\0O\0P\0Q\0R\0S\0T\0U\0V\0W\0X\0Y\0Z";
    return names + 2 * (letter >= 'a' ? letter - 'a' : 26 + letter - 'A');
}

static void einsum_rule(const clv_op *op, const clv_type *in, const clv_type *out, clv_rule *rule)
{
    const einsum_attrs *e = op->attrs;
    for (int d = 0; d < out->rank; d++) {
        int factor = clv_rule_add_factor(rule, out->shape[d], CLV_REDUCTION_NONE);
        clv_rule_name_factor(rule, factor, letter_name(e->c[d]));
        clv_rule_result_dim(rule, 0, d, factor);
        if (accumulates(op))
            clv_rule_operand_dim(rule, TO, d, factor);
        if (has(e->a, e->c[d]))
            clv_rule_operand_dim(rule, 0, (int)(strchr(e->a, e->c[d]) - e->a), factor);
        if (has(e->b, e->c[d]))
            clv_rule_operand_dim(rule, 1, (int)(strchr(e->b, e->c[d]) - e->b), factor);
    }
    for (int d = 0; d < in[0].rank; d++) {
        if (has(e->c, e->a[d]))
            continue;
        int factor = clv_rule_add_factor(rule, in[0].shape[d], CLV_REDUCTION_SUM);
        clv_rule_name_factor(rule, factor, letter_name(e->a[d]));
        if (accumulates(op)) /* each rank would add `to` otherwise */
            clv_rule_forbid_split(rule, factor);
        clv_rule_operand_dim(rule, 0, d, factor);
        clv_rule_operand_dim(rule, 1, (int)(strchr(e->b, e->a[d]) - e->b), factor);
    }
    if (accumulates(op))
        clv_rule_additive(rule, 1u << 0 | 1u << TO);
    else
        clv_rule_multilinear(rule, 1u << 0 | 1u << 1);
}

/* ---- from letters to a matrix product ---- */

/* Letters of an operand or result, with local extents. Letters of global extent 1 are left out, as they do not affect
 * the order of elements. */
typedef struct labelled_operand {
    char letter[LETTERS];
    int64_t extent[CLV_MAX_RANK];
} labelled_operand;

/* C [batch, rows, cols] = X [batch, rows, k] Y [batch, k, cols]; X is the operand that has the rows of the result. */
typedef struct product {
    bool swapped; /* X is b */
    labelled_operand x, y, out;
    char batch[LETTERS], rows[LETTERS], cols[LETTERS], k[LETTERS];
    bool pack_x, pack_y, pack_out; /* transposed through the workspace, in this order */
    bool trans_x, trans_y;
    int64_t out_elems;  /* elements of the result */
    bool empty;         /* an operand is empty: the product is 0 */
    clv_gemm_args gemm; /* without pointers */
} product;

static labelled_operand letter_view(const char *letters, const clv_view *view)
{
    labelled_operand l = {0};
    int n = 0;
    for (int d = 0; letters[d]; d++)
        if (view->global[d] != 1) {
            l.letter[n] = letters[d];
            l.extent[n++] = view->shape[d];
        }
    return l;
}

static int64_t extent_of(const labelled_operand *l, const char *letters)
{
    int64_t elems = 1;
    for (; *letters; letters++)
        elems *= l->extent[strchr(l->letter, *letters) - l->letter];
    return elems;
}

/* Selects the letters of `from` that are in (in_x) or not in x, and in (in_y) or not in y. */
static void select_letters(char *out, const char *from, const char *x, bool in_x, const char *y, bool in_y)
{
    int n = 0;
    for (; *from; from++)
        if (has(x, *from) == in_x && has(y, *from) == in_y)
            out[n++] = *from;
    out[n] = '\0';
}

static bool is_order(const char *letters, const char *first, const char *second, const char *third)
{
    size_t a = strlen(first), b = strlen(second);
    return strncmp(letters, first, a) == 0 && strncmp(letters + a, second, b) == 0 &&
           strcmp(letters + a + b, third) == 0;
}

/* Decides which operands must be packed if the contracted letters have the order k. */
static void set_order(product *p, const char *k)
{
    strcpy(p->k, k);
    p->trans_x = !is_order(p->x.letter, p->batch, p->rows, k) && is_order(p->x.letter, p->batch, k, p->rows);
    p->pack_x = !p->trans_x && !is_order(p->x.letter, p->batch, p->rows, k);
    p->trans_y = !is_order(p->y.letter, p->batch, k, p->cols) && is_order(p->y.letter, p->batch, p->cols, k);
    p->pack_y = !p->trans_y && !is_order(p->y.letter, p->batch, k, p->cols);
}

static product plan_product(const einsum_attrs *e, const clv_view *a, const clv_view *b, const clv_view *c)
{
    product p = {.x = letter_view(e->a, a), .y = letter_view(e->b, b), .out = letter_view(e->c, c)};
    select_letters(p.batch, p.out.letter, p.x.letter, true, p.y.letter, true);
    select_letters(p.rows, p.out.letter, p.x.letter, true, p.y.letter, false);
    select_letters(p.cols, p.out.letter, p.x.letter, false, p.y.letter, true);
    if (!is_order(p.out.letter, p.batch, p.rows, p.cols) && is_order(p.out.letter, p.batch, p.cols, p.rows)) {
        labelled_operand x = p.x;
        char rows[LETTERS];
        p.swapped = true;
        p.x = p.y;
        p.y = x;
        strcpy(rows, p.rows);
        strcpy(p.rows, p.cols);
        strcpy(p.cols, rows);
    }
    p.pack_out = !is_order(p.out.letter, p.batch, p.rows, p.cols);
    char by_x[LETTERS], by_y[LETTERS];
    select_letters(by_x, p.x.letter, p.y.letter, true, p.out.letter, false);
    select_letters(by_y, p.y.letter, p.x.letter, true, p.out.letter, false);
    set_order(&p, by_y);
    product other = p;
    set_order(&other, by_x);
    return p.pack_x + p.pack_y <= other.pack_x + other.pack_y ? p : other;
}

static void fill_gemm(product *p, clv_dtype dtype, clv_dtype c_dtype)
{
    clv_gemm_args *g = &p->gemm;
    *g = (clv_gemm_args){.m = extent_of(&p->out, p->rows),
                         .n = extent_of(&p->out, p->cols),
                         .k = extent_of(&p->x, p->k),
                         .batch = extent_of(&p->out, p->batch),
                         .trans_a = p->trans_x,
                         .trans_b = p->trans_y,
                         .dtype = dtype,
                         .c_dtype = c_dtype};
    g->lda = p->trans_x ? g->m : g->k;
    g->ldb = p->trans_y ? g->k : g->n;
    g->ldc = g->n;
    g->stride_a = g->m * g->k;
    g->stride_b = g->k * g->n;
    g->stride_c = g->m * g->n;
}

static size_t aligned(int64_t elems, clv_dtype dtype)
{
    return ((size_t)elems * clv_dtype_size(dtype) + ALIGN - 1) / ALIGN * ALIGN;
}

static void einsum_precompute(void *precomputed, const clv_op *op, const clv_view *in, const clv_view *out)
{
    product *p = precomputed;
    *p = plan_product(op->attrs, &in[0], &in[1], &out[0]);
    p->out_elems = clv_view_elems(&out[0]);
    p->empty = clv_view_elems(&in[0]) == 0 || clv_view_elems(&in[1]) == 0;
    fill_gemm(p, in[0].dtype, out[0].dtype);
    p->gemm.accumulate = accumulates(op);
}

static size_t einsum_workspace(const clv_op *op, const clv_view *in, const clv_view *out)
{
    product p;
    einsum_precompute(&p, op, in, out);
    const clv_gemm_args *g = &p.gemm;
    return (clv_gemm_workspace(g) + ALIGN - 1) / ALIGN * ALIGN +
           (p.pack_x ? aligned(g->batch * g->m * g->k, in[0].dtype) : 0) +
           (p.pack_y ? aligned(g->batch * g->k * g->n, in[0].dtype) : 0) +
           (p.pack_out ? aligned(g->batch * g->m * g->n, out[0].dtype) : 0);
}

/* Transposes `in`, with the letters of `from`, to the order of letters `to`. */
static void rearrange(void *out, const char *to, const void *in, const labelled_operand *from, clv_dtype dtype)
{
    int perm[CLV_MAX_RANK], rank = (int)strlen(to);
    for (int d = 0; d < rank; d++)
        perm[d] = (int)(strchr(from->letter, to[d]) - from->letter);
    clv_transpose_tensor(clv_dtype_size(dtype), out, in, rank, from->extent, perm);
}

/* Concatenates three groups of letters. */
static void join(char *out, const char *a, const char *b, const char *c)
{
    snprintf(out, 3 * LETTERS, "%s%s%s", a, b, c);
}

/* The result in the order of letters that it has in the workspace. */
static labelled_operand packed_result(const product *p, const char *letters)
{
    labelled_operand l = {0};
    strcpy(l.letter, letters);
    for (int d = 0; letters[d]; d++)
        l.extent[d] = p->out.extent[strchr(p->out.letter, letters[d]) - p->out.letter];
    return l;
}

/* Packs operands into the workspace, multiplies, and unpacks the result. */
static clv_status run_packed(const product *p, clv_gemm_args *g, void *c, clv_error *err)
{
    char *next = (char *)g->workspace + (clv_gemm_workspace(g) + ALIGN - 1) / ALIGN * ALIGN;
    char order[3 * LETTERS];
    if (p->pack_x) {
        join(order, p->batch, p->rows, p->k);
        rearrange(next, order, g->a, &p->x, g->dtype);
        g->a = next;
        next += aligned(g->batch * g->m * g->k, g->dtype);
    }
    if (p->pack_y) {
        join(order, p->batch, p->k, p->cols);
        rearrange(next, order, g->b, &p->y, g->dtype);
        g->b = next;
        next += aligned(g->batch * g->k * g->n, g->dtype);
    }
    if (!p->pack_out)
        return clv_gemm(g, err);
    g->c = next;
    join(order, p->batch, p->rows, p->cols);
    if (g->accumulate)
        rearrange(next, order, c, &p->out, g->c_dtype);
    CLV_TRY(clv_gemm(g, err));
    labelled_operand packed = packed_result(p, order);
    rearrange(c, p->out.letter, next, &packed, g->c_dtype);
    return CLV_OK;
}

static clv_status einsum_run_precomputed(const void *precomputed, const clv_call *call, clv_error *err)
{
    const product *p = precomputed;
    const clv_view *x = &call->in[p->swapped], *y = &call->in[!p->swapped], *c = &call->out[0];
    if (p->out_elems == 0)
        return CLV_OK;
    if (p->gemm.accumulate)
        clv_view_copy_unless_aliased(c, &call->in[TO]);
    else if (p->empty)
        memset(c->data, 0, (size_t)p->out_elems * clv_dtype_size(c->dtype));
    if (p->empty)
        return CLV_OK;
    clv_gemm_args g = p->gemm;
    g.workspace = call->workspace;
    g.work = clv_call_task_pool_member(call);
    g.a = x->data;
    g.b = y->data;
    g.c = c->data;
    return p->pack_x || p->pack_y || p->pack_out ? run_packed(p, &g, c->data, err) : clv_gemm(&g, err);
}

static clv_status einsum_run(const clv_call *call, clv_error *err)
{
    product p;
    einsum_precompute(&p, call->op, call->in, call->out);
    return einsum_run_precomputed(&p, call, err);
}

static clv_op_cost einsum_cost(const clv_op *op, const clv_type *in, const clv_type *out)
{
    const einsum_attrs *e = op->attrs;
    double flops = 2;
    for (int d = 0; d < out->rank; d++)
        flops *= (double)out->shape[d];
    for (int d = 0; d < in[0].rank; d++)
        flops *= has(e->c, e->a[d]) ? 1.0 : (double)in[0].shape[d];
    return (clv_op_cost){.flops = flops,
                         .bytes = clv_type_bytes(&in[0]) + clv_type_bytes(&in[1]) +
                                  clv_type_bytes(out) * (accumulates(op) ? 2 : 1)};
}

/* ---- gradient and builder ---- */

static clv_value product_of(clv_graph *graph, const char *a, const char *b, const char *c, clv_value x, clv_value y)
{
    char subscripts[3 * LETTERS + 4];
    snprintf(subscripts, sizeof subscripts, "%s,%s->%s", a, b, c);
    return clv_einsum(graph, subscripts, x, y);
}

static void einsum_gradient(clv_graph *graph, const clv_op *op, const clv_value *d_out, clv_value *d_in)
{
    const einsum_attrs *e = op->attrs;
    clv_value d = clv_cast(graph, d_out[0], clv_graph_type(graph, clv_op_operand(op, 0)).dtype);
    d_in[0] = product_of(graph, e->c, e->b, e->a, d, clv_op_operand(op, 1));
    d_in[1] = product_of(graph, e->a, e->c, e->b, clv_op_operand(op, 0), d);
    if (accumulates(op))
        d_in[TO] = d_out[0];
}

/* Copies letters up to `stop`; NULL if there is any other character, or if there are too many letters. */
static const char *read_letters(char *out, const char *text, char stop)
{
    int n = 0;
    for (; *text && *text != stop; text++) {
        bool letter = (*text >= 'a' && *text <= 'z') || (*text >= 'A' && *text <= 'Z');
        if (!letter || n == CLV_MAX_RANK)
            return NULL;
        out[n++] = *text;
    }
    return *text == stop ? text : NULL;
}

/* to: CLV_NONE: no accumulator. call: name for messages. */
static clv_value build(clv_graph *graph, const char *subscripts, clv_value a, clv_value b, clv_value to,
                       const char *call)
{
    if (!clv_graph_require(graph, subscripts != NULL, call, "subscripts"))
        return CLV_NONE;
    einsum_attrs e;
    memset(&e, 0, sizeof e);
    const char *p = read_letters(e.a, subscripts, ',');
    p = p ? read_letters(e.b, p + 1, '-') : NULL;
    p = p && p[1] == '>' ? read_letters(e.c, p + 2, '\0') : NULL;
    if (!p)
        return clv_graph_fail(graph, CLV_ESYNTAX,
                              "%sdot_general: subscripts '%s'; valid are two lists of at most %d letters and a result, "
                              "e.g. 'ik,kj->ij'",
                              graph->scope, subscripts, CLV_MAX_RANK);
    clv_value in[] = {a, b, to};
    return clv_graph_emit_one(graph, &clv_op_dot_general, &e, in, clv_valid(to) ? OPERANDS : TO);
}

clv_value clv_einsum(clv_graph *graph, const char *subscripts, clv_value a, clv_value b)
{
    return build(graph, subscripts, a, b, CLV_NONE, __func__);
}

clv_value clv_einsum_accumulate(clv_graph *graph, const char *subscripts, clv_value a, clv_value b, clv_value to,
                                clv_dtype dtype)
{
    clv_value result = build(graph, subscripts, a, b, to, __func__);
    if (!clv_valid(result))
        return result;
    clv_type *type = &graph->values[result.id].type;
    if (dtype == CLV_F32 && !clv_valid(to) && clv_dtype_size(type->dtype) == 2)
        type->dtype = CLV_F32; /* which the kernel goes by (clv_op_traits.accepts_f32_results) */
    if (type->dtype != dtype)
        return clv_graph_fail(graph, CLV_EDTYPE,
                              "%s: dtype %s; the product is %s, valid: that, or f32 for 16-bit operands", __func__,
                              clv_dtype_name(dtype), clv_dtype_name(type->dtype));
    return result;
}

const clv_op_def clv_op_dot_general = {
    .name = "dot_general",
    .display_name = "the product",
    CLV_ARITY(TO, OPERANDS, 1),
    .in_place = {1 + TO},
    CLV_ATTRS(einsum_attrs, attr_table),
    .shape = einsum_shape,
    .rule = einsum_rule,
    .gradient = einsum_gradient,
    .cost = einsum_cost,
    .workspace = einsum_workspace,
    .run = einsum_run,
    .counts_flops = true,
    .traits = &(const clv_op_traits){.is_rowwise = true,
                                     .is_product = true,
                                     .accepts_f32_results = true,
                                     .precomputed_bytes = sizeof(product),
                                     .precompute = einsum_precompute,
                                     .run_precomputed = einsum_run_precomputed},
};
