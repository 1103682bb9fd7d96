/* stored_weight.h - a layer's weight storage: dense, prepacked (GEMM panels) or quantized (blocks).
 *
 *   floats      state "<name>" [in..., (parts,) out...]; the product is an einsum
 *   packed      state "<name>.packed" [(parts,) out..., out / 16, in..., 16] of the same floats, as kernels read them;
 *               the product is packed_dot (ops/prepacked_dot.c)
 *   quantised   states "<name>.ints" u8 [(parts,) out..., in.../32, 32 or 16] and "<name>.scales" f16 without the last
 *               dimension; the product is quant_dot (ops/quantized_dot.c)
 *
 * An adapter's product is added (lora.h); models have none beside quantised weights. A graph is told so, and
 * families of models know nothing of it. Packed, a weight is split as it is else; one whose last dimension is no
 * multiple of 16 times all ranks, or which is small, stays floats in their own order. Quantised, a weight is split as
 * its floats would be, over its last dimension of `in` by whole blocks; one whose last dimension of `in` is no multiple
 * of 32 stays floats.
 */
#ifndef CLEAVE_NN_STORED_WEIGHT_H
#define CLEAVE_NN_STORED_WEIGHT_H

#include <stdbool.h>

#include "cleave/nn.h"
#include "nn/lora.h"

/* Behind the weight's name. */
#define CLV_PACKED       ".packed"
#define CLV_QUANT_INTS   ".ints"
#define CLV_QUANT_SCALES ".scales"

typedef struct clv_graph_quantization {
    clv_quant how;
    bool ffn_split_at_blocks; /* CLV_HIDDEN is a multiple of 32, and cut at such */
} clv_graph_quantization;

/* Whether weights with a last dimension of `in` of this size are quantised. */
bool clv_nn_is_quantized(const clv_graph *graph, int64_t in);

/* A weight as a layer asks for it. */
typedef struct clv_weight_spec {
    const char *name;
    clv_dtype dtype; /* of floats */
    int rank, n_in;  /* n_in >= 1 leading dimensions are contracted, with the last of x */
    const int64_t *shape;
    const clv_logical_axis *names;
    const clv_layout *layout; /* NULL: by the names */
    clv_init init;
} clv_weight_spec;

typedef struct clv_stored_weight {
    clv_value weight; /* CLV_NONE: one of these is there */
    clv_value packed;
    clv_value ints, scales;
    clv_lora_target floats; /* that it is of */
} clv_stored_weight;

/* Its state, which never moves over the axes that products are split by. */
clv_stored_weight clv_nn_stored_weight(clv_graph *graph, const clv_axis_rules *rules, const clv_weight_spec *spec);

/* x by it, its adapter's product added: letters as clv_nn_product takes them; rows NULL: A, B, ... */
clv_value clv_nn_stored_weight_product(clv_graph *graph, clv_value x, const clv_axis_rules *rules,
                                       const clv_stored_weight *weight, const char *rows, const char *in,
                                       const char *kernel, const char *out);

#endif
