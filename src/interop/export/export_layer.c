/* export_layer.c - norms, embeddings, rotary positions and cross-entropy as StableHLO. */
#include <math.h>
#include <stdlib.h>

#include "ops/builtin_ops.h"
#include "interop/export/exporter.h"

/* ---- norms; statistics are pairs [rows..., 2] of f64 ---- */

typedef struct row_statistics {
    exported centred, rstd; /* x - mean and 1 / sqrt(variance + eps), f64 */
} row_statistics;

/* Part i of a pair, [rows..., 1]. */
static exported part_of(exporter *ex, exported pair, int i)
{
    return export_part(ex, pair, pair.type.rank - 1, i, i + 1);
}

/* The last dimension of x joined from two, [rows...] each. */
static exported pair_of(exporter *ex, exported first, exported second)
{
    exported both[] = {export_unsqueeze(ex, first, first.type.rank), export_unsqueeze(ex, second, second.type.rank)};
    return export_join(ex, both, 2, first.type.rank);
}

static exported last_sum(exporter *ex, exported x)
{
    return export_reduce(ex, "add", x, 1u << (x.type.rank - 1), 0);
}

static void moments(exporter *ex, const exported *in, exported *out)
{
    exported x = export_cast(ex, in[0], CLV_F64);
    out[0] = pair_of(ex, last_sum(ex, x), last_sum(ex, export_binary(ex, "multiply", x, x)));
}

static row_statistics statistics(exporter *ex, exported x, exported pair)
{
    const double width = (double)x.type.shape[x.type.rank - 1];
    row_statistics s = {export_cast(ex, x, CLV_F64), {0}};
    exported variance = export_with(ex, "divide", part_of(ex, pair, 1), width);
    if (export_whole(ex, "layer", 0)) {
        exported mean = export_with(ex, "divide", part_of(ex, pair, 0), width);
        variance = export_binary(ex, "subtract", variance, export_binary(ex, "multiply", mean, mean));
        s.centred = export_binary(ex, "subtract", s.centred, mean);
    }
    s.rstd = export_unary(ex, "rsqrt", export_with(ex, "add", variance, export_real(ex, "eps")));
    return s;
}

static exported normal(exporter *ex, row_statistics s)
{
    return export_binary(ex, "multiply", s.centred, s.rstd);
}

static void normalize(exporter *ex, const exported *in, exported *out)
{
    exported y = normal(ex, statistics(ex, in[0], in[1]));
    y = export_binary(ex, "multiply", y, export_cast(ex, in[2], CLV_F64));
    if (ex->op->n_in > 3 && export_given(&in[3]))
        y = export_binary(ex, "add", y, export_cast(ex, in[3], CLV_F64));
    out[0] = export_cast(ex, y, in[0].type.dtype);
}

static exported times_gain(exporter *ex, exported d, exported gain)
{
    return export_binary(ex, "multiply", export_cast(ex, d, CLV_F64), export_cast(ex, gain, CLV_F64));
}

static void normalize_sums(exporter *ex, const exported *in, exported *out)
{
    exported g = times_gain(ex, in[0], in[3]), x = normal(ex, statistics(ex, in[1], in[2]));
    out[0] = pair_of(ex, last_sum(ex, g), last_sum(ex, export_binary(ex, "multiply", g, x)));
}

static void normalize_dx(exporter *ex, const exported *in, exported *out)
{
    const double width = (double)in[1].type.shape[in[1].type.rank - 1];
    row_statistics s = statistics(ex, in[1], in[2]);
    exported g = times_gain(ex, in[0], in[4]);
    if (export_whole(ex, "layer", 0))
        g = export_binary(ex, "subtract", g, export_with(ex, "divide", part_of(ex, in[3], 0), width));
    exported along =
        export_binary(ex, "multiply", normal(ex, s), export_with(ex, "divide", part_of(ex, in[3], 1), width));
    exported d = export_binary(ex, "multiply", s.rstd, export_binary(ex, "subtract", g, along));
    out[0] = export_cast(ex, d, out[0].type.dtype);
}

static void normalize_dweights(exporter *ex, const exported *in, exported *out)
{
    const uint32_t rows = (1u << (in[1].type.rank - 1)) - 1;
    exported d = export_cast(ex, in[0], CLV_F64), x = normal(ex, statistics(ex, in[1], in[2]));
    const clv_dtype dtype = out[0].type.dtype;
    out[0] = export_cast(ex, export_reduce(ex, "add", export_binary(ex, "multiply", d, x), rows, 0), dtype);
    if (ex->op->n_out > 1)
        out[1] = export_cast(ex, export_reduce(ex, "add", d, rows, 0), dtype);
}

