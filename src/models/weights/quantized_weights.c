/* quantized_weights.c - quantized weights: reads stored blocks, or quantizes a checkpoint's floats. */
#include "models/weights/quantized_weights.h"

#include "kernels/cpu/gemm/gemm_quantized.h"
#include "models/weights/weight_storage.h"
#include "tensor/box_copy.h"
#include "tensor/box_runs.h"

enum { SCALE_BYTES = 2, CHUNK_BYTES = 1 << 20 };

/* ---- stored blocks ---- */

/* q8 integers are signed in files, and offset by 128 in products. */
static uint8_t flip_sign(clv_quant quant, uint8_t byte)
{
    return quant == CLV_QUANT_Q8 ? byte ^ 0x80 : byte;
}

void clv_quantized_blocks_pack(clv_quant quant, uint8_t *stored, const uint8_t *ints, const uint16_t *scales,
                               int64_t blocks)
{
    const int64_t n = clv_quant_block_bytes(quant);
    for (int64_t b = 0; b < blocks; b++, stored += clv_stored_block_bytes(quant), ints += n) {
        stored[0] = (uint8_t)scales[b];
        stored[1] = (uint8_t)(scales[b] >> 8);
        for (int64_t i = 0; i < n; i++)
            stored[SCALE_BYTES + i] = flip_sign(quant, ints[i]);
    }
}

void clv_quantized_blocks_unpack(clv_quant quant, uint8_t *ints, uint16_t *scales, const uint8_t *stored,
                                 int64_t blocks)
{
    const int64_t n = clv_quant_block_bytes(quant);
    for (int64_t b = 0; b < blocks; b++, stored += clv_stored_block_bytes(quant)) {
        scales[b] = (uint16_t)(stored[0] | stored[1] << 8);
        for (int64_t i = 0; ints && i < n; i++)
            ints[b * n + i] = flip_sign(quant, stored[SCALE_BYTES + i]);
    }
}

clv_status clv_read_quantized_blocks(const clv_safetensor *t, clv_quant quant, const clv_shard *box, uint8_t *ints,
                                     uint16_t *scales, clv_error *err)
{
    const int64_t block_bytes = clv_stored_block_bytes(quant);
    clv_shard bytes = *box, chunk;
    int64_t done = 0;
    CLV_FREED uint8_t *buffer = malloc(CHUNK_BYTES);
    if (!buffer)
        return clv_fail_memory(err, t->name, CHUNK_BYTES);
    bytes.lo[bytes.rank] = 0;
    bytes.hi[bytes.rank++] = block_bytes;
    while (clv_box_next_chunk(&chunk, &done, &bytes, CHUNK_BYTES)) {
        const int64_t n = clv_shard_elems(&chunk) / block_bytes, from = done / block_bytes - n;
        CLV_TRY(clv_safetensors_read(t, &chunk, CLV_U8, buffer, err));
        clv_quantized_blocks_unpack(quant, ints ? ints + from * clv_quant_block_bytes(quant) : NULL, scales + from,
                                    buffer, n);
    }
    return CLV_OK;
}

/* ---- quantizing floats ---- */

typedef struct quantizer {
    clv_quant quant;
    uint8_t *ints; /* NULL: only scales */
    uint16_t *scales;
    int64_t blocks; /* per row */
} quantizer;

/* A clv_rows_callback. */
static void quantize_rows(void *arg, int64_t row, int64_t rows, const float *x)
{
    const quantizer *q = arg;
    int64_t at = row * q->blocks;
    clv_quantize(q->quant, q->ints ? q->ints + at * clv_quant_block_bytes(q->quant) : NULL, q->scales + at, x,
                 rows * q->blocks);
}

