/* operand_checks.c - operand validation: dtype, rank and shape checks for shape rules, with messages. */
#include "ops/operand_checks.h"

#include <string.h>

#include "base/error.h"
#include "graph/graph.h"

clv_type_chars clv_type_string(const clv_type *type)
{
    clv_type_chars chars;
    clv_type_print(chars.text, sizeof chars.text, type);
    return chars;
}

clv_status clv_check_float(const char *what, const clv_type *type, clv_error *err)
{
    if (clv_dtype_is_float(type->dtype))
        return CLV_OK;
    return clv_fail(err, CLV_EDTYPE, "%s is %s; f32, bf16, f16 or f64 is needed", what, clv_dtype_name(type->dtype));
}

clv_status clv_check_index(const char *what, const clv_type *type, clv_error *err)
{
    if (type->dtype == CLV_I32 || type->dtype == CLV_I64)
        return CLV_OK;
    return clv_fail(err, CLV_EDTYPE, "%s is %s; i32 or i64 is needed", what, clv_dtype_name(type->dtype));
}

clv_status clv_check_scalar(const char *what, const clv_type *type, clv_dtype dtype, clv_error *err)
{
    if (type->rank != 0)
        return clv_fail(err, CLV_ESHAPE, "%s is %s; a scalar %s[] is needed", what, clv_type_string(type).text,
                        clv_dtype_name(dtype));
    if (type->dtype != dtype)
        return clv_fail(err, CLV_EDTYPE, "%s is %s; %s[] is needed", what, clv_type_string(type).text,
                        clv_dtype_name(dtype));
    return CLV_OK;
}

clv_status clv_check_offset(const clv_type *type, int64_t batch, clv_error *err)
{
    if (type->rank > 1 || (type->rank == 1 && type->shape[0] != batch))
        return clv_fail(err, CLV_ESHAPE, "offset is %s; i32[] or i32[%lld], one for each row of the batch, is needed",
                        clv_type_string(type).text, (long long)batch);
    if (type->dtype != CLV_I32)
        return clv_fail(err, CLV_EDTYPE, "offset is %s; i32 is needed", clv_type_string(type).text);
    return CLV_OK;
}

clv_status clv_check_min_rank(const char *what, const clv_type *type, int rank, const char *letters, clv_error *err)
{
    if (type->rank >= rank)
        return CLV_OK;
    return clv_fail(err, CLV_ESHAPE, "%s is %s; %s is needed", what, clv_type_string(type).text, letters);
}

/* Whether both types have the same first dimensions. */
static bool same_dims(const clv_type *a, const clv_type *b, int n)
{
    return memcmp(a->shape, b->shape, (size_t)n * sizeof *a->shape) == 0;
}

clv_status clv_check_same_shape(const char *what, const clv_type *type, const char *other, const clv_type *like,
                                clv_error *err)
{
    if (type->rank == like->rank && same_dims(type, like, type->rank))
        return CLV_OK;
    return clv_fail(err, CLV_ESHAPE, "%s is %s and %s is %s; their shapes must be equal", what,
                    clv_type_string(type).text, other, clv_type_string(like).text);
}

clv_status clv_check_rows(const char *what, const clv_type *type, const char *other, const clv_type *like,
                          clv_error *err)
{
    if (type->rank == like->rank - 1 && same_dims(type, like, type->rank))
        return CLV_OK;
    return clv_fail(err, CLV_ESHAPE, "%s is %s; the shape of %s %s without its last dimension is needed", what,
                    clv_type_string(type).text, other, clv_type_string(like).text);
}

clv_dtype clv_statistics_dtype(clv_dtype dtype)
{
    return dtype == CLV_F64 ? CLV_F64 : CLV_F32;
}

int64_t clv_shape_product(const int64_t *shape, int from, int to)
{
    int64_t n = 1;
    for (int d = from; d < to; d++)
        n *= shape[d];
    return n;
}

int64_t clv_view_row_count(const clv_view *view, int trailing)
{
    return clv_shape_product(view->shape, 0, view->rank - trailing);
}

double clv_type_bytes(const clv_type *type)
{
    return (double)clv_type_elems(type) * (double)clv_dtype_size(type->dtype);
}

double clv_op_traffic_bytes(const clv_op *op, const clv_type *in, const clv_type *out)
{
    double bytes = 0;
    for (int i = 0; i < op->n_in; i++)
        bytes += op->in[i] > 0 ? clv_type_bytes(&in[i]) : 0;
    for (int o = 0; o < op->n_out; o++)
        bytes += clv_type_bytes(&out[o]);
    return bytes;
}

void clv_view_copy_unless_aliased(const clv_view *out, const clv_view *in)
{
    size_t bytes = clv_view_byte_size(in);
    if (out->data != in->data && bytes > 0)
        memcpy(out->data, in->data, bytes);
}

int64_t clv_view_load_int(const clv_view *view, int64_t i)
{
    int64_t value;
    clv_dtype_convert(CLV_I64, &value, view->dtype, (const char *)view->data + (size_t)i * clv_dtype_size(view->dtype),
                      1);
    return value;
}

void clv_rule_add_dims(clv_rule *rule, const clv_type *type, int n)
{
    for (int d = 0; d < n; d++)
        clv_rule_add_factor(rule, type->shape[d], CLV_REDUCTION_NONE);
}

void clv_rule_map_in_dims(clv_rule *rule, int i, int n)
{
    for (int d = 0; d < n; d++)
        clv_rule_operand_dim(rule, i, d, d);
}

void clv_rule_map_out_dims(clv_rule *rule, int i, int n)
{
    for (int d = 0; d < n; d++)
        clv_rule_result_dim(rule, i, d, d);
}

int clv_rule_rows(clv_rule *rule, const clv_op *op, const clv_type *x, clv_reduction rows, clv_reduction last,
                  const char *dims)
{
    const int n = x->rank - 1;
    const char *result = strchr(dims, '>') + 1;
    for (int d = 0; d < n; d++)
        clv_rule_add_factor(rule, x->shape[d], rows);
    if (strpbrk(dims, "xc"))
        clv_rule_add_factor(rule, x->shape[n], last);
    for (int i = 0; i < op->n_in + op->n_out; i++) {
        const bool operand = i < op->n_in;
        const char letter = operand ? dims[i] : *result;
        if (operand && op->in[i] == 0)
            continue;
        void (*add)(clv_rule *, int, int, int) = operand ? clv_rule_operand_dim : clv_rule_result_dim;
        for (int d = 0; d < n && letter != 'c'; d++)
            add(rule, operand ? i : i - op->n_in, d, d);
        if (letter != 'r')
            add(rule, operand ? i : i - op->n_in, letter == 'c' ? 0 : n, n);
    }
    return n;
}

void clv_op_rule_elementwise(const clv_op *op, const clv_type *in, const clv_type *out, clv_rule *rule)
{
    clv_rule_elementwise(rule, op, in, out);
}

clv_status clv_op_shape_like_first(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err)
{
    out[0] = in[0];
    return CLV_OK;
}

void clv_op_gradient_zero(clv_graph *graph, const clv_op *op, const clv_value *d_out, clv_value *d_in)
{
}
