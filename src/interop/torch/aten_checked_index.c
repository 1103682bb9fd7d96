/* aten_checked_index.c - torch.index: indices as they are, or an error that names the first one out of range, as
 * PyTorch has it. Lookups of the graph clamp an index, or give zeros, instead.
 */
#include "ops/builtin_ops.h"
#include "interop/torch/aten.h"

typedef struct index_attrs {
    int64_t low, high; /* low <= index < high */
    int64_t ignored;   /* this one is allowed, too */
} index_attrs;

static const clv_attr index_fields[] = {CLV_FIELD(INT64, index_attrs, low),
                                        CLV_FIELD(INT64, index_attrs, high),
                                        CLV_FIELD(INT64, index_attrs, ignored),
                                        {0}};

static int64_t index_at(clv_dtype dtype, const void *data, int64_t i)
{
    int64_t index;
    clv_dtype_convert(CLV_I64, &index, dtype, (const char *)data + (size_t)i * clv_dtype_size(dtype), 1);
    return index;
}

/* Whether all elements are in range; *first: one that is not. */
static bool all_in_range(int64_t *first, const index_attrs *a, clv_dtype dtype, const void *data, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        *first = index_at(dtype, data, i);
        if ((*first < a->low || *first >= a->high) && *first != a->ignored)
            return false;
    }
    return true;
}

static clv_status index_shape(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err)
{
    out[0] = in[0];
    return CLV_OK;
}

static clv_status index_run(const clv_call *call, clv_error *err)
{
    const index_attrs *a = call->op->attrs;
    const clv_view *x = &call->in[0];
    int64_t first;
    if (!all_in_range(&first, a, x->dtype, x->data, clv_view_elems(x)))
        return clv_fail(err, CLV_EINVAL, "the index %lld is out of range; valid: %lld to %lld", (long long)first,
                        (long long)a->low, (long long)a->high - 1);
    clv_view_copy_unless_aliased(&call->out[0], x);
    return CLV_OK;
}

const clv_op_def torch_index_op = {
    .name = "torch.index",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .in_place = {1},
    CLV_ATTRS(index_attrs, index_fields),
    .shape = index_shape,
    .rule = clv_op_rule_elementwise,
    .run = index_run,
};

clv_status aten_check_index(clv_value *x, importer *im, const mlir_op *op, const imported *index, int64_t low,
                            int64_t high, int64_t ignored, clv_error *err)
{
    const index_attrs attrs = {low, high, ignored};
    int64_t first, n = index->known && index->known->splat ? 1 : clv_type_elems(&index->type);
    if (index->known && !all_in_range(&first, &attrs, index->type.dtype, index->known->data, n))
        return import_fail(im, op, err, CLV_EINVAL, "the index %lld is out of range; valid: %lld to %lld",
                           (long long)first, (long long)low, (long long)high - 1);
    const clv_value given = *x;
    if (!index->known)
        clv_emit(im->graph, &torch_index_op, &attrs, &given, 1, x);
    return CLV_OK;
}
