/* operand_checks.c - operand validation: dtype, rank and shape checks for shape rules, with messages. */
#include "ops/operand_checks.h"

#include <string.h>

#include "base/error.h"
#include "graph/graph.h"

enum { TEXT = 256 };

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
    char text[TEXT];
    clv_type_print(text, sizeof text, type);
    if (type->rank != 0)
        return clv_fail(err, CLV_ESHAPE, "%s is %s; a scalar %s[] is needed", what, text, clv_dtype_name(dtype));
    if (type->dtype != dtype)
        return clv_fail(err, CLV_EDTYPE, "%s is %s; %s[] is needed", what, text, clv_dtype_name(dtype));
    return CLV_OK;
}

clv_status clv_check_offset(const clv_type *type, int64_t batch, clv_error *err)
{
    char text[TEXT];
    clv_type_print(text, sizeof text, type);
    if (type->rank > 1 || (type->rank == 1 && type->shape[0] != batch))
        return clv_fail(err, CLV_ESHAPE, "offset is %s; i32[] or i32[%lld], one for each row of the batch, is needed",
                        text, (long long)batch);
    if (type->dtype != CLV_I32)
        return clv_fail(err, CLV_EDTYPE, "offset is %s; i32 is needed", text);
    return CLV_OK;
}

clv_status clv_check_rank_from(const char *what, const clv_type *type, int rank, const char *letters, clv_error *err)
{
    char text[TEXT];
    if (type->rank >= rank)
        return CLV_OK;
    clv_type_print(text, sizeof text, type);
    return clv_fail(err, CLV_ESHAPE, "%s is %s; %s is needed", what, text, letters);
}

clv_status clv_check_same_shape(const char *what, const clv_type *type, const char *other, const clv_type *like,
                                clv_error *err)
{
    char text[TEXT], wanted[TEXT];
    bool same = type->rank == like->rank;
    for (int d = 0; same && d < like->rank; d++)
        same = type->shape[d] == like->shape[d];
    if (same)
        return CLV_OK;
    clv_type_print(text, sizeof text, type);
    clv_type_print(wanted, sizeof wanted, like);
    return clv_fail(err, CLV_ESHAPE, "%s is %s and %s is %s; their shapes must be equal", what, text, other, wanted);
}

clv_status clv_check_rows(const char *what, const clv_type *type, const char *other, const clv_type *like,
                          clv_error *err)
{
    char text[TEXT], wanted[TEXT];
    bool same = type->rank == like->rank - 1;
    for (int d = 0; same && d < type->rank; d++)
        same = type->shape[d] == like->shape[d];
    if (same)
        return CLV_OK;
    clv_type_print(text, sizeof text, type);
    clv_type_print(wanted, sizeof wanted, like);
    return clv_fail(err, CLV_ESHAPE, "%s is %s; the shape of %s %s without its last dimension is needed", what, text,
                    other, wanted);
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

int64_t clv_view_rows(const clv_view *view, int trailing)
{
    int64_t rows = 1;
    for (int d = 0; d < view->rank - trailing; d++)
        rows *= view->shape[d];
    return rows;
}

double clv_type_bytes(const clv_type *type)
{
    return (double)clv_type_elems(type) * (double)clv_dtype_size(type->dtype);
}

void clv_view_copy_unless_aliased(const clv_view *out, const clv_view *in)
{
    size_t bytes = clv_view_byte_size(in);
    if (out->data != in->data && bytes > 0)
        memcpy(out->data, in->data, bytes);
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
