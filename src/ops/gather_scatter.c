/* gather_scatter.c - windows of a tensor at indices, and updates of them, by StableHLO's dimension numbers.
 *
 *   gather:   out[batch.., window..] = x[start(indices[batch..]) + window]           starts are moved inside x
 *   scatter:  out = x, and for each update in row-major order:
 *             out[start(indices[batch..]) + window] f= updates[batch.., window..]    windows outside x are left out
 *
 * factors: dimensions of x that windows have whole and that no index starts in; batch dimensions; of a gather also the
 * other dimensions of indices. A gather is linear in x, an adding scatter is linear in x and updates
 * together. No gradient. Embeddings have ops of their own (embedding.c), which split the table by vocabulary.
 */
#include "ops/builtin_ops.h"

/* clv_index_dims by fields, as attributes are compared by bytes. */
typedef struct index_attrs {
    int index_dim, n_starts, kind; /* kind: clv_scatter_kind */
    int start[CLV_MAX_RANK], batch[CLV_MAX_RANK];
    bool window[CLV_MAX_RANK], dropped[CLV_MAX_RANK];
    int64_t sizes[CLV_MAX_RANK];
} index_attrs;

static const clv_attr index_fields[] = {CLV_FIELD(INT, index_attrs, index_dim),
                                        CLV_FIELD(INT, index_attrs, n_starts),
                                        CLV_FIELD(INT, index_attrs, kind),
                                        {"start", CLV_ATTR_INT, offsetof(index_attrs, start), CLV_MAX_RANK},
                                        {"batch", CLV_ATTR_INT, offsetof(index_attrs, batch), CLV_MAX_RANK},
                                        {"window", CLV_ATTR_BOOL, offsetof(index_attrs, window), CLV_MAX_RANK},
                                        {"dropped", CLV_ATTR_BOOL, offsetof(index_attrs, dropped), CLV_MAX_RANK},
                                        {"sizes", CLV_ATTR_INT64, offsetof(index_attrs, sizes), CLV_MAX_RANK},
                                        {0}};

#define KIND_ROW(kind, value) CLV_ENUM_NAME(kind),
static const clv_enum_name kinds[] = {CLV_SCATTER_KINDS(KIND_ROW){0}};

/* ---- which dimension is which ---- */

/* Dimension d of x is among the dimensions of windows. */
static bool in_window(const index_attrs *a, int d)
{
    return !a->dropped[d] && a->batch[d] == 0;
}

static bool has_start(const index_attrs *a, int d)
{
    for (int i = 0; i < a->n_starts; i++)
        if (a->start[i] == d)
            return true;
    return false;
}

/* The dimensions of the windowed tensor (a gather's result, a scatter's updates). Each is that of x, or that of
 * indices, and -1 the other. */
typedef struct windowed {
    int rank;
    int of_x[2 * CLV_MAX_RANK], of_indices[2 * CLV_MAX_RANK];
} windowed;

static windowed windowed_dims(const index_attrs *a, const clv_type *x, const clv_type *indices)
{
    windowed w = {0};
    int next_x = 0, next_index = 0, windows = 0;
    for (int d = 0; d < x->rank; d++)
        windows += in_window(a, d);
    w.rank = windows + indices->rank - (a->index_dim < indices->rank);
    for (int d = 0; d < w.rank; d++) {
        bool is_window = d < CLV_MAX_RANK && a->window[d];
        w.of_x[d] = w.of_indices[d] = -1;
        while (is_window && next_x < x->rank && !in_window(a, next_x))
            next_x++;
        while (!is_window && next_index == a->index_dim)
            next_index++;
        if (is_window)
            w.of_x[d] = next_x < x->rank ? next_x++ : -1;
        else
            w.of_indices[d] = next_index < indices->rank ? next_index++ : -1;
    }
    return w;
}

static bool in_range(int value, int end)
{
    return value >= 0 && value < end;
}

