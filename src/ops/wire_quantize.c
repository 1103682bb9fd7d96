/* wire_quantize.c - 8-bit block quantization of f32 tensors for compressed collectives: quantize, dequantize and sum.
 *
 *   pack:    out[..., j] = record j: block-quantized piece j of the last dimension of x. A record has, for each block
 *   of
 *            32 elements, an f32 scale = largest |x| / 126, and 8 bits for each element: x / scale, to nearest even.
 *   unpack:  out = the values of the records; if x has one dimension more, their sum, in order, over the first
 *   dimension
 *
 * The error of an element is at most half a scale: 1/252 of the largest finite |x| of its block. NaN, infinity and
 * minus infinity have their own codes, so they are preserved and do not affect their neighbours.
 *
 * Only lowering adds these ops, to programs. Pieces are the blocks of the layouts that split the last dimension, so
 * that no record is split.
 */
#include <float.h>
#include <math.h>

#include "ops/builtin_ops.h"

enum { BLOCK = 32, MOST_CODE = 126, INFINITE = 127, NOT_A_NUMBER = -128 };

static const clv_attr pack_fields[] = {CLV_FIELD(INT64, clv_wire_quantize_attrs, size),
                                       CLV_FIELD(INT64, clv_wire_quantize_attrs, alignment),
                                       CLV_FIELD(INT64, clv_wire_quantize_attrs, pieces),
                                       {0}};

static int64_t longest_piece(const clv_wire_quantize_attrs *a)
{
    return (a->size / a->alignment + a->pieces - 1) / a->pieces * a->alignment;
}

static int64_t blocks_of(int64_t elems)
{
    return (elems + BLOCK - 1) / BLOCK;
}

int64_t clv_wire_record_bytes(const clv_wire_quantize_attrs *a)
{
    int64_t codes = longest_piece(a);
    return 4 * (blocks_of(codes) + (codes + 3) / 4);
}

/* ---- a block ---- */

static float scale_of(const float *x, int64_t n)
{
    float most = 0;
    for (int64_t i = 0; i < n; i++) {
        float size = fabsf(x[i]);
        most = size <= FLT_MAX && size > most ? size : most;
    }
    return most / MOST_CODE;
}

static int8_t code_of(float x, float scale)
{
    if (isnan(x))
        return NOT_A_NUMBER;
    if (isinf(x))
        return x > 0 ? INFINITE : -INFINITE;
    float code = scale > 0 ? nearbyintf(x / scale) : 0;
    return (int8_t)(code > MOST_CODE ? MOST_CODE : code < -MOST_CODE ? -MOST_CODE : code);
}

static float value_of(int8_t code, float scale)
{
    if (code > MOST_CODE || code < -MOST_CODE)
        return code == NOT_A_NUMBER ? NAN : code > 0 ? INFINITY : -INFINITY;
    float value = (float)code * scale;
    return value > FLT_MAX ? FLT_MAX : value < -FLT_MAX ? -FLT_MAX : value;
}

/* ---- a record ---- */

/* Writes the scales of all blocks, then the codes; a record of a shorter piece ends with zeros. */
static void pack_record(uint8_t *record, const clv_wire_quantize_attrs *a, const float *x, int64_t n)
{
    uint8_t *codes = record + 4 * blocks_of(longest_piece(a));
    memset(record, 0, (size_t)clv_wire_record_bytes(a));
    for (int64_t first = 0; first < n; first += BLOCK) {
        int64_t count = n - first < BLOCK ? n - first : BLOCK;
        float scale = scale_of(x + first, count);
        memcpy(record + 4 * (first / BLOCK), &scale, sizeof scale);
        for (int64_t i = 0; i < count; i++)
            codes[first + i] = (uint8_t)code_of(x[first + i], scale);
    }
}

static void unpack_record(float *y, const clv_wire_quantize_attrs *a, const uint8_t *record, int64_t n, bool add)
{
    const uint8_t *codes = record + 4 * blocks_of(longest_piece(a));
    for (int64_t i = 0; i < n; i++) {
        float scale;
        memcpy(&scale, record + 4 * (i / BLOCK), sizeof scale);
        float value = value_of((int8_t)codes[i], scale);
        y[i] = add ? y[i] + value : value;
    }
}

/* ---- tensors ---- */

/* Packs or unpacks one row: the pieces that the rank holds, which are consecutive in x and in records. */
static void each_piece(const clv_wire_quantize_attrs *a, float *x, uint8_t *records, const clv_view *packed, bool packs,
                       bool add)
{
    int last = packed->rank - 1;
    int64_t record = clv_wire_record_bytes(a), first = packed->lo[last] / record, n = packed->shape[last] / record;
    for (int64_t j = first; j < first + n; j++) {
        int64_t lo, hi;
        clv_block_range(a->size, a->alignment, a->pieces, j, &lo, &hi);
        if (packs)
            pack_record(records, a, x, hi - lo);
        else
            unpack_record(x, a, records, hi - lo, add);
        x += hi - lo;
        records += record;
    }
}

static clv_status pack_run(const clv_call *call, clv_error *err)
{
    const clv_view *x = &call->in[0], *out = &call->out[0];
    int64_t rows = clv_view_row_count(out, 1);
    for (int64_t row = 0; row < rows; row++)
        each_piece(call->op->attrs, (float *)x->data + row * x->shape[x->rank - 1],
                   (uint8_t *)out->data + row * out->shape[out->rank - 1], out, true, false);
    return CLV_OK;
}

static clv_status unpack_run(const clv_call *call, clv_error *err)
{
    const clv_view *x = &call->in[0], *out = &call->out[0];
    int64_t addends = x->rank > out->rank ? x->shape[0] : 1, length = x->shape[x->rank - 1];
    int64_t rows = addends > 0 ? clv_view_row_count(x, 1) / addends : 0;
    for (int64_t row = 0; row < addends * rows; row++)
        each_piece(call->op->attrs, (float *)out->data + row % rows * out->shape[out->rank - 1],
                   (uint8_t *)x->data + row * length, x, false, row >= rows);
    return CLV_OK;
}

const clv_op_def clv_op_wire_quantize = {.name = "pack",
                                         .min_in = 1,
                                         .max_in = 1,
                                         .n_out = 1,
                                         .attrs_size = sizeof(clv_wire_quantize_attrs),
                                         .attrs = pack_fields,
                                         .run = pack_run};

const clv_op_def clv_op_wire_dequantize = {.name = "unpack",
                                           .min_in = 1,
                                           .max_in = 1,
                                           .n_out = 1,
                                           .attrs_size = sizeof(clv_wire_quantize_attrs),
                                           .attrs = pack_fields,
                                           .run = unpack_run};
