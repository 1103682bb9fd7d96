/* lora.h - LoRA adapters of a graph: which weights have one, and the product that layers add (Hu et al. 2021,
 * arXiv:2106.09685). To x W is added
 *
 *   scale * (x A) B,   A [in, R], B [R, out],   in and out being the dimensions of W
 *
 * A graph is told which weights have one, and every layer that makes a product by such a weight adds it, so families
 * of models know nothing of them. A is laid out as W is over its dimensions `in`, B over `out`: where W is split by
 * columns A is replicated and B split; where by rows A is split, and what comes of B is partial sums as W's product
 * is, so that one collective sums both. With dropout A takes dropout(x), which PEFT's lora_dropout is: by x's places
 * in
 * the whole, so that nothing moves for it.
 */
#ifndef CLEAVE_NN_LORA_H
#define CLEAVE_NN_LORA_H

#include "cleave/nn.h"

typedef struct clv_lora_adapter {
    const char *a, *b; /* names of state, full; weights of one input may share A */
    int64_t rank;
    double scale;
    int parts;        /* of a weight [in, parts, out]; 0: it has none */
    bool a_has_parts; /* A is [in, parts, R]: one for each */
    int part;         /* the only one that it is for, B being [R, out]; -1: all, B is [R, parts, out] */
} clv_lora_adapter;

typedef struct clv_graph_lora {
    /* Of a weight by its full name; false: it has none. Names live as long as the graph. */
    bool (*find)(clv_lora_adapter *out, clv_graph *graph, const char *weight, const void *arg);
    const void *arg;
    double dropout; /* of what A takes; by the key and A's name */
    clv_key dropout_key;
    clv_value dropout_step;
    clv_value x, a, x_times_a; /* the last product x A: the next weight may have the same */
} clv_graph_lora;

/* A weight of floats, whether they are held as such or not (stored_weight.h). */
typedef struct clv_lora_target {
    const char *name; /* of its state, if that were of floats; NULL: the graph has no adapters */
    clv_type type;
    clv_layout layout;
    int n_in;                      /* leading dimensions that are contracted, with the last of x */
    const clv_logical_axis *names; /* of its dimensions */
} clv_lora_target;

/* y, the product of x and the weight, and its adapter's if the graph has one. */
clv_value clv_nn_add_lora(clv_graph *graph, clv_value y, clv_value x, const clv_axis_rules *rules,
                          const clv_lora_target *weight);

#endif