/* Whether the dimension numbers fit; the windowed tensor's dimensions are in *w. */
static clv_status check_dims(windowed *w, const index_attrs *a, const clv_type *x, const clv_type *indices,
                             clv_error *err)
{
    int64_t components = a->index_dim < indices->rank ? indices->shape[a->index_dim] : 1;
    int windows = 0, wanted = 0;
    bool fits = components == a->n_starts;
    for (int i = 0; fits && i < a->n_starts; i++)
        fits = in_range(a->start[i], x->rank);
    for (int d = 0; fits && d < x->rank; d++) {
        int b = a->batch[d] - 1;
        fits =
            a->sizes[d] >= 0 && a->sizes[d] <= x->shape[d] && (in_window(a, d) || a->sizes[d] == 1) &&
            (a->batch[d] == 0 || (in_range(b, indices->rank) && b != a->index_dim && indices->shape[b] == x->shape[d]));
        wanted += in_window(a, d);
    }
    *w = windowed_dims(a, x, indices);
    for (int d = 0; fits && d < w->rank; d++)
        fits = (w->of_x[d] < 0) != (w->of_indices[d] < 0);
    for (int d = 0; d < CLV_MAX_RANK; d++)
        windows += a->window[d];
    if (fits && w->rank <= CLV_MAX_RANK && windows == wanted)
        return CLV_OK;
    return clv_fail(err, CLV_ESHAPE, "the dimension numbers do not fit x %s and indices %s", clv_type_string(x).text,
                    clv_type_string(indices).text);
}

static int64_t windowed_size(const windowed *w, int d, const index_attrs *a, const clv_type *indices)
{
    return w->of_x[d] >= 0 ? a->sizes[w->of_x[d]] : indices->shape[w->of_indices[d]];
}

/* ---- positions ---- */

/* Strides and starts of a call. */
typedef struct places {
    const index_attrs *a;
    const clv_view *x, *indices;
    windowed w;
    int64_t index_stride[CLV_MAX_RANK], component_stride;
} places;

static places places_of(const index_attrs *a, const clv_view *x, const clv_view *indices)
{
    places p = {.a = a, .x = x, .indices = indices};
    clv_type of_x = {.rank = x->rank}, of_indices = {.rank = indices->rank};
    p.w = windowed_dims(a, &of_x, &of_indices);
    int64_t stride = 1;
    for (int d = indices->rank - 1; d >= 0; stride *= indices->shape[d--])
        p.index_stride[d] = stride;
    p.component_stride = a->index_dim < indices->rank ? p.index_stride[a->index_dim] : 0;
    return p;
}

/* Component i of the index vector whose first one is at `first`. */
static int64_t component(const places *p, int64_t first, int i)
{
    return clv_view_load_int(p->indices, first + i * p->component_stride);
}

/* Where the window of the element at `index` of the windowed tensor begins, in this rank's part of x. False: it is not
 * whole inside x, and `moves` is false. */
static bool find_start(int64_t *start, const places *p, const int64_t *index, bool moves)
{
    int64_t first = 0, along[CLV_MAX_RANK] = {0};
    memset(start, 0, CLV_MAX_RANK * sizeof *start);
    for (int d = 0; d < p->w.rank; d++)
        if (p->w.of_indices[d] >= 0) {
            first += index[d] * p->index_stride[p->w.of_indices[d]];
            along[p->w.of_indices[d]] = index[d];
        }
    for (int d = 0; d < p->x->rank; d++)
        if (p->a->batch[d] > 0)
            start[d] = along[p->a->batch[d] - 1];
    for (int i = 0; i < p->a->n_starts; i++) {
        int d = p->a->start[i];
        int64_t at = component(p, first, i), most = p->x->global[d] - p->a->sizes[d];
        if (!moves && (at < 0 || at > most))
            return false;
        start[d] = at < 0 ? 0 : at > most ? most : at;
    }
    return true;
}

/* The element of x for that element of the windowed tensor. */
static int64_t element_of_x(const places *p, const int64_t *start, const int64_t *index)
{
    int64_t at[CLV_MAX_RANK], element = 0;
    memcpy(at, start, sizeof at);
    for (int d = 0; d < p->w.rank; d++)
        if (p->w.of_x[d] >= 0)
            at[p->w.of_x[d]] += index[d];
    for (int d = 0; d < p->x->rank; d++)
        element = element * p->x->shape[d] + at[d];
    return element;
}

/* ---- rules ---- */

/* Factors of windows and batches: of x (operand 0), indices (1) and the windowed tensor, which is operand 2 of a
 * scatter, else the result. */
static void add_factors(clv_rule *rule, const index_attrs *a, const clv_type *x, const clv_type *indices, bool scatters)
{
    windowed w = windowed_dims(a, x, indices);
    for (int d = 0; d < w.rank; d++) {
        int of_x = w.of_x[d], of_indices = w.of_indices[d], batch = -1;
        for (int i = 0; of_indices >= 0 && i < x->rank; i++)
            batch = a->batch[i] == of_indices + 1 ? i : batch;
        bool window = of_x >= 0 && a->sizes[of_x] == x->shape[of_x] && !has_start(a, of_x);
        bool rows = of_indices >= 0 && (batch >= 0 || !scatters);
        if (!window && !rows)
            continue;
        int factor =
            clv_rule_add_factor(rule, window ? x->shape[of_x] : indices->shape[of_indices], CLV_REDUCTION_NONE);
        int dim = window ? of_x : batch;
        if (dim >= 0)
            clv_rule_operand_dim(rule, 0, dim, factor);
        if (rows)
            clv_rule_operand_dim(rule, 1, of_indices, factor);
        if (scatters) {
            clv_rule_operand_dim(rule, 2, d, factor);
            clv_rule_result_dim(rule, 0, dim, factor);
        } else
            clv_rule_result_dim(rule, 0, d, factor);
    }
}

