/* llama_weights.h - a Llama-form model's parameters, ours and Hugging Face's.
 *
 *   ours                             shape      Hugging Face                               shape
 *   embed.weight                     [V,M]      model.embed_tokens.weight                  [V, M]
 *   layers.<i>.attention.norm.weight [M]        model.layers.<i>.input_layernorm.weight    [M]
 *   layers.<i>.attention.q.weight    [M,H,D]    ...self_attn.q_proj.weight                 [H*D, M]
 *   layers.<i>.attention.kv.weight   [M,2,K,D]  ...self_attn.k_proj.weight, v_proj.weight  [K*D, M] each
 *   layers.<i>.attention.o.weight    [H,D,M]    ...self_attn.o_proj.weight                 [M, H*D]
 *   layers.<i>.mlp.norm.weight       [M]        ...post_attention_layernorm.weight         [M]
 *   layers.<i>.mlp.gate_up.weight    [M,2,F]    ...mlp.gate_proj.weight, up_proj.weight    [F, M] each
 *   layers.<i>.mlp.down.weight       [F,M]      ...mlp.down_proj.weight                    [M, F]
 *   final_norm.weight                [M]        model.norm.weight                          [M]
 *   lm_head.weight (when untied)     [M,V]      lm_head.weight                             [V, M]
 *
 * Theirs multiply from the right, [out, in]; ours are [in, out], so products are transposed on the way. Rotary
 * embedding is the half-split form on both sides: heads are not permuted.
 */
#ifndef CLEAVE_MODELS_LLAMA_WEIGHTS_H
#define CLEAVE_MODELS_LLAMA_WEIGHTS_H

#include "cleave/layout.h"
#include "io/weights.h"
#include "models/llama_config.h"

enum { CLV_PARAMETER_NAME_SIZE = 64 };

typedef struct clv_llama_parameter {
    char name[CLV_PARAMETER_NAME_SIZE];
    int rank;
    int64_t shape[CLV_MAX_RANK];
    int row;       /* of the map */
    int64_t layer; /* -1 outside of layers */
} clv_llama_parameter;

/* Parameters in the order of the table above, layer by layer. */
int64_t clv_llama_parameter_count(const clv_llama_config *config);
clv_llama_parameter clv_llama_parameter_at(const clv_llama_config *config, int64_t i);
/* By our name; CLV_ENOTFOUND when the model has no such parameter. */
clv_status clv_llama_parameter_find(clv_llama_parameter *out, const clv_llama_config *config, const char *name,
                                    clv_error *err);

/* Verifies that the folder has every tensor of the model in its shape and a dtype that can be read, and no layer
 * more: CLV_EFORMAT (CLV_ENOTFOUND) with the tensor. */
clv_status clv_llama_check_weights(const clv_weights *weights, const clv_llama_config *config, clv_error *err);

/* Reads a box (NULL for all) of our parameter `name` into out, row-major, f32. Only the box's bytes are read from the
 * files, in strips of about a MiB. Safe from several threads. */
clv_status clv_llama_read_parameter(const clv_weights *weights, const clv_llama_config *config, const char *name,
                                    const clv_shard *box, float *out, clv_error *err);

/* Starts a model.safetensors at `path` that holds every parameter, in f32; commit or abandon it as any writer. */
clv_status clv_llama_create_weights(clv_safetensors_writer **out, const clv_llama_config *config, const char *path,
                                    clv_error *err);
/* Writes a box (NULL for all) of our parameter `name`. Boxes come in any order, from any thread; each element exactly
 * once (one replica of each writes). */
clv_status clv_llama_write_parameter(clv_safetensors_writer *writer, const clv_llama_config *config, const char *name,
                                     const clv_shard *box, const float *data, clv_error *err);

#endif
