/* weight_storage.h - how weights are stored: which are quantized, their tensors in files, their states in a graph.
 *
 * A quantized model (q8_0, q4_0) stores a weight of a linear layer, the output projection included, quantized if the
 * last dimension of its `in` is a multiple of 32. If the embeddings are tied, their table is stored twice: as floats,
 * of which rows are picked, and quantized, for the output projection. Norms, biases and positions stay floats.
 *
 * In a graph (nn/stored_weight.h, state_source.c) a weight W [in..., (parts,) out...] is one of
 *
 *   storage    states                                                                op
 *   dense      "W" [in..., (parts,) out...]                                          einsum
 *   prepacked  "W.packed" [(parts,) out..., out / 16, in..., 16]                     packed_dot
 *   quantized  "W.ints" u8 [(parts,) out..., in.../32, 32 or 16], "W.scales" f16     quant_dot
 *
 * In files a weight is stored as floats under Hugging Face's names (parameter_map.h), or quantized, under cleave's:
 *
 *   "W.q8_0" u8 [(parts,) out..., in.../32, 34]   blocks of a scale, f16, and 32 signed integers
 *   "W.q4_0" u8 [(parts,) out..., in.../32, 18]   blocks of a scale, and 16 bytes of two integers each, 8 added
 *
 * whose bytes are GGUF's block_q8_0 and block_q4_0, little-endian.
 */
#pragma once

#include "models/weights/parameter_map.h"
#include "nn/stored_weight.h"

/* Forms of a parameter: a tied table has both. */
typedef struct clv_parameter_storage {
    bool floats, blocks;
} clv_parameter_storage;
clv_parameter_storage clv_parameter_storage_of(const clv_model_config *model, const clv_parameter *parameter,
                                               clv_quant quant);

/* Number of weights of linear layers that a quantized model stores as floats; *first receives the first. */
int64_t clv_model_find_unquantized(const clv_model_config *model, clv_parameter *first);
/* CLV_EUNSUPPORTED for registered families, and if no weight would be quantized. */
clv_status clv_quant_check_model(const clv_model_config *model, clv_quant quant, clv_error *err);
/* Bytes of all weights, each once. */
int64_t clv_model_storage_bytes(const clv_model_config *model, clv_dtype floats, clv_quant quant);
/* The quantization of the model's graph. */
clv_graph_quantization clv_model_graph_quant(const clv_model_config *model, clv_quant quant);

/* ---- in files ---- */

/* How the files store the model's weights: as most of the weights that can be quantized. */
clv_quant clv_stored_quant_detect(const clv_weights *weights, const clv_model_config *model);
/* Number of tensors that store this parameter, as for clv_parameter_tensor_count. */
int clv_stored_tensor_count(const clv_model_config *model, const clv_parameter *parameter, clv_quant quant);
/* Tensor i of a parameter; the quantized one comes first. */
clv_model_tensor clv_stored_tensor(const clv_model_config *model, const clv_parameter *parameter, clv_quant quant,
                                   int i);
/* The quantized tensor of a parameter. */
clv_model_tensor clv_quantized_tensor(const clv_parameter *parameter, clv_quant quant);
/* Finds a tensor in files, under any spelling of its name; CLV_ENOTFOUND. */
clv_status clv_stored_tensor_find(const clv_safetensor **out, const clv_weights *weights, const clv_model_config *model,
                                  const clv_model_tensor *tensor, clv_error *err);