static index_attrs attrs_of(const clv_index_dims *dims, int kind)
{
    index_attrs a;
    memset(&a, 0, sizeof a);
    a.index_dim = dims->index_dim;
    a.n_starts = dims->n_starts;
    a.kind = kind;
    memcpy(a.start, dims->start, sizeof a.start);
    memcpy(a.batch, dims->batch, sizeof a.batch);
    memcpy(a.window, dims->window, sizeof a.window);
    memcpy(a.dropped, dims->dropped, sizeof a.dropped);
    memcpy(a.sizes, dims->sizes, sizeof a.sizes);
    return a;
}

static bool numbers_in_range(clv_graph *graph, const clv_index_dims *dims, const char *call)
{
    if (!clv_graph_require(graph, dims != NULL, call, "dimension numbers"))
        return false;
    if (in_range(dims->n_starts, CLV_MAX_RANK + 1) && in_range(dims->index_dim, CLV_MAX_RANK + 1))
        return true;
    clv_graph_fail(graph, CLV_EINVAL, "%s: %d starts along dimension %d; valid: 0 to %d", call, dims->n_starts,
                   dims->index_dim, CLV_MAX_RANK);
    return false;
}

/* ---- gather ---- */

static clv_status gather_shape(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err)
{
    const index_attrs *a = op->attrs;
    windowed w;
    CLV_TRY(clv_check_index("indices", &in[1], err));
    CLV_TRY(check_dims(&w, a, &in[0], &in[1], err));
    *out = (clv_type){.dtype = in[0].dtype, .rank = w.rank};
    for (int d = 0; d < w.rank; d++)
        out->shape[d] = windowed_size(&w, d, a, &in[1]);
    return CLV_OK;
}

static void gather_rule(const clv_op *op, const clv_type *in, const clv_type *out, clv_rule *rule)
{
    add_factors(rule, op->attrs, &in[0], &in[1], false);
    clv_rule_multilinear(rule, 1);
}

static clv_op_cost gather_cost(const clv_op *op, const clv_type *in, const clv_type *out)
{
    return (clv_op_cost){.bytes = 2 * clv_type_bytes(out) + clv_type_bytes(&in[1])};
}

static clv_status gather_run(const clv_call *call, clv_error *err)
{
    const clv_view *x = &call->in[0], *out = &call->out[0];
    places p = places_of(call->op->attrs, x, &call->in[1]);
    size_t size = clv_dtype_size(x->dtype);
    int64_t elems = clv_view_elems(out), index[CLV_MAX_RANK] = {0}, start[CLV_MAX_RANK];
    int last = out->rank - 1;
    /* rows of the last dimension lie together, where that is the last one of x */
    bool rows = last >= 0 && p.w.of_x[last] == x->rank - 1;
    int64_t run = rows ? out->shape[last] : 1;
    for (int64_t i = 0; i < elems; i += run) {
        find_start(start, &p, index, true);
        memcpy((char *)out->data + (size_t)i * size,
               (const char *)x->data + (size_t)element_of_x(&p, start, index) * size, (size_t)run * size);
        clv_index_next(index, out->shape, rows ? last : last + 1);
    }
    return CLV_OK;
}

const clv_op_def clv_op_gather = {
    .name = "gather",
    CLV_ARITY(2, 2, 1),
    CLV_ATTRS(index_attrs, index_fields),
    .shape = gather_shape,
    .rule = gather_rule,
    .cost = gather_cost,
    .run = gather_run,
};

clv_value clv_gather(clv_graph *graph, clv_value x, clv_value indices, const clv_index_dims *dims)
{
    if (!numbers_in_range(graph, dims, __func__))
        return CLV_NONE;
    index_attrs a = attrs_of(dims, 0);
    clv_value in[] = {x, indices};
    return clv_graph_emit_one(graph, &clv_op_gather, &a, in, 2);
}

/* ---- scatter ---- */

