/* stored_weight.h - how a layer stores its weight: dense, prepacked (GEMM panels) or quantized (blocks of 32).
 *
 *   dense      state "<name>" [in..., (parts,) out...]; the product is an einsum
 *   prepacked  state "<name>.packed" [(parts,) out..., out / 16, in..., 16]: the same elements in the order that the
 *              GEMM kernels read; the product is packed_dot (ops/stored_weight_dot.c)
 *   quantized  states "<name>.ints" u8 [(E,) (parts,) out..., in.../32, 32 or 16] and "<name>.scales" f16 without the
 *              last dimension; the product is quant_dot (ops/stored_weight_dot.c), of experts' quant_experts
 *              (ops/experts.c)
 *
 * The graph says which storage layers use (graph->quant, graph->packs), so that model families need not know. LoRA
 * products are added to all three (lora.h). A weight is split as it would be if it were dense, with these conditions:
 * prepacking needs a last dimension that is a multiple of 16 times the number of ranks, and a weight that is not small;
 * quantization needs a last `in` dimension that is a multiple of 32, which is then split at blocks. Other weights stay
 * dense.
 */
#pragma once

#include <stdbool.h>

#include "cleave/nn.h"
#include "nn/lora.h"

/* Suffixes of the weight's name. */
#define CLV_PACKED       ".packed"
#define CLV_QUANT_INTS   ".ints"
#define CLV_QUANT_SCALES ".scales"

typedef struct clv_graph_quantization {
    clv_quant how;
    bool ffn_split_at_blocks; /* the size of CLV_MLP is a multiple of 32, and it is split at blocks of 32 */
} clv_graph_quantization;

/* Whether the graph quantizes, and this size of a weight's last contracted dimension can be: a multiple of 32. */
bool clv_nn_is_weight_quantized(const clv_graph *graph, int64_t contracted_size);

/* A layer's description of a weight. */
typedef struct clv_weight_spec {
    const char *name;
    clv_dtype dtype; /* of the dense weight */
    int rank, n_in;  /* the first n_in >= 1 dimensions are contracted, with the last dimensions of x */
    const int64_t *shape;
    const clv_logical_axis *names;
    const clv_layout *layout; /* NULL: by the names */
    clv_init init;
    int stacked; /* dimensions before the contracted ones: 1 of experts' weights */
} clv_weight_spec;

/* The states of a weight: `weight` (dense), `packed` (prepacked), or `ints` and `scales` (quantized). */
typedef struct clv_stored_weight {
    clv_value weight, packed, ints, scales; /* CLV_NONE: not stored this way */
    clv_lora_target dense;                  /* the weight as it would be if it were dense */
} clv_stored_weight;

/* Adds the weight's state, pinned over its tensor-parallel axes. */
clv_stored_weight clv_nn_stored_weight(clv_graph *graph, const clv_axis_rules *rules, const clv_weight_spec *spec);

/* The product of x and the weight, plus its LoRA product. rows: letters of x's leading dimensions, NULL: A, B, ...; the
 * other letters are as in clv_nn_product. */
clv_value clv_nn_stored_weight_product(clv_graph *graph, clv_value x, const clv_axis_rules *rules,
                                       const clv_stored_weight *weight, const char *rows, const char *in,
                                       const char *kernel, const char *out);
