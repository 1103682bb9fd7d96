/* quantize_on_load.c - presents a float checkpoint as a quantized one; blocks are computed when they are read (cleave
 * shard).
 */
#include "models/weights/quantize_on_load.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "models/weights/quantized_weights.h"
#include "models/weights/weight_storage.h"
#include "tensor/quant_block.h"

/* A tensor: unchanged, or quantized. */
typedef struct entry {
    char name[CLV_TENSOR_NAME_SIZE]; /* of a quantized tensor */
    const clv_safetensor *as_is;     /* NULL: quantized */
    clv_parameter parameter;
} entry;

struct clv_quantize_on_load {
    const clv_weights *floats;
    const clv_model_config *model;
    clv_quant quant;
    int64_t n;
    entry *entries; /* in the order of the file's tensors */
    clv_weights *weights;
};

/* ---- reading ---- */

static clv_status make_blocks(const clv_quantize_on_load *b, const clv_parameter *p, const clv_shard *box, uint8_t *out,
                              clv_error *err)
{
    clv_shard scales_box = *box;
    scales_box.rank--;
    const int64_t blocks = clv_shard_elems(&scales_box), bytes = clv_quant_block_bytes(b->quant);
    CLV_FREED uint8_t *ints = malloc((size_t)(blocks * bytes) + 1);
    CLV_FREED uint16_t *scales = malloc((size_t)blocks * sizeof *scales + 1);
    if (!ints || !scales)
        return clv_fail_memory(err, p->name, (size_t)(blocks * bytes));
    CLV_TRY(clv_quantize_parameter(b->quant, b->floats, b->model, p, &scales_box, ints, scales, err));
    clv_quantized_blocks_pack(b->quant, out, ints, scales, blocks);
    return CLV_OK;
}

/* A clv_tensor_reader. Quantized tensors are read by whole blocks, in their own shape. */
static clv_status read_entry(const void *arg, const clv_safetensor *t, int rank, const int64_t *shape,
                             const clv_shard *box, clv_dtype dtype, void *out, clv_error *err)
{
    const clv_quantize_on_load *b = arg;
    const clv_safetensors *file = clv_weights_file(b->weights, 0);
    const entry *e = &b->entries[t - clv_safetensors_at(file, 0)];
    if (e->as_is)
        return clv_safetensors_read_as(e->as_is, rank, shape, box, dtype, out, err);
    const int last = t->rank - 1;
    if (rank != t->rank || dtype != CLV_U8 || box->lo[last] != 0 || box->hi[last] != t->shape[last])
        return clv_fail(err, CLV_EINVAL, "%s: a part of a block cannot be read; valid: whole blocks", t->name);
    return make_blocks(b, &e->parameter, box, out, err);
}

/* ---- tensors ---- */

/* Marks the tensors that are replaced by quantized ones. */
static clv_status mark_replaced(bool *replaced, const clv_quantize_on_load *b, clv_error *err)
{
    for (int64_t i = 0; i < clv_model_parameter_count(b->model); i++) {
        const clv_parameter p = clv_model_parameter_at(b->model, i);
        const int n =
            clv_parameter_storage_of(b->model, &p, b->quant).floats ? 0 : clv_parameter_tensor_count(b->model, &p);
        for (int k = 0; k < n; k++) {
            const clv_safetensor *found;
            CLV_TRY(
                clv_model_find_tensor(&found, b->floats, b->model, clv_parameter_tensor(b->model, &p, k).name, err));
            replaced[clv_weights_index_of(b->floats, found)] = true;
        }
    }
    return CLV_OK;
}

static clv_status add_as_is(clv_quantize_on_load *b, clv_tensor_spec *specs, const clv_safetensor *t, clv_error *err)
{
    if (!t->readable)
        return clv_fail(err, CLV_EUNSUPPORTED, "%s: dtype %s is not supported in a folder of quantized weights",
                        t->name, t->dtype_name);
    clv_tensor_spec *spec = &specs[b->n];
    *spec = (clv_tensor_spec){.name = clv_weights_bare_name(b->floats, t), .dtype = t->dtype, .rank = t->rank};
    memcpy(spec->shape, t->shape, sizeof spec->shape);
    b->entries[b->n++].as_is = t;
    return CLV_OK;
}

static clv_status list_tensors(clv_quantize_on_load *b, clv_tensor_spec *specs, bool *replaced, clv_error *err)
{
    CLV_TRY(mark_replaced(replaced, b, err));
    for (int64_t i = 0; i < clv_weights_count(b->floats); i++)
        if (!replaced[i])
            CLV_TRY(add_as_is(b, specs, clv_weights_at(b->floats, i), err));
    for (int64_t i = 0; i < clv_model_parameter_count(b->model); i++) {
        entry *e = &b->entries[b->n];
        e->parameter = clv_model_parameter_at(b->model, i);
        if (!clv_parameter_storage_of(b->model, &e->parameter, b->quant).blocks)
            continue;
        const clv_model_tensor t = clv_quantized_tensor(&e->parameter, b->quant);
        memcpy(e->name, t.name, sizeof e->name);
        specs[b->n] = (clv_tensor_spec){.name = e->name, .dtype = CLV_U8, .rank = t.rank};
        memcpy(specs[b->n++].shape, t.shape, sizeof t.shape);
    }
    return CLV_OK;
}

/* ---- the file ---- */

static clv_status open_listed(clv_quantize_on_load *b, const clv_tensor_spec *specs, clv_error *err)
{
    clv_safetensors *file;
    char *header;
    uint64_t data_bytes;
    CLV_TRY(clv_safetensors_make_header(&header, &data_bytes, specs, b->n, err));
    clv_status status = clv_safetensors_open_header(&file, clv_weights_single_name, header, strlen(header), data_bytes,
                                                    read_entry, b, err);
    free(header);
    CLV_TRY(status);
    status = clv_weights_from_file(&b->weights, file, clv_weights_single_name, err);
    if (status != CLV_OK)
        clv_safetensors_close(file);
    return status;
}

clv_status clv_quantize_on_load_open(clv_quantize_on_load **out, const clv_weights *floats,
                                     const clv_model_config *model, clv_quant quant, clv_error *err)
{
    const size_t most = (size_t)(clv_weights_count(floats) + clv_model_parameter_count(model)) + 1;
    clv_quantize_on_load *b = calloc(1, sizeof *b);
    if (!b)
        return clv_fail_memory(err, "weights in blocks", sizeof *b);
    *b = (clv_quantize_on_load){
        .floats = floats, .model = model, .quant = quant, .entries = calloc(most, sizeof(entry))};
    clv_tensor_spec *specs = calloc(most, sizeof *specs);
    bool *replaced = calloc(most, sizeof *replaced);
    clv_status status = b->entries && specs && replaced
                            ? list_tensors(b, specs, replaced, err)
                            : clv_fail_memory(err, "weights in blocks", most * sizeof(entry));
    if (status == CLV_OK)
        status = open_listed(b, specs, err);
    free(specs);
    free(replaced);
    if (status == CLV_OK)
        *out = b;
    else
        clv_quantize_on_load_close(b);
    return status;
}

const clv_weights *clv_quantize_on_load_weights(const clv_quantize_on_load *b)
{
    return b->weights;
}

void clv_quantize_on_load_close(clv_quantize_on_load *b)
{
    if (!b)
        return;
    clv_weights_close(b->weights);
    free(b->entries);
    free(b);
}