static clv_status scatter_shape(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err)
{
    const index_attrs *a = op->attrs;
    windowed w;
    CLV_TRY(clv_check_index("indices", &in[1], err));
    CLV_TRY(check_dims(&w, a, &in[0], &in[1], err));
    bool fits = in[2].dtype == in[0].dtype && in[2].rank == w.rank;
    for (int d = 0; fits && d < w.rank; d++)
        fits = in[2].shape[d] == windowed_size(&w, d, a, &in[1]);
    if (!fits)
        return clv_fail(err, CLV_ESHAPE, "updates %s do not fit x %s and indices %s", clv_type_string(&in[2]).text,
                        clv_type_string(&in[0]).text, clv_type_string(&in[1]).text);
    if (a->kind != CLV_SCATTER_SET && in[0].dtype == CLV_BOOL)
        return clv_fail(err, CLV_EDTYPE, "%s of bool; valid: numbers", kinds[a->kind - CLV_SCATTER_SET].name);
    *out = in[0];
    return CLV_OK;
}

static void scatter_rule(const clv_op *op, const clv_type *in, const clv_type *out, clv_rule *rule)
{
    const index_attrs *a = op->attrs;
    add_factors(rule, a, &in[0], &in[1], true);
    if (a->kind == CLV_SCATTER_ADD)
        clv_rule_additive(rule, 1u << 0 | 1u << 2);
}

static clv_op_cost scatter_cost(const clv_op *op, const clv_type *in, const clv_type *out)
{
    return (clv_op_cost){.flops = (double)clv_type_elems(&in[2]),
                         .bytes = 3 * clv_type_bytes(&in[2]) + clv_type_bytes(&in[1])};
}

static void update(const clv_view *out, int64_t to, const clv_view *from, int64_t at, int kind)
{
    size_t size = clv_dtype_size(out->dtype);
    char *element = (char *)out->data + (size_t)to * size;
    const char *given = (const char *)from->data + (size_t)at * size;
    static const clv_binary_op ops[] = {[CLV_SCATTER_ADD - CLV_SCATTER_SET] = CLV_BINARY_ADD,
                                        [CLV_SCATTER_MULTIPLY - CLV_SCATTER_SET] = CLV_BINARY_MUL,
                                        [CLV_SCATTER_MAX - CLV_SCATTER_SET] = CLV_BINARY_MAX,
                                        [CLV_SCATTER_MIN - CLV_SCATTER_SET] = CLV_BINARY_MIN};
    if (kind == CLV_SCATTER_SET)
        memcpy(element, given, size);
    else
        clv_binary_forward(ops[kind - CLV_SCATTER_SET], out->dtype, element, element, given, 0, NULL, NULL, NULL);
}

static clv_status scatter_run(const clv_call *call, clv_error *err)
{
    const clv_view *updates = &call->in[2], *out = &call->out[0];
    places p = places_of(call->op->attrs, out, &call->in[1]);
    int64_t elems = clv_view_elems(updates), index[CLV_MAX_RANK] = {0}, start[CLV_MAX_RANK];
    clv_view_copy_unless_aliased(out, &call->in[0]);
    for (int64_t i = 0; i < elems; i++) {
        if (find_start(start, &p, index, false))
            update(out, element_of_x(&p, start, index), updates, i, p.a->kind);
        clv_index_next(index, updates->shape, updates->rank);
    }
    return CLV_OK;
}

const clv_op_def clv_op_scatter = {
    .name = "scatter",
    CLV_ARITY(3, 3, 1),
    CLV_ATTRS(index_attrs, index_fields),
    .shape = scatter_shape,
    .rule = scatter_rule,
    .cost = scatter_cost,
    .in_place = {1 + 0},
    .run = scatter_run,
};

clv_value clv_scatter(clv_graph *graph, clv_scatter_kind kind, clv_value x, clv_value indices, clv_value updates,
                      const clv_index_dims *dims)
{
    if (!numbers_in_range(graph, dims, __func__) || !clv_graph_require_enum(graph, "scatter", (int)kind, kinds))
        return CLV_NONE;
    index_attrs a = attrs_of(dims, (int)kind);
    clv_type of_x = clv_graph_type(graph, x), of_indices = clv_graph_type(graph, indices),
             of_updates = clv_graph_type(graph, updates);
    windowed w = windowed_dims(&a, &of_x, &of_indices);
    for (int d = 0; d < of_x.rank; d++)
        a.sizes[d] = 1;
    for (int d = 0; d < w.rank && d < of_updates.rank; d++)
        if (w.of_x[d] >= 0)
            a.sizes[w.of_x[d]] = of_updates.shape[d];
    clv_value in[] = {x, indices, updates};
    return clv_graph_emit_one(graph, &clv_op_scatter, &a, in, 3);
}
