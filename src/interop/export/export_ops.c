/* export_ops.c - the ops of StableHLO that graphs are written with, one line of text each. */
#include <assert.h>
#include <math.h>
#include <stdarg.h>

#include "interop/export/exporter.h"

/* ---- attributes ---- */

static const void *attribute(const exporter *ex, const char *name, const clv_attr **row)
{
    for (const clv_attr *a = ex->op->def->attrs; a && a->name; a++)
        if (strcmp(a->name, name) == 0) {
            *row = a;
            return (const char *)ex->op->attrs + a->offset;
        }
    assert(!"an attribute of the op's table");
    return NULL;
}

int64_t export_whole(const exporter *ex, const char *name, int i)
{
    const clv_attr *row;
    const void *at = attribute(ex, name, &row);
    if (row->kind == CLV_ATTR_INT64)
        return ((const int64_t *)at)[i];
    if (row->kind == CLV_ATTR_BOOL)
        return ((const bool *)at)[i];
    return ((const int *)at)[i];
}

double export_real(const exporter *ex, const char *name)
{
    const clv_attr *row;
    return *(const double *)attribute(ex, name, &row);
}

clv_key export_key(const exporter *ex, const char *name)
{
    const clv_attr *row;
    return *(const clv_key *)attribute(ex, name, &row);
}

const char *export_letters(const exporter *ex, const char *name)
{
    const clv_attr *row;
    return attribute(ex, name, &row);
}

/* ---- text ---- */

static const char *dtype_name(clv_dtype dtype)
{
    return dtype == CLV_BOOL ? "i1" : dtype == CLV_U8 ? "ui8" : clv_dtype_name(dtype);
}

export_text export_type(const clv_type *type)
{
    export_text t;
    int n = snprintf(t.text, sizeof t.text, "tensor<");
    for (int d = 0; d < type->rank; d++)
        n += snprintf(t.text + n, sizeof t.text - (size_t)n, "%lldx", (long long)type->shape[d]);
    snprintf(t.text + n, sizeof t.text - (size_t)n, "%s>", dtype_name(type->dtype));
    return t;
}

export_list export_ints(const int64_t *x, int n)
{
    export_list list;
    int used = snprintf(list.text, sizeof list.text, "[");
    for (int i = 0; i < n; i++)
        used += snprintf(list.text + used, sizeof list.text - (size_t)used, "%s%lld", i ? ", " : "", (long long)x[i]);
    snprintf(list.text + used, sizeof list.text - (size_t)used, "]");
    return list;
}

exported export_line(exporter *ex, clv_type type, const char *format, ...)
{
    va_list args;
    const exported made = {ex->n++, type};
    fprintf(ex->to, "    %%%d = ", made.id);
    va_start(args, format);
    vfprintf(ex->to, format, args);
    va_end(args);
    fprintf(ex->to, " loc(\"%s\")\n", ex->place);
    return made;
}

/* ---- constants ---- */

bool export_given(const exported *x)
{
    return x->type.rank >= 0;
}

clv_type export_shaped(clv_dtype dtype, int rank, const int64_t *shape)
{
    clv_type type = {.dtype = dtype, .rank = rank};
    for (int d = 0; d < rank; d++)
        type.shape[d] = shape[d];
    return type;
}

/* The bits of infinities and NaN, which have no decimal form. */
static const char *special(clv_dtype dtype, double value)
{
    static const struct {
        clv_dtype dtype;
        const char *lowest, *highest, *nan;
    } table[] = {{CLV_F32, "0xFF800000", "0x7F800000", "0x7FC00000"},
                 {CLV_F64, "0xFFF0000000000000", "0x7FF0000000000000", "0x7FF8000000000000"},
                 {CLV_BF16, "0xFF80", "0x7F80", "0x7FC0"},
                 {CLV_F16, "0xFC00", "0x7C00", "0x7E00"}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].dtype == dtype && !isfinite(value))
            return isnan(value) ? table[i].nan : value < 0 ? table[i].lowest : table[i].highest;
    return NULL;
}