/* ---- embedding ---- */

/* ids as one column [rows, 1]. */
static exported column(exporter *ex, exported ids)
{
    return export_reshape(ex, ids, 2, (int64_t[]){clv_type_elems(&ids.type), 1});
}

/* An id outside the table gives zeros. */
static void embedding(exporter *ex, const exported *in, exported *out)
{
    const int64_t rows = clv_type_elems(&in[1].type), width = in[0].type.shape[1];
    const clv_type type = out[0].type, flat = export_shaped(type.dtype, 2, (int64_t[]){rows, width});
    exported ids = column(ex, in[1]);
    exported found =
        export_line(ex, flat,
                    "\"stablehlo.gather\"(%%%d, %%%d) <{dimension_numbers = #stablehlo.gather<offset_dims = "
                    "[1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, "
                    "slice_sizes = array<i64: 1, %lld>}> : (%s, %s) -> %s",
                    in[0].id, ids.id, (long long)width, export_type(&in[0].type).text, export_type(&ids.type).text,
                    export_type(&flat).text);
    exported from = export_compare(ex, "GE", ids, export_number(ex, ids.type.dtype, 0));
    exported below = export_compare(ex, "LT", ids, export_number(ex, ids.type.dtype, (double)in[0].type.shape[0]));
    exported rows_found =
        export_select(ex, export_binary(ex, "and", from, below), found, export_number(ex, type.dtype, 0));
    out[0] = export_reshape(ex, rows_found, type.rank, type.shape);
}

static void embedding_gradient(exporter *ex, const exported *in, exported *out)
{
    const clv_type type = out[0].type;
    exported ids = column(ex, in[1]);
    exported d = export_reshape(ex, export_math(ex, in[0]), 2, (int64_t[]){ids.type.shape[0], type.shape[1]});
    clv_type wide = type;
    wide.dtype = d.type.dtype;
    exported zero = export_filled(ex, wide, 0);
    char element[CLV_TYPE_TEXT];
    snprintf(element, sizeof element, "tensor<%s>", clv_dtype_name(d.type.dtype));
    exported sum = export_line(
        ex, wide,
        "\"stablehlo.scatter\"(%%%d, %%%d, %%%d) <{indices_are_sorted = false, scatter_dimension_numbers = "
        "#stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], "
        "index_vector_dim = 1>, unique_indices = false}> ({\n    ^bb0(%%a: %s, %%b: %s):\n      %%c = stablehlo.add "
        "%%a, %%b : %s\n      stablehlo.return %%c : %s\n    }) : (%s, %s, %s) -> %s",
        zero.id, ids.id, d.id, element, element, element, element, export_type(&wide).text, export_type(&ids.type).text,
        export_type(&d.type).text, export_type(&wide).text);
    if (ex->op->n_in > 2 && export_given(&in[2]))
        sum = export_binary(ex, "add", export_cast(ex, in[2], wide.dtype), sum);
    out[0] = export_cast(ex, sum, type.dtype);
}

/* ---- rotary positions ---- */

/* Angles [B or 1, S, dims / 2], f64. */
static exported angles(exporter *ex, const clv_type *x, exported offset, int64_t pairs)
{
    const int64_t seq = x->shape[1];
    char *numbers = NULL;
    size_t size = 0;
    FILE *list = open_memstream(&numbers, &size);
    for (int64_t i = 0; list && i < pairs; i++)
        fprintf(list, "%s%.17e", i ? ", " : "", clv_rope_frequency_of(ex->op, i));
    if (!list || fclose(list) != 0) {
        ex->fault = "whose frequencies need more memory";
        return (exported){0};
    }
    const clv_type type = export_shaped(CLV_F64, 3, (int64_t[]){1, 1, pairs});
    exported frequency =
        export_line(ex, type, "stablehlo.constant dense<[[[%s]]]> : %s", numbers, export_type(&type).text);
    free(numbers);
    exported position = export_iota(ex, export_shaped(CLV_I32, 2, (int64_t[]){1, seq}), 1);
    if (export_given(&offset))
        position = export_binary(ex, "add", position, offset.type.rank == 1 ? export_unsqueeze(ex, offset, 1) : offset);
    position = export_unsqueeze(ex, export_cast(ex, position, CLV_F64), 2);
    return export_binary(ex, "multiply", position, frequency);
}

