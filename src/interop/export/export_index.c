/* export_index.c - gathers, scatters, slices at computed places and KV caches as StableHLO. */
#include "ops/builtin_ops.h"
#include "interop/export/exporter.h"

enum { DIMS_TEXT = CLV_MAX_RANK * 24 };

/* ", key = [1, 2]" of the dimensions d < rank that `has` says. */
typedef bool has_dim(const exporter *ex, int d);

static int put_dims(char *to, size_t size, const exporter *ex, const char *key, int rank, has_dim *has)
{
    int64_t dims[CLV_MAX_RANK];
    int n = 0;
    for (int d = 0; d < rank; d++)
        if (has(ex, d))
            dims[n++] = d;
    return n ? snprintf(to, size, "%s = %s, ", key, export_ints(dims, n).text) : 0;
}

static bool is_window(const exporter *ex, int d)
{
    return export_whole(ex, "window", d);
}

static bool is_batch(const exporter *ex, int d)
{
    return export_whole(ex, "batch", d) > 0;
}

static bool is_dropped(const exporter *ex, int d)
{
    return export_whole(ex, "dropped", d) && !is_batch(ex, d);
}

/* Dimension numbers, whose keys gathers and scatters call differently. */
typedef struct dimension_keys {
    const char *window, *dropped, *batch, *indices_batch, *start;
} dimension_keys;

static const dimension_keys of_gather = {"offset_dims", "collapsed_slice_dims", "operand_batching_dims",
                                         "start_indices_batching_dims", "start_index_map"},
                            of_scatter = {"update_window_dims", "inserted_window_dims", "input_batching_dims",
                                          "scatter_indices_batching_dims", "scatter_dims_to_operand_dims"};

static void put_numbers(char out[8 * DIMS_TEXT], const exporter *ex, const dimension_keys *keys, int rank,
                        int windowed_rank)
{
    int64_t dims[CLV_MAX_RANK];
    int used = put_dims(out, DIMS_TEXT, ex, keys->window, windowed_rank, is_window), n = 0;
    used += put_dims(out + used, DIMS_TEXT, ex, keys->dropped, rank, is_dropped);
    used += put_dims(out + used, DIMS_TEXT, ex, keys->batch, rank, is_batch);
    for (int d = 0; d < rank; d++)
        if (is_batch(ex, d))
            dims[n++] = export_whole(ex, "batch", d) - 1;
    if (n)
        used += snprintf(out + used, DIMS_TEXT, "%s = %s, ", keys->indices_batch, export_ints(dims, n).text);
    n = (int)export_whole(ex, "n_starts", 0);
    for (int i = 0; i < n; i++)
        dims[i] = export_whole(ex, "start", i);
    snprintf(out + used, 2 * (size_t)DIMS_TEXT, "%s = %s, index_vector_dim = %lld", keys->start,
             export_ints(dims, n).text, (long long)export_whole(ex, "index_dim", 0));
}

static void gather(exporter *ex, const exported *in, exported *out)
{
    char numbers[8 * DIMS_TEXT], sizes[DIMS_TEXT];
    const int rank = in[0].type.rank;
    put_numbers(numbers, ex, &of_gather, rank, out[0].type.rank);
    for (int d = 0, used = 0; d < rank; d++)
        used += snprintf(sizes + used, sizeof sizes - (size_t)used, "%s%lld", d ? ", " : "",
                         (long long)export_whole(ex, "sizes", d));
    out[0] = export_line(ex, out[0].type,
                         "\"stablehlo.gather\"(%%%d, %%%d) <{dimension_numbers = #stablehlo.gather<%s>, slice_sizes = "
                         "array<i64: %s>}> : (%s, %s) -> %s",
                         in[0].id, in[1].id, numbers, sizes, export_type(&in[0].type).text,
                         export_type(&in[1].type).text, export_type(&out[0].type).text);
}