const char *export_print_number(char out[EXPORT_NUMBER], clv_dtype dtype, double value)
{
    const char *bits = special(dtype, value);
    if (bits)
        snprintf(out, EXPORT_NUMBER, "%s", bits);
    else if (dtype == CLV_BOOL)
        snprintf(out, EXPORT_NUMBER, "%s", value != 0 ? "true" : "false");
    else if (clv_dtype_is_float(dtype))
        snprintf(out, EXPORT_NUMBER, "%.17e", value);
    else
        snprintf(out, EXPORT_NUMBER, "%lld", (long long)value);
    return out;
}

exported export_filled(exporter *ex, clv_type type, double value)
{
    char number[EXPORT_NUMBER];
    return export_line(ex, type, "stablehlo.constant dense<%s> : %s", export_print_number(number, type.dtype, value),
                       export_type(&type).text);
}

exported export_number(exporter *ex, clv_dtype dtype, double value)
{
    return export_filled(ex, (clv_type){.dtype = dtype}, value);
}

exported export_iota(exporter *ex, clv_type type, int d)
{
    return export_line(ex, type, "stablehlo.iota dim = %d : %s", d, export_type(&type).text);
}

/* ---- elementwise ---- */

exported export_unary(exporter *ex, const char *name, exported x)
{
    const char *dialect = strncmp(name, "chlo.", 5) == 0 ? "" : "stablehlo.";
    if (!dialect[0])
        return export_line(ex, x.type, "%s %%%d : %s -> %s", name, x.id, export_type(&x.type).text,
                           export_type(&x.type).text);
    return export_line(ex, x.type, "%s%s %%%d : %s", dialect, name, x.id, export_type(&x.type).text);
}

/* The shape that both broadcast to, in a's dtype. */
static clv_type common_shape(const exported *a, const exported *b)
{
    clv_type type = {.dtype = a->type.dtype, .rank = a->type.rank > b->type.rank ? a->type.rank : b->type.rank};
    for (int d = 0; d < type.rank; d++) {
        int of_a = d - (type.rank - a->type.rank), of_b = d - (type.rank - b->type.rank);
        int64_t size = of_a < 0 ? 1 : a->type.shape[of_a];
        type.shape[d] = size == 1 && of_b >= 0 ? b->type.shape[of_b] : size;
    }
    return type;
}

exported export_binary(exporter *ex, const char *name, exported a, exported b)
{
    clv_type type = common_shape(&a, &b);
    a = export_spread(ex, a, &type);
    b = export_spread(ex, b, &type);
    return export_line(ex, type, "stablehlo.%s %%%d, %%%d : %s", name, a.id, b.id, export_type(&type).text);
}

exported export_with(exporter *ex, const char *name, exported a, double b)
{
    return export_binary(ex, name, a, export_number(ex, a.type.dtype, b));
}

exported export_compare(exporter *ex, const char *how, exported a, exported b)
{
    const clv_dtype of = a.type.dtype;
    const char *kind = clv_dtype_is_float(of) ? "FLOAT" : of == CLV_BOOL || of == CLV_U8 ? "UNSIGNED" : "SIGNED";
    clv_type type = common_shape(&a, &b), out = type;
    out.dtype = CLV_BOOL;
    a = export_spread(ex, a, &type);
    b = export_spread(ex, b, &type);
    return export_line(ex, out, "stablehlo.compare %s, %%%d, %%%d, %s : (%s, %s) -> %s", how, a.id, b.id, kind,
                       export_type(&type).text, export_type(&type).text, export_type(&out).text);
}

exported export_select(exporter *ex, exported condition, exported a, exported b)
{
    clv_type choice = common_shape(&a, &b);
    const exported either = {0, choice};
    clv_type mask = common_shape(&condition, &either), type = mask;
    type.dtype = choice.dtype;
    condition = export_spread(ex, condition, &mask);
    a = export_spread(ex, a, &type);
    b = export_spread(ex, b, &type);
    return export_line(ex, type, "stablehlo.select %%%d, %%%d, %%%d : %s, %s", condition.id, a.id, b.id,
                       export_type(&mask).text, export_type(&type).text);
}

