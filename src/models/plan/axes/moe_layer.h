/* moe_layer.h - what one rank computes of a layer with experts, as a graph of its own: no collectives, each expert gets
 * equally many tokens. Its program gives seconds and activations; what goes between ranks is priced in moe_cost.c.
 */
#ifndef CLEAVE_MODELS_PLAN_AXES_MOE_LAYER_H
#define CLEAVE_MODELS_PLAN_AXES_MOE_LAYER_H

#include "models/plan/axes/moe_config.h"
#include "cleave/graph.h"

typedef enum clv_moe_part { CLV_MOE_EXPERTS, CLV_MOE_WINDOWED, CLV_MOE_DENSE, CLV_MOE_HEAD } clv_moe_part;

typedef struct clv_moe_rank {
    clv_dtype dtype;
    int64_t batch, seq; /* sequences of a microbatch, and the rank's tokens of each */
    int64_t model;      /* ranks that split heads, MLPs and, outside of these, the sequence */
    int64_t expert;     /* ranks that the experts are on */
} clv_moe_rank;

/* Adds `layers` layers of a kind, or the head, forward and backward. */
void clv_moe_layer_build(clv_graph *graph, const clv_moe_config *config, const clv_moe_rank *rank, clv_moe_part part,
                         int64_t layers);

#endif