/* The first or second elements of the pairs of the last dimension, whose first `dims` elements are rotated. */
static exported side_of(exporter *ex, exported x, int64_t dims, bool interleaved, int side)
{
    const int last = x.type.rank - 1;
    if (!interleaved)
        return export_part(ex, x, last, side * dims / 2, (side + 1) * dims / 2);
    int64_t shape[CLV_MAX_RANK];
    exported pairs = export_part(ex, x, last, 0, dims);
    for (int d = 0; d < last; d++)
        shape[d] = x.type.shape[d];
    shape[last] = dims / 2;
    shape[last + 1] = 2;
    return export_at(ex, export_reshape(ex, pairs, last + 2, shape), last + 1, side);
}

/* x with pairs (a, b) of its first `dims` elements as (a cos[0] - b sin[0], b cos[1] + a sin[1]). */
static exported rotated(exporter *ex, exported x, const exported cosine[2], const exported sine[2], int64_t dims,
                        bool interleaved)
{
    const clv_dtype dtype = x.type.dtype;
    const int last = x.type.rank - 1;
    const int64_t width = x.type.shape[last];
    exported wide = export_math(ex, x), a = side_of(ex, wide, dims, interleaved, 0),
             b = side_of(ex, wide, dims, interleaved, 1), parts[3];
    parts[0] = export_binary(ex, "subtract", export_binary(ex, "multiply", a, cosine[0]),
                             export_binary(ex, "multiply", b, sine[0]));
    parts[1] = export_binary(ex, "add", export_binary(ex, "multiply", b, cosine[1]),
                             export_binary(ex, "multiply", a, sine[1]));
    if (interleaved) {
        clv_type type = wide.type;
        type.shape[last] = dims;
        exported both[] = {export_unsqueeze(ex, parts[0], last + 1), export_unsqueeze(ex, parts[1], last + 1)};
        parts[0] = export_reshape(ex, export_join(ex, both, 2, last + 1), type.rank, type.shape);
    }
    int n = interleaved ? 1 : 2;
    if (dims < width)
        parts[n++] = export_part(ex, wide, last, dims, width);
    return export_cast(ex, n > 1 ? export_join(ex, parts, n, last) : parts[0], dtype);
}

static exported rotated_by(exporter *ex, exported x, exported angle, int64_t dims, bool interleaved, bool inverse)
{
    const clv_dtype math = x.type.dtype == CLV_F64 ? CLV_F64 : CLV_F32;
    exported cosine = export_unsqueeze(ex, export_cast(ex, export_unary(ex, "cosine", angle), math), 2);
    exported sine = export_unsqueeze(ex, export_cast(ex, export_unary(ex, "sine", angle), math), 2);
    if (inverse)
        sine = export_unary(ex, "negate", sine);
    return rotated(ex, x, (exported[]){cosine, cosine}, (exported[]){sine, sine}, dims, interleaved);
}

static void rotate(exporter *ex, const exported *in, exported *out)
{
    const bool interleaved = export_whole(ex, "interleaved", 0);
    const int last = in[0].type.rank - 1;
    const int64_t width = in[0].type.shape[last];
    exported tables[2][2];
    for (int table = 0; table < 2; table++)
        for (int side = 0; side < 2; side++)
            tables[table][side] = in[1 + table].type.shape[last] == width
                                      ? side_of(ex, in[1 + table], width, interleaved, side)
                                      : in[1 + table];
    if (export_whole(ex, "transposed", 0)) {
        const exported first = tables[1][0];
        tables[1][0] = export_unary(ex, "negate", tables[1][1]);
        tables[1][1] = export_unary(ex, "negate", first);
    }
    out[0] = rotated(ex, in[0], tables[0], tables[1], width, interleaved);
}

/* Of packed keys and values [B,S,2,K,D] the keys alone. */
static void rope(exporter *ex, const exported *in, exported *out)
{
    const exported offset = ex->op->n_in > 1 ? in[1] : (exported){.type = {.rank = -1}};
    const bool packed = in[0].type.rank == 5, interleaved = export_whole(ex, "interleaved", 0),
               inverse = export_whole(ex, "inverse", 0);
    const int64_t dims = export_whole(ex, "dims", 0);
    exported angle = angles(ex, &in[0].type, offset, dims / 2);
    if (ex->fault)
        return;
    out[0] = rotated_by(ex, packed ? export_at(ex, in[0], 2, 0) : in[0], angle, dims, interleaved, inverse);
    if (packed) {
        exported both[] = {export_unsqueeze(ex, out[0], 2), export_part(ex, in[0], 2, 1, 2)};
        out[0] = export_join(ex, both, 2, 2);
    }
}