static void scatter(exporter *ex, const exported *in, exported *out)
{
    static const char *const names[] = {"", "add", "multiply", "maximum", "minimum"};
    char numbers[8 * DIMS_TEXT], body[CLV_TYPE_TEXT + 64];
    const int64_t kind = export_whole(ex, "kind", 0) - CLV_SCATTER_SET;
    const clv_type scalar = {.dtype = in[0].type.dtype};
    const export_text element = export_type(&scalar);
    put_numbers(numbers, ex, &of_scatter, in[0].type.rank, in[2].type.rank);
    if (kind > 0)
        snprintf(body, sizeof body, "      %%c = stablehlo.%s %%a, %%b : %s\n", names[kind], element.text);
    out[0] = export_line(ex, out[0].type,
                         "\"stablehlo.scatter\"(%%%d, %%%d, %%%d) <{indices_are_sorted = false, "
                         "scatter_dimension_numbers = #stablehlo.scatter<%s>, unique_indices = false}> ({\n    "
                         "^bb0(%%a: %s, %%b: %s):\n%s      stablehlo.return %%%s : %s\n    }) : (%s, %s, %s) -> %s",
                         in[0].id, in[1].id, in[2].id, numbers, element.text, element.text, kind > 0 ? body : "",
                         kind > 0 ? "c" : "b", element.text, export_type(&in[0].type).text,
                         export_type(&in[1].type).text, export_type(&in[2].type).text, export_type(&out[0].type).text);
}

/* ---- slices at computed places ---- */

/* "%3, %4" of the elements of a vector, as scalars; and their types. */
static void scalars(exporter *ex, exported starts, char values[DIMS_TEXT], char types[CLV_TYPE_TEXT])
{
    const clv_type scalar = {.dtype = starts.type.dtype};
    for (int d = 0, used = 0, typed = 0; d < starts.type.shape[0]; d++) {
        exported s = export_at(ex, starts, 0, d);
        used += snprintf(values + used, DIMS_TEXT - (size_t)used, ", %%%d", s.id);
        typed += snprintf(types + typed, CLV_TYPE_TEXT - (size_t)typed, ", %s", export_type(&scalar).text);
    }
}

static void dynamic_slice(exporter *ex, const exported *in, exported *out)
{
    char starts[DIMS_TEXT] = "", types[CLV_TYPE_TEXT] = "";
    scalars(ex, in[1], starts, types);
    out[0] = export_line(ex, out[0].type, "stablehlo.dynamic_slice %%%d%s, sizes = %s : (%s%s) -> %s", in[0].id, starts,
                         export_ints(out[0].type.shape, out[0].type.rank).text, export_type(&in[0].type).text, types,
                         export_type(&out[0].type).text);
}

static exported updated(exporter *ex, exported x, exported part, exported at)
{
    char starts[DIMS_TEXT] = "", types[CLV_TYPE_TEXT] = "";
    scalars(ex, at, starts, types);
    return export_line(ex, x.type, "stablehlo.dynamic_update_slice %%%d, %%%d%s : (%s, %s%s) -> %s", x.id, part.id,
                       starts, export_type(&x.type).text, export_type(&part.type).text, types,
                       export_type(&x.type).text);
}

static void dynamic_update_slice(exporter *ex, const exported *in, exported *out)
{
    out[0] = updated(ex, in[0], in[1], in[2]);
}

/* Rows of each sequence at its own offset, one sequence after another. */
static void cache_update(exporter *ex, const exported *in, exported *out)
{
    const exported offset = in[2];
    const int64_t batch = offset.type.rank == 0 ? 1 : offset.type.shape[0];
    const clv_type one = {.dtype = offset.type.dtype, .rank = 1, .shape = {1}};
    exported at[CLV_MAX_RANK];
    out[0] = in[0];
    if (export_whole(ex, "parts", 0) > 0) /* rows outside a part are passed over; a dynamic_update_slice moves them */
        ex->fault = "of a part of a cache";
    for (int64_t b = 0; b < batch; b++) {
        for (int d = 0; d < in[0].type.rank; d++)
            at[d] = export_filled(ex, one, d == 0 ? (double)b : 0);
        at[1] = offset.type.rank == 0 ? export_unsqueeze(ex, offset, 0) : export_part(ex, offset, 0, b, b + 1);
        exported rows = offset.type.rank == 0 ? in[1] : export_part(ex, in[1], 0, b, b + 1);
        out[0] = updated(ex, out[0], rows, export_join(ex, at, in[0].type.rank, 0));
    }
}

const export_row export_index_rows[] = {
    {&clv_op_gather, gather},
    {&clv_op_scatter, scatter},
    {&clv_op_dynamic_slice, dynamic_slice},
    {&clv_op_dynamic_update_slice, dynamic_update_slice},
    {&clv_op_cache_update, cache_update},
    {0},
};
