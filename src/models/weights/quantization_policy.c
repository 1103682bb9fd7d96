/* quantization_policy.c - which weights are stored in q8_0/q4_0 blocks and which stay floats; bytes of either. */
#include "models/weights/quantization_policy.h"

#include <string.h>

#include "tensor/quant_block.h"

/* Elements of the last dimension that is contracted; 0: it is no weight of a linear layer. */
static int64_t last_in(const clv_model_config *model, const clv_parameter *p)
{
    size_t n = strlen(p->row->in);
    return n > 0 ? clv_model_dims_elems(model, p->row->in + n - 1) : 0;
}

bool clv_parameter_is_quantized(const clv_model_config *model, const clv_parameter *p)
{
    int64_t in = last_in(model, p);
    return in > 0 && in % CLV_QUANT_BLOCK == 0;
}

bool clv_model_quantizes_tied_table(const clv_model_config *model)
{
    return model->tie_word_embeddings && !model->headless && model->hidden % CLV_QUANT_BLOCK == 0;
}

int64_t clv_model_find_unquantized(const clv_model_config *model, clv_parameter *first)
{
    int64_t n = 0;
    for (int64_t i = 0; i < clv_model_parameter_count(model); i++) {
        clv_parameter p = clv_model_parameter_at(model, i);
        if (last_in(model, &p) == 0 || clv_parameter_is_quantized(model, &p))
            continue;
        if (n++ == 0 && first)
            *first = p;
    }
    return n;
}

/* Of elements in blocks: integers, and a scale of f16 a block. */
static int64_t bytes_in_blocks(int64_t elems, clv_quant how)
{
    return elems / CLV_QUANT_BLOCK * (clv_quant_block_bytes(how) + 2);
}

int64_t clv_model_storage_bytes(const clv_model_config *model, clv_dtype floats, clv_quant how)
{
    int64_t bytes = 0, each = (int64_t)clv_dtype_size(floats);
    for (int64_t i = 0; i < clv_model_parameter_count(model); i++) {
        clv_parameter p = clv_model_parameter_at(model, i);
        int64_t elems = clv_parameter_elems(&p);
        bytes +=
            how != CLV_QUANT_NONE && clv_parameter_is_quantized(model, &p) ? bytes_in_blocks(elems, how) : each * elems;
    }
    if (how != CLV_QUANT_NONE && clv_model_quantizes_tied_table(model))
        bytes += bytes_in_blocks(model->vocab * model->hidden, how);
    return bytes;
}

clv_graph_quantization clv_model_graph_quant(const clv_model_config *model, clv_quant how)
{
    return (clv_graph_quantization){.how = how, .ffn_split_at_blocks = model->ffn % CLV_QUANT_BLOCK == 0};
}