/* ---- cross-entropy ---- */

static void xent_max(exporter *ex, const exported *in, exported *out)
{
    exported x = export_math(ex, in[0]);
    out[0] = export_reduce(ex, "maximum", x, 1u << (x.type.rank - 1), -INFINITY);
}

/* logits - max, in f32. */
static exported below_max(exporter *ex, exported logits, exported most)
{
    return export_binary(ex, "subtract", export_math(ex, logits), export_unsqueeze(ex, most, most.type.rank));
}

/* Where the label is: bool [rows..., V]. */
static exported at_label(exporter *ex, exported labels, clv_type type)
{
    type.dtype = labels.type.dtype;
    return export_compare(ex, "EQ", export_iota(ex, type, type.rank - 1),
                          export_unsqueeze(ex, labels, labels.type.rank));
}

static void xent_sums(exporter *ex, const exported *in, exported *out)
{
    exported x = below_max(ex, in[0], in[1]);
    exported chosen = export_select(ex, at_label(ex, in[2], in[0].type), x, export_number(ex, x.type.dtype, 0));
    out[0] = pair_of(ex, last_sum(ex, export_unary(ex, "exponential", x)), last_sum(ex, chosen));
}

static exported is_ignored(exporter *ex, exported labels)
{
    return export_compare(ex, "EQ", labels,
                          export_number(ex, labels.type.dtype, (double)export_whole(ex, "ignored", 0)));
}

static void xent_loss(exporter *ex, const exported *in, exported *out)
{
    const int last = in[0].type.rank - 1;
    exported loss = export_binary(ex, "subtract", export_unary(ex, "log", export_at(ex, in[0], last, 0)),
                                  export_at(ex, in[0], last, 1));
    out[0] = export_select(ex, is_ignored(ex, in[1]), export_number(ex, loss.type.dtype, 0), loss);
}

static void xent_loss_gradient(exporter *ex, const exported *in, exported *out)
{
    exported zero = export_number(ex, in[2].type.dtype, 0);
    exported d = export_select(ex, is_ignored(ex, in[1]), zero, in[2]);
    exported first = export_binary(ex, "divide", d, export_at(ex, in[0], in[0].type.rank - 1, 0));
    out[0] = pair_of(ex, first, export_unary(ex, "negate", d));
}

static void xent_gradient(exporter *ex, const exported *in, exported *out)
{
    exported e = export_unary(ex, "exponential", below_max(ex, in[0], in[1]));
    exported zero = export_number(ex, e.type.dtype, 0);
    exported chosen = export_select(ex, at_label(ex, in[2], in[0].type), part_of(ex, in[3], 1), zero);
    exported d = export_binary(ex, "add", export_binary(ex, "multiply", e, part_of(ex, in[3], 0)), chosen);
    out[0] = export_cast(ex, d, in[0].type.dtype);
}

static void count_labels(exporter *ex, const exported *in, exported *out)
{
    const clv_dtype dtype = out[0].type.dtype;
    exported kept = export_unary(ex, "not", is_ignored(ex, in[0]));
    out[0] = export_reduce(ex, "add", export_cast(ex, kept, dtype), (1u << in[0].type.rank) - 1, 0);
}

const export_row export_layer_rows[] = {
    {&clv_op_moments, moments},
    {&clv_op_normalize, normalize},
    {&clv_op_normalize_sums, normalize_sums},
    {&clv_op_normalize_dx, normalize_dx},
    {&clv_op_normalize_dgain, normalize_dweights},
    {&clv_op_normalize_dweights, normalize_dweights},
    {&clv_op_embedding, embedding},
    {&clv_op_embedding_gradient, embedding_gradient},
    {&clv_op_rope, rope},
    {&clv_op_rotate, rotate},
    {&clv_op_xent_max, xent_max},
    {&clv_op_xent_sums, xent_sums},
    {&clv_op_xent_loss, xent_loss},
    {&clv_op_xent_loss_gradient, xent_loss_gradient},
    {&clv_op_xent_gradient, xent_gradient},
    {&clv_op_count_labels, count_labels},
    {0},
};