exported export_cast(exporter *ex, exported x, clv_dtype dtype)
{
    clv_type to = x.type;
    if (x.type.dtype == dtype)
        return x;
    to.dtype = dtype;
    return export_line(ex, to, "stablehlo.convert %%%d : (%s) -> %s", x.id, export_type(&x.type).text,
                       export_type(&to).text);
}

exported export_math(exporter *ex, exported x)
{
    return export_cast(ex, x, x.type.dtype == CLV_F64 ? CLV_F64 : CLV_F32);
}

/* ---- shapes ---- */

exported export_broadcast(exporter *ex, exported x, const clv_type *to, const int64_t *dims)
{
    clv_type type = *to;
    type.dtype = x.type.dtype;
    return export_line(ex, type, "stablehlo.broadcast_in_dim %%%d, dims = %s : (%s) -> %s", x.id,
                       export_ints(dims, x.type.rank).text, export_type(&x.type).text, export_type(&type).text);
}

exported export_spread(exporter *ex, exported x, const clv_type *like)
{
    clv_type type = *like;
    int64_t dims[CLV_MAX_RANK];
    type.dtype = x.type.dtype;
    if (clv_type_equal(&type, &x.type))
        return x;
    for (int d = 0; d < x.type.rank; d++)
        dims[d] = type.rank - x.type.rank + d;
    return export_broadcast(ex, x, &type, dims);
}

exported export_reshape(exporter *ex, exported x, int rank, const int64_t *shape)
{
    clv_type to = export_shaped(x.type.dtype, rank, shape);
    if (clv_type_equal(&to, &x.type))
        return x;
    return export_line(ex, to, "stablehlo.reshape %%%d : (%s) -> %s", x.id, export_type(&x.type).text,
                       export_type(&to).text);
}

exported export_unsqueeze(exporter *ex, exported x, int d)
{
    int64_t shape[CLV_MAX_RANK + 1];
    for (int i = 0; i <= x.type.rank; i++)
        shape[i] = i == d ? 1 : x.type.shape[i - (i > d)];
    return export_reshape(ex, x, x.type.rank + 1, shape);
}

exported export_transpose(exporter *ex, exported x, const int *order)
{
    clv_type to = x.type;
    int64_t dims[CLV_MAX_RANK];
    bool moves = false;
    for (int d = 0; d < to.rank; d++) {
        to.shape[d] = x.type.shape[order[d]];
        dims[d] = order[d];
        moves = moves || order[d] != d;
    }
    if (!moves)
        return x;
    return export_line(ex, to, "stablehlo.transpose %%%d, dims = %s : (%s) -> %s", x.id,
                       export_ints(dims, to.rank).text, export_type(&x.type).text, export_type(&to).text);
}

exported export_part(exporter *ex, exported x, int d, int64_t from, int64_t to)
{
    clv_type type = x.type;
    char bounds[CLV_MAX_RANK * 44] = "";
    int used = 0;
    type.shape[d] = to - from;
    for (int i = 0; i < type.rank; i++)
        used += snprintf(bounds + used, sizeof bounds - (size_t)used, "%s%lld:%lld", i ? ", " : "",
                         (long long)(i == d ? from : 0), (long long)(i == d ? to : x.type.shape[i]));
    return export_line(ex, type, "stablehlo.slice %%%d [%s] : (%s) -> %s", x.id, bounds, export_type(&x.type).text,
                       export_type(&type).text);
}

exported export_at(exporter *ex, exported x, int d, int64_t at)
{
    int64_t shape[CLV_MAX_RANK];
    for (int i = 0, n = 0; i < x.type.rank; i++)
        if (i != d)
            shape[n++] = x.type.shape[i];
    return export_reshape(ex, export_part(ex, x, d, at, at + 1), x.type.rank - 1, shape);
}

