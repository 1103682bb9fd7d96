/* plan_price.h - predicts memory and seconds of a plan, by part; of a deep model from programs of a few layers.
 *
 * Layers of a model are identical, and so are microbatches, so that seconds and memory are affine in the number of
 * both, from the second layer and the fourth microbatch on. tests/test_plan_search.c holds the estimates to whole
 * programs.
 */
#ifndef CLEAVE_MODELS_PLAN_PLAN_PRICE_H
#define CLEAVE_MODELS_PLAN_PLAN_PRICE_H

#include "models/plan/plan_internal.h"

/* Parts of a step's seconds. Those of collectives come in pairs: inside hosts, and over the network. */
typedef enum clv_time_part {
    CLV_TIME_PRODUCTS,   /* matmuls and attention */
    CLV_TIME_RECOMPUTED, /* ops that the backward pass repeats */
    CLV_TIME_OTHER_OPS,  /* elementwise ops, copies */
    CLV_TIME_WEIGHTS,    /* gathers of parameters */
    CLV_TIME_WEIGHTS_FAR,
    CLV_TIME_GRADIENTS, /* reductions of gradients, and collectives of the update */
    CLV_TIME_GRADIENTS_FAR,
    CLV_TIME_ACTIVATIONS, /* of tensor and sequence parallelism, and resharding */
    CLV_TIME_ACTIVATIONS_FAR,
    /* of what is planned, not run */
    CLV_TIME_BUBBLE,
    CLV_TIME_SENDS,   /* between stages */
    CLV_TIME_CONTEXT, /* exchanges along the sequence */
    CLV_TIME_EXPERTS, /* all-to-alls between experts */
    CLV_TIME_COUNT
} clv_time_part;

/* All are linear in what repeats. */
typedef struct clv_price {
    double memory;        /* bytes of a rank */
    double seconds;       /* of a step */
    double communication; /* of these, exposed */
    double overlapped;    /* seconds of collectives that overlap with ops, not in `seconds` */
    double model_seconds; /* model flops of a rank at the machine's peak: MFU times seconds */
    double part[CLV_TIME_COUNT];
} clv_price;

/* What is known of a model or block before it is planned. */
typedef struct clv_price_shape {
    int64_t layers;     /* 0: a block */
    bool layers_repeat; /* its layers are identical */
    bool bidirectional;
    int64_t heads;
    int64_t parameters;          /* of a model */
    clv_reshard_cache *reshards; /* as in clv_compile_to_price; NULL: none */
} clv_price_shape;

clv_status clv_price_shape_compute(clv_price_shape *out, const clv_plan_options *options, clv_error *err);

/* The price of the whole program. */
clv_status clv_price_whole(clv_price *out, const clv_plan_options *options, clv_error *err);
/* The same, from programs of at most three layers and five microbatches where more of them repeat. *exact: whether it
 * is that of the whole program. */
clv_status clv_price_estimate(clv_price *out, bool *exact, const clv_plan_options *options,
                              const clv_price_shape *shape, clv_error *err);
/* Corrects an estimate by a program of all layers, with as many of the microbatches as compile in half a second: large
 * programs are packed less well (clv_compile_options.greedy_by_size_limit). */
clv_status clv_price_refine(clv_price *inout, const clv_plan_options *options, const clv_price_shape *shape,
                            clv_error *err);

#endif
