/* lora.h - LoRA adapters of a graph (Hu et al. 2021, arXiv:2106.09685): the product that layers add to x W.
 *
 *   scale * (x A) B,   A [in, R], B [R, out],   where in and out are the dimensions of W
 *
 * The graph says which weights have an adapter (graph->adapters), and every layer that multiplies by such a weight adds
 * its product, so model families need no code for adapters. A is sharded like W over `in`, B like W over `out`: if W is
 * split by columns, A is replicated and B is split; if W is split by rows, A is split, and the product with B is a
 * partial sum like that with W, so that one collective reduces both. With dropout, A multiplies dropout(x), as PEFT's
 * lora_dropout does. The mask depends on global positions, so it needs no communication.
 */
#pragma once

#include "cleave/nn.h"

typedef struct clv_lora_adapter {
    const char *a, *b; /* full names of their state; weights of the same input may share A */
    int64_t rank;
    double scale;
    int parts;        /* of a weight [in, parts, out]; 0: the weight is [in, out] */
    bool a_has_parts; /* A is [in, parts, R]: one A for each part */
    int part;         /* the only part that is adapted, B is [R, out]; -1: all parts, B is [R, parts, out] */
} clv_lora_adapter;

typedef struct clv_graph_lora {
    /* Finds the adapter of a weight by its full name; false: none. Its names must live as long as the graph. */
    bool (*find)(clv_lora_adapter *out, clv_graph *graph, const char *weight, const void *arg);
    const void *arg;
    double dropout; /* dropout probability of the input of A; the random key is dropout_key and A's name */
    clv_key dropout_key;
    clv_value dropout_step;
    clv_value x, a, x_times_a; /* the last product x A, which the next weight may reuse */
} clv_graph_lora;

/* An adapted weight as it would be if it were dense (stored_weight.h). */
typedef struct clv_lora_target {
    const char *name; /* full name of its dense state; NULL: the graph has no adapters */
    clv_type type;
    clv_layout layout;
    int n_in;                      /* leading dimensions that are contracted, with the last dimensions of x */
    const clv_logical_axis *names; /* logical axes of its dimensions */
} clv_lora_target;

/* Returns y, the product of x and the weight, plus the product of the weight's adapter if it has one. */
clv_value clv_nn_add_lora(clv_graph *graph, clv_value y, clv_value x, const clv_axis_rules *rules,
                          const clv_lora_target *weight);
