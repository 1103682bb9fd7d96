/* weight_storage.c - how weights are stored: which are quantized, their tensors in files, their states in a graph. */
#include "models/weights/weight_storage.h"

#include <stdio.h>
#include <string.h>

#include "models/families/model_family.h"
#include "models/weights/quantized_weights.h"
#include "tensor/quant_block.h"

/* Whether feed-forward networks, those of experts, too, can be split at blocks. */
static bool ffn_splits_at_blocks(const clv_model_config *model)
{
    return model->ffn % CLV_QUANT_BLOCK == 0 && model->expert_ffn % CLV_QUANT_BLOCK == 0 &&
           model->shared_ffn % CLV_QUANT_BLOCK == 0;
}

/* Elements of the last dimension of `in`; 0: not a weight of a linear layer, or one of a router or gate, which is
 * stored as floats. Both weights of experts are in blocks, or none: one op multiplies by them. */
static int64_t last_in(const clv_model_config *model, const clv_parameter *p)
{
    size_t n = strlen(p->row->in);
    if (n == 0 || p->row->out[0] == 'E' || p->row->out[0] == '1')
        return 0;
    if (p->row->by_expert && (model->expert_ffn % CLV_QUANT_BLOCK != 0 || model->hidden % CLV_QUANT_BLOCK != 0))
        return 1;
    return clv_model_dims_elems(model, p->row->in + n - 1);
}

clv_parameter_storage clv_parameter_storage_of(const clv_model_config *model, const clv_parameter *p, clv_quant quant)
{
    const int64_t in = last_in(model, p);
    const bool is_tied_table = p->row == model->family->parameters && model->tie_word_embeddings && !model->headless;
    const bool blocks = quant != CLV_QUANT_NONE && ((in > 0 && in % CLV_QUANT_BLOCK == 0) ||
                                                    (is_tied_table && model->hidden % CLV_QUANT_BLOCK == 0));
    return (clv_parameter_storage){.floats = !blocks || is_tied_table, .blocks = blocks};
}

int64_t clv_model_find_unquantized(const clv_model_config *model, clv_parameter *first)
{
    int64_t n = 0;
    for (int64_t i = 0; i < clv_model_parameter_count(model); i++) {
        const clv_parameter p = clv_model_parameter_at(model, i);
        if (last_in(model, &p) > 0 && last_in(model, &p) % CLV_QUANT_BLOCK != 0 && n++ == 0)
            *first = p;
    }
    return n;
}

clv_status clv_quant_check_model(const clv_model_config *model, clv_quant quant, clv_error *err)
{
    if (model->family->is_custom)
        return clv_fail(err, CLV_EUNSUPPORTED, "weights in %s: %s is a registered family; valid: built-in families",
                        clv_quant_name(quant), model->family->model_type);
    for (int64_t i = 0; i < clv_model_parameter_count(model); i++) {
        const clv_parameter p = clv_model_parameter_at(model, i);
        if (!clv_parameter_storage_of(model, &p, quant).floats)
            return CLV_OK;
    }
    return clv_fail(err, CLV_EUNSUPPORTED,
                    "weights in %s: no weight has rows of a multiple of %d elements (hidden %lld, head size %lld, ffn "
                    "%lld)",
                    clv_quant_name(quant), CLV_QUANT_BLOCK, (long long)model->hidden, (long long)model->head_dim,
                    (long long)model->ffn);
}

int64_t clv_model_storage_bytes(const clv_model_config *model, clv_dtype floats, clv_quant quant)
{
    int64_t bytes = 0;
    for (int64_t i = 0; i < clv_model_parameter_count(model); i++) {
        const clv_parameter p = clv_model_parameter_at(model, i);
        const clv_parameter_storage storage = clv_parameter_storage_of(model, &p, quant);
        const int64_t elems = clv_parameter_elems(&p);
        bytes += storage.floats ? elems * (int64_t)clv_dtype_size(floats) : 0;
        bytes += storage.blocks ? elems / CLV_QUANT_BLOCK * clv_stored_block_bytes(quant) : 0;
    }
    return bytes;
}

clv_graph_quantization clv_model_graph_quant(const clv_model_config *model, clv_quant quant)
{
    return (clv_graph_quantization){.how = quant, .ffn_split_at_blocks = ffn_splits_at_blocks(model)};
}

/* ---- in files ---- */

clv_model_tensor clv_quantized_tensor(const clv_parameter *p, clv_quant quant)
{
    clv_model_tensor t = {.parameter = *p, .quant = quant};
    const int n_in = (int)strlen(p->row->in), stacked = p->row->by_expert;
    const int blocked = n_in > 0 ? stacked + n_in - 1 : p->rank - 1;
    snprintf(t.name, sizeof t.name, "%s.%s_0", p->name, clv_quant_name(quant));
    for (int i = 0; i < p->rank; i++) {
        const int d = clv_quant_stored_dim(i, stacked, n_in, p->rank);
        t.shape[t.rank++] = d == blocked ? p->shape[d] / CLV_QUANT_BLOCK : p->shape[d];
    }
    t.shape[t.rank++] = clv_stored_block_bytes(quant);
    return t;
}

int clv_stored_tensor_count(const clv_model_config *model, const clv_parameter *p, clv_quant quant)
{
    const clv_parameter_storage storage = clv_parameter_storage_of(model, p, quant);
    return storage.blocks + (storage.floats ? clv_parameter_tensor_count(model, p) : 0);
}

clv_model_tensor clv_stored_tensor(const clv_model_config *model, const clv_parameter *p, clv_quant quant, int i)
{
    const bool blocks = clv_parameter_storage_of(model, p, quant).blocks;
    return blocks && i == 0 ? clv_quantized_tensor(p, quant) : clv_parameter_tensor(model, p, i - blocks);
}

clv_status clv_stored_tensor_find(const clv_safetensor **out, const clv_weights *w, const clv_model_config *model,
                                  const clv_model_tensor *tensor, clv_error *err)
{
    return tensor->quant != CLV_QUANT_NONE ? clv_weights_find(out, w, tensor->name, err)
                                           : clv_model_find_tensor(out, w, model, tensor->name, err);
}

clv_quant clv_stored_quant_detect(const clv_weights *w, const clv_model_config *model)
{
    for (clv_quant quant = CLV_QUANT_NONE + 1; quant < CLV_QUANT_COUNT; quant++) {
        int64_t all = 0, stored = 0;
        for (int64_t i = 0; i < clv_model_parameter_count(model); i++) {
            const clv_parameter p = clv_model_parameter_at(model, i);
            if (!clv_parameter_storage_of(model, &p, quant).blocks)
                continue;
            all++;
            stored += clv_weights_has(w, clv_quantized_tensor(&p, quant).name);
        }
        if (2 * stored > all)
            return quant;
    }
    return CLV_QUANT_NONE;
}
