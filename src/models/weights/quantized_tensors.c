/* quantized_tensors.c - on-disk format of quantized weights: tensors "<parameter>.q8_0" and ".q4_0" (GGUF block
 * layout).
 */
#include "models/weights/quantized_tensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "models/weights/quantization_policy.h"
#include "tensor/box_runs.h"
#include "tensor/quant_block.h"

enum { SCALE_BYTES = 2, PIECE_BYTES = 1 << 20 };

static int64_t block_bytes(clv_quant how)
{
    return SCALE_BYTES + clv_quant_block_bytes(how);
}

/* ---- which parameters, and under which names ---- */

static bool is_quantized_table(const clv_model_config *model, const clv_parameter *p)
{
    const clv_parameter table = clv_model_parameter_at(model, 0);
    return clv_model_quantizes_tied_table(model) && strcmp(p->name, table.name) == 0;
}

bool clv_parameter_stored_as_blocks(const clv_model_config *model, const clv_parameter *p)
{
    return clv_parameter_is_quantized(model, p) || is_quantized_table(model, p);
}

bool clv_parameter_stored_as_floats(const clv_model_config *model, const clv_parameter *p)
{
    return !clv_parameter_is_quantized(model, p);
}

clv_tensor_spec clv_quantized_tensor_spec(char name[CLV_TENSOR_NAME_SIZE], const clv_parameter *p, clv_quant how)
{
    clv_tensor_spec spec = {.name = name, .dtype = CLV_U8};
    const int n_in = (int)strlen(p->row->in), last_in = n_in > 0 ? n_in - 1 : p->rank - 1;
    snprintf(name, CLV_TENSOR_NAME_SIZE, "%s.%s_0", p->name, clv_quant_name(how));
    for (int d = n_in; d < p->rank; d++)
        spec.shape[spec.rank++] = d == last_in ? p->shape[d] / CLV_QUANT_BLOCK : p->shape[d];
    for (int d = 0; d < n_in; d++)
        spec.shape[spec.rank++] = d == last_in ? p->shape[d] / CLV_QUANT_BLOCK : p->shape[d];
    spec.shape[spec.rank++] = block_bytes(how);
    return spec;
}

clv_status clv_quantized_tensor_find(const clv_safetensor **out, const clv_weights *w, const clv_parameter *p,
                                     clv_quant how, clv_error *err)
{
    char name[CLV_TENSOR_NAME_SIZE];
    clv_quantized_tensor_spec(name, p, how);
    return clv_weights_find(out, w, name, err);
}

/* The kind that most of the parameters have which would be in blocks: a tensor that strays there, or is missing,
 * changes nothing in that, and is told by who checks them. */
clv_quant clv_quantized_tensors_detect(const clv_weights *w, const clv_model_config *model)
{
    int64_t all = 0, of[CLV_QUANT_COUNT] = {0};
    for (int64_t i = 0; i < clv_model_parameter_count(model); i++) {
        const clv_parameter p = clv_model_parameter_at(model, i);
        char name[CLV_TENSOR_NAME_SIZE];
        if (!clv_parameter_stored_as_blocks(model, &p))
            continue;
        all++;
        for (int how = CLV_QUANT_NONE + 1; how < CLV_QUANT_COUNT; how++) {
            clv_quantized_tensor_spec(name, &p, (clv_quant)how);
            of[how] += clv_weights_has(w, name);
        }
    }
    for (int how = CLV_QUANT_NONE + 1; how < CLV_QUANT_COUNT; how++)
        if (2 * of[how] > all)
            return (clv_quant)how;
    return CLV_QUANT_NONE;
}

/* ---- bytes ---- */

/* Integers of q8 are signed in files, and begin at 0 beside products. */
static uint8_t turned(clv_quant how, uint8_t byte)
{
    return how == CLV_QUANT_Q8 ? byte ^ 0x80 : byte;
}

void clv_quantized_blocks_pack(clv_quant how, uint8_t *stored, const uint8_t *ints, const uint16_t *scales,
                               int64_t blocks)
{
    const int64_t n = clv_quant_block_bytes(how);
    for (int64_t b = 0; b < blocks; b++, stored += block_bytes(how), ints += n) {
        stored[0] = (uint8_t)scales[b];
        stored[1] = (uint8_t)(scales[b] >> 8);
        for (int64_t i = 0; i < n; i++)
            stored[SCALE_BYTES + i] = turned(how, ints[i]);
    }
}

void clv_quantized_blocks_unpack(clv_quant how, uint8_t *ints, uint16_t *scales, const uint8_t *stored, int64_t blocks)
{
    const int64_t n = clv_quant_block_bytes(how);
    for (int64_t b = 0; b < blocks; b++, stored += block_bytes(how)) {
        scales[b] = (uint16_t)(stored[0] | stored[1] << 8);
        for (int64_t i = 0; ints && i < n; i++)
            ints[b * n + i] = turned(how, stored[SCALE_BYTES + i]);
    }
}

clv_status clv_quantized_tensor_read(const clv_safetensor *t, clv_quant how, const clv_shard *box, uint8_t *ints,
                                     uint16_t *scales, clv_error *err)
{
    clv_shard bytes = *box, piece;
    clv_status status = CLV_OK;
    int64_t done = 0;
    uint8_t *buffer = malloc(PIECE_BYTES);
    if (!buffer)
        return clv_fail_memory(err, t->name, PIECE_BYTES);
    bytes.lo[bytes.rank] = 0;
    bytes.hi[bytes.rank++] = block_bytes(how);
    while (status == CLV_OK && clv_box_next_chunk(&piece, &done, &bytes, PIECE_BYTES)) {
        const int64_t n = clv_shard_elems(&piece) / block_bytes(how), from = done / block_bytes(how) - n;
        status = clv_safetensors_read(t, &piece, CLV_U8, buffer, err);
        if (status == CLV_OK)
            clv_quantized_blocks_unpack(how, ints ? ints + from * clv_quant_block_bytes(how) : NULL, scales + from,
                                        buffer, n);
    }
    free(buffer);
    return status;
}