exported export_join(exporter *ex, const exported *x, int n, int d)
{
    char values[512] = "", types[2048] = "";
    int used = 0, typed = 0;
    clv_type type = x[0].type;
    type.shape[d] = 0;
    for (int i = 0; i < n; i++) {
        type.shape[d] += x[i].type.shape[d];
        used += snprintf(values + used, sizeof values - (size_t)used, "%s%%%d", i ? ", " : "", x[i].id);
        typed +=
            snprintf(types + typed, sizeof types - (size_t)typed, "%s%s", i ? ", " : "", export_type(&x[i].type).text);
    }
    return export_line(ex, type, "stablehlo.concatenate %s, dim = %d : (%s) -> %s", values, d, types,
                       export_type(&type).text);
}

/* ---- reductions and products ---- */

exported export_reduce(exporter *ex, const char *name, exported x, uint32_t dims, double first)
{
    clv_type to = {.dtype = x.type.dtype};
    int64_t reduced[CLV_MAX_RANK];
    int n = 0;
    for (int d = 0; d < x.type.rank; d++)
        if (dims & 1u << d)
            reduced[n++] = d;
        else
            to.shape[to.rank++] = x.type.shape[d];
    if (n == 0)
        return x;
    exported init = export_number(ex, x.type.dtype, first);
    return export_line(ex, to,
                       "stablehlo.reduce(%%%d init: %%%d) applies stablehlo.%s across dimensions = %s : (%s, %s) -> %s",
                       x.id, init.id, name, export_ints(reduced, n).text, export_type(&x.type).text,
                       export_type(&init.type).text, export_type(&to).text);
}

exported export_row_sum(exporter *ex, exported x)
{
    int last = x.type.rank - 1;
    return export_unsqueeze(ex, export_reduce(ex, "add", x, 1u << last, 0), last);
}

/* Letters of `from` that are (not) in each of the others, as dimensions; *n of them. */
static export_list letter_dims(const char *letters, const char *of)
{
    int64_t dims[CLV_MAX_RANK];
    int n = 0;
    for (; letters[n]; n++)
        dims[n] = strchr(of, letters[n]) - of;
    return export_ints(dims, n);
}

exported export_dot(exporter *ex, const char *a_letters, const char *b_letters, const char *letters, exported a,
                    exported b)
{
    char batch[CLV_MAX_RANK + 1] = "", contracted[CLV_MAX_RANK + 1] = "", made[2 * CLV_MAX_RANK + 1] = "", lists[512];
    int order[CLV_MAX_RANK], n_batch = 0, n_contracted = 0, n = 0;
    clv_type type = {.dtype = a.type.dtype};
    for (const char *p = a_letters; *p; p++)
        if (strchr(b_letters, *p) && strchr(letters, *p))
            batch[n_batch++] = *p;
        else if (strchr(b_letters, *p))
            contracted[n_contracted++] = *p;
    memcpy(made, batch, (size_t)n_batch);
    n = n_batch;
    for (int side = 0; side < 2; side++)
        for (const char *p = side ? b_letters : a_letters; *p; p++)
            if (!strchr(side ? a_letters : b_letters, *p))
                made[n++] = *p;
    for (int d = 0; d < n; d++) {
        const char *in_a = strchr(a_letters, made[d]);
        type.shape[d] = in_a ? a.type.shape[in_a - a_letters] : b.type.shape[strchr(b_letters, made[d]) - b_letters];
    }
    type.rank = n;
    int used = 0;
    if (n_batch)
        used = snprintf(lists, sizeof lists, "batching_dims = %s x %s, ", letter_dims(batch, a_letters).text,
                        letter_dims(batch, b_letters).text);
    snprintf(lists + used, sizeof lists - (size_t)used, "contracting_dims = %s x %s",
             letter_dims(contracted, a_letters).text, letter_dims(contracted, b_letters).text);
    exported out =
        export_line(ex, type, "stablehlo.dot_general %%%d, %%%d, %s, precision = [HIGHEST, HIGHEST] : (%s, %s) -> %s",
                    a.id, b.id, lists, export_type(&a.type).text, export_type(&b.type).text, export_type(&type).text);
    for (int d = 0; d < n; d++)
        order[d] = (int)(strchr(made, letters[d]) - made);
    return export_transpose(ex, out, order);
}
