/* permute.c - elements of a dimension passed on, each to another place: JAX's ppermute of a dimension of devices.
 *
 *   out[.., i, ..] = x[.., from(i), ..], or 0 where nothing comes from
 *   factors: all dimensions pass; the permuted one is whole, or a rank has one element of it
 *
 * Where a rank has one element, the op is lowered to one permute, a collective of pairs of ranks; else it is a copy.
 */
#include <stdlib.h>
#include <string.h>

#include "base/text/c_locale.h"
#include "kernels/cpu/transpose_kernel.h"
#include "ops/builtin_ops.h"

static const clv_attr fields[] = {CLV_FIELD(INT, clv_permute_attrs, dim),
                                  {"from", CLV_ATTR_TEXT, offsetof(clv_permute_attrs, from), CLV_PERMUTE_TEXT},
                                  {0}};

/* Whether no element is taken twice. */
static bool takes_once(const int *sources, int64_t n)
{
    bool taken[CLV_PERMUTE_MOST] = {false};
    for (int64_t i = 0; i < n; i++) {
        if (sources[i] >= 0 && taken[sources[i]])
            return false;
        taken[sources[i] >= 0 ? sources[i] : 0] |= sources[i] >= 0;
    }
    return true;
}

/* Runs of ascending numbers, "3,0-2"; "_4": four times none. */
bool clv_permute_sources(int *out, int64_t n, const char *from)
{
    int64_t i = 0;
    for (const char *at = from; at[0];) {
        char *end;
        const bool none = at[0] == '_';
        long first = strtol(at + none, &end, 10), last = first;
        if (end == at + none)
            return false;
        if (none) {
            first = 1; /* counts them */
        } else if (end[0] == '-') {
            at = end + 1;
            last = strtol(at, &end, 10);
        }
        if (first < 0 || last < first || last - first >= n - i || (!none && last >= n) ||
            (end[0] != ',' && end[0] != '\0'))
            return false;
        for (long k = first; k <= last; k++)
            out[i++] = none ? -1 : (int)k;
        at = end + (end[0] == ',');
    }
    return i == n;
}

static clv_status permute_shape(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err)
{
    const clv_permute_attrs *a = op->attrs;
    if (a->dim < 0 || a->dim >= in[0].rank)
        return clv_fail(err, CLV_EINVAL, "dimension %d of %s; valid: 0 to %d", a->dim, clv_type_string(&in[0]).text,
                        in[0].rank - 1);
    int sources[CLV_PERMUTE_MOST];
    const int64_t n = in[0].shape[a->dim];
    if (n > CLV_PERMUTE_MOST)
        return clv_fail(err, CLV_ELIMIT, "a permute of %lld elements; at most %d", (long long)n, CLV_PERMUTE_MOST);
    if (!clv_permute_sources(sources, n, a->from) || !takes_once(sources, n))
        return clv_fail(
            err, CLV_EINVAL,
            "from is '%.40s'; %lld numbers from 0 to %lld are needed, each at most once, as runs '1-3,0,_2'", a->from,
            (long long)n, (long long)n - 1);
    out[0] = in[0];
    return CLV_OK;
}

static void permute_rule(const clv_op *op, const clv_type *in, const clv_type *out, clv_rule *rule)
{
    clv_op_rule_elementwise(op, in, out, rule); /* factor d is dimension d */
    clv_factor *permuted = &rule->factor[((const clv_permute_attrs *)op->attrs)->dim];
    permuted->whole = permuted->or_single = true;
    clv_rule_multilinear(rule, 1);
}

static void permute_gradient(clv_graph *graph, const clv_op *op, const clv_value *d_out, clv_value *d_in)
{
    const clv_permute_attrs *a = op->attrs;
    int sources[CLV_PERMUTE_MOST], back[CLV_PERMUTE_MOST];
    const int n = (int)clv_graph_type(graph, d_out[0]).shape[a->dim];
    (void)clv_permute_sources(sources, n, a->from);
    for (int i = 0; i < n; i++)
        back[i] = -1;
    for (int i = 0; i < n; i++)
        if (sources[i] >= 0)
            back[sources[i]] = i;
    d_in[0] = clv_permute(graph, d_out[0], a->dim, back);
}

static clv_status permute_run(const clv_call *call, clv_error *err)
{
    const clv_permute_attrs *a = call->op->attrs;
    const clv_view *x = &call->in[0], *out = &call->out[0];
    int sources[CLV_PERMUTE_MOST];
    int64_t box[CLV_MAX_RANK], to[CLV_MAX_RANK] = {0}, from[CLV_MAX_RANK] = {0};
    const int64_t n = x->shape[a->dim], elems = clv_view_elems(out);
    const size_t size = clv_dtype_size(x->dtype);
    (void)clv_permute_sources(sources, n, a->from);
    memcpy(box, x->shape, sizeof box);
    box[a->dim] = 1;
    if (elems > 0 && strchr(a->from, '_'))
        memset(out->data, 0, (size_t)elems * size);
    for (int64_t i = 0; elems > 0 && i < n; i++) {
        to[a->dim] = i;
        from[a->dim] = sources[i];
        if (sources[i] >= 0)
            clv_copy_slice(size, out->data, out->shape, to, x->data, x->shape, from, x->rank, box);
    }
    return CLV_OK;
}

const clv_op_def clv_op_permute = {
    .name = "permute",
    CLV_ARITY(1, 1, 1),
    CLV_ATTRS(clv_permute_attrs, fields),
    .shape = permute_shape,
    .rule = permute_rule,
    .gradient = permute_gradient,
    .run = permute_run,
    .traits = &(const clv_op_traits){.permutes = true},
};

clv_value clv_permute(clv_graph *graph, clv_value x, int dim, const int *sources)
{
    clv_permute_attrs a;
    size_t length = 0;
    const clv_type type = clv_graph_type(graph, x);
    memset(&a, 0, sizeof a);
    a.dim = dim;
    const int64_t n = dim >= 0 && dim < type.rank ? type.shape[dim] : 0;
    for (int64_t i = 0, end; i < n; i = end) {
        if (length + 48 > sizeof a.from)
            return clv_graph_fail(graph, CLV_ELIMIT, "%spermute: of more than about %d runs", graph->scope,
                                  CLV_PERMUTE_TEXT / 8);
        const bool none = sources[i] < 0;
        for (end = i + 1; end < n && (none ? sources[end] < 0 : sources[end] == sources[i] + (int)(end - i));)
            end++;
        const char *between = i > 0 ? "," : "";
        if (none)
            length +=
                (size_t)clv_snprintf(a.from + length, sizeof a.from - length, "%s_%lld", between, (long long)(end - i));
        else
            length += (size_t)clv_snprintf(a.from + length, sizeof a.from - length, end - i > 1 ? "%s%d-%d" : "%s%d",
                                           between, sources[i], sources[end - 1]);
    }
    return clv_graph_emit_one(graph, &clv_op_permute, &a, &x, 1);
}
