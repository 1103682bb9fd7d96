/* context.h - prices what ranks exchange for attention where they share a sequence (context parallelism): keys and
 * values, round a ring or gathered, or heads, all to all. */
#ifndef CLEAVE_MODELS_PLAN_AXES_CONTEXT_H
#define CLEAVE_MODELS_PLAN_AXES_CONTEXT_H

#include "cleave/plan_estimate.h"

/* Attention of a layer, on one of `ranks` that share each sequence. Its parts of the sequence are chosen so that causal
 * attention is equal on all (an early one and a late one: zig-zag). */
typedef struct clv_context_layer {
    int64_t ranks;
    double tokens;            /* of a rank, in a microbatch */
    int64_t heads, kv_heads;  /* of a rank */
    int64_t head_dim;         /* of queries, and of keys and values on average */
    double forward, backward; /* seconds of its attention to the whole sequence */
    bool recomputes;          /* the backward pass repeats the forward one, and its exchange */
    clv_machine_link link;
    double memory_bytes_per_s;
    int64_t element_bytes;
    double ring_efficiency; /* the machine's */
} clv_context_layer;

/* Seconds of a microbatch: what no op hides, and what ops hide; and ops that join the blocks' results. */
typedef struct clv_context_cost {
    clv_context_exchange exchange;
    double exposed, hidden, ops;
} clv_context_cost;

/* The exchange that takes the least, or the ring that the software has. */
clv_context_cost clv_context_cheapest(const clv_context_layer *layer);

#endif