clv_status clv_quantize_parameter(clv_quant quant, const clv_weights *weights, const clv_model_config *model,
                                  const clv_parameter *p, const clv_shard *box, uint8_t *ints, uint16_t *scales,
                                  clv_error *err)
{
    const int n_in = p->row->in[0] ? (int)strlen(p->row->in) : 1; /* the table has no `in`; its last dimension counts */
    clv_shard floats = *box;
    quantizer q = {.quant = quant, .ints = ints, .scales = scales, .blocks = 1};
    floats.lo[box->rank - 1] *= CLV_QUANT_BLOCK;
    floats.hi[box->rank - 1] *= CLV_QUANT_BLOCK;
    for (int d = box->rank - n_in; d < box->rank; d++)
        q.blocks *= box->hi[d] - box->lo[d];
    return clv_model_read_rows(weights, model, p->name, &floats, quantize_rows, &q, err);
}

/* ---- states ---- */

/* Scales that were computed with their integers, until they are read. */
typedef struct clv_kept_scales {
    struct clv_kept_scales *next;
    char name[CLV_PARAMETER_NAME_SIZE];
    clv_shard box; /* of scales */
    uint16_t scales[];
} clv_kept_scales;

void clv_kept_scales_free(clv_kept_scales *list)
{
    while (list) {
        clv_kept_scales *next = list->next;
        free(list);
        list = next;
    }
}

/* Removes the scales of a box from the list; NULL: not there. */
static clv_kept_scales *take_scales(const clv_model *m, const char *name, const clv_shard *box)
{
    pthread_mutex_lock(&m->cache->lock);
    clv_kept_scales **at = &m->cache->scales;
    while (*at && !(strcmp((*at)->name, name) == 0 && clv_shard_equal(&(*at)->box, box)))
        at = &(*at)->next;
    clv_kept_scales *found = *at;
    if (found)
        *at = found->next;
    pthread_mutex_unlock(&m->cache->lock);
    return found;
}

static clv_status read_blocks(const clv_state_read_request *r, const clv_shard *box, uint8_t *ints, uint16_t *scales,
                              clv_error *err)
{
    const clv_model_weights *w = r->model->weights;
    const clv_quant quant = r->model->quant;
    const clv_safetensor *stored;
    if (!w)
        return clv_fail(err, CLV_EUNSUPPORTED, "%s: weights in %s need the weights of a folder, and the model has none",
                        r->name, clv_quant_name(quant));
    if (w->inventory.quant == CLV_QUANT_NONE)
        return clv_quantize_parameter(quant, w->files, &r->model->config, &r->parameter, box, ints, scales, err);
    const clv_model_tensor tensor = clv_quantized_tensor(&r->parameter, quant);
    CLV_TRY(clv_weights_find(&stored, w->files, tensor.name, err));
    return clv_read_quantized_blocks(stored, quant, box, ints, scales, err);
}

clv_status clv_read_quantized_ints_and_keep_scales(const clv_state_read_request *r, clv_error *err)
{
    clv_shard box = *r->box;
    box.rank--;
    const size_t bytes = sizeof(clv_kept_scales) + (size_t)clv_shard_elems(&box) * sizeof(uint16_t);
    clv_kept_scales *kept = malloc(bytes);
    if (!kept)
        return clv_fail_memory(err, r->name, bytes);
    memcpy(kept->name, r->parameter.name, sizeof kept->name);
    kept->box = box;
    clv_status status = read_blocks(r, &box, r->out, kept->scales, err);
    if (status != CLV_OK) {
        free(kept);
        return status;
    }
    pthread_mutex_lock(&r->model->cache->lock);
    kept->next = r->model->cache->scales;
    r->model->cache->scales = kept;
    pthread_mutex_unlock(&r->model->cache->lock);
    return CLV_OK;
}

clv_status clv_read_quantized_scales(const clv_state_read_request *r, clv_error *err)
{
    clv_kept_scales *kept = take_scales(r->model, r->parameter.name, r->box);
    if (!kept)
        return read_blocks(r, r->box, NULL, r->out, err);
    memcpy(r->out, kept->scales, (size_t)clv_shard_elems(r->box) * sizeof *kept->scales);
    free(kept);
    return CLV_OK;
}
