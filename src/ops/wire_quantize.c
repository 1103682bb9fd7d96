/* wire_quantize.c - 8-bit block quantization of f32 tensors for compressed collectives: quantize, dequantize and sum.
 *
 *   pack:    out[..., j] = record j of x[...]: piece j of the last dimension in blocks of 32, each an f32 scale and
 *            8 bits an element: scale = largest |x| of the block / 126, code = x / scale to nearest, ties to even
 *   unpack:  out = the sum, in order, over the first dimension of x where it has one more, of what records say
 *
 * Off by half a scale an element at most: a 252nd of the largest finite |x| of its block. NaN, infinity and minus
 * infinity have codes of their own, so each arrives as itself and leaves its neighbours alone.
 *
 * Programs get these when they are lowered; no graph has them. Pieces are what layouts cut the last dimension into, so
 * that a record is never cut.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "ops/builtin_ops.h"
#include "ops/operand_checks.h"

enum { BLOCK = 32, MOST_CODE = 126, INFINITE = 127, NOT_A_NUMBER = -128 };

static const clv_attr pack_fields[] = {{"size", CLV_ATTR_INT64, offsetof(clv_wire_quantize_attrs, size), 1},
                                       {"alignment", CLV_ATTR_INT64, offsetof(clv_wire_quantize_attrs, alignment), 1},
                                       {"pieces", CLV_ATTR_INT64, offsetof(clv_wire_quantize_attrs, pieces), 1},
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

/* The scales of all blocks, then the codes; what a shorter piece leaves is zero. */
static void pack_record(uint8_t *record, const clv_wire_quantize_attrs *a, const float *x, int64_t n)
{
    uint8_t *codes = record + 4 * blocks_of(longest_piece(a));
    memset(record, 0, (size_t)clv_wire_record_bytes(a));
    for (int64_t first = 0; first < n; first += BLOCK) {
        int64_t here = n - first < BLOCK ? n - first : BLOCK;
        float scale = scale_of(x + first, here);
        memcpy(record + 4 * (first / BLOCK), &scale, sizeof scale);
        for (int64_t i = 0; i < here; i++)
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

/* Row `row` of f32 and the same of records: the pieces that a rank has follow one another in both. */
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
    int64_t rows = clv_view_rows(out, 1);
    (void)err;
    for (int64_t row = 0; row < rows; row++)
        each_piece(call->op->attrs, (float *)x->data + row * x->shape[x->rank - 1],
                   (uint8_t *)out->data + row * out->shape[out->rank - 1], out, true, false);
    return CLV_OK;
}

static clv_status unpack_run(const clv_call *call, clv_error *err)
{
    const clv_view *x = &call->in[0], *out = &call->out[0];
    int64_t addends = x->rank > out->rank ? x->shape[0] : 1, length = x->shape[x->rank - 1];
    int64_t rows = addends > 0 ? clv_view_rows(x, 1) / addends : 0;
    (void)err;
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
