/* random_source.h - what the generators of random ops share: a stream of numbers, values at hand, shapes and layouts.
 * */
#pragma once

#include "graph/graph.h"
#include "random_graph.h"

enum { RANDOM_ELEMS = 1500 }; /* of a value that ops go on with */

typedef struct random_maker {
    const random_spec *spec;
    random_graph *out;
    clv_graph *graph;
    uint64_t stream;  /* of the op being made */
    uint64_t layouts; /* of its layouts */
    uint64_t layouts_seed;
    int first_axis, n_axes;        /* those that layouts use */
    int stage_axis;                /* -1: none */
    int named_axis;                /* `context` or `expert`, one of those that layouts use; -1: none */
    int slot, n_made;              /* the op being made; leaves it has made */
    clv_dtype dtype;               /* of most leaves */
    clv_value value[RANDOM_SLOTS]; /* floats that ops made; id 0: nothing */
} random_maker;

/* [0, n). */
int64_t random_pick(random_maker *m, int64_t n);
/* True once in n. */
bool random_chance(random_maker *m, int n);
void random_shuffle(random_maker *m, int *items, int n);

clv_type random_type(const random_maker *m, clv_value value);
int64_t random_size(random_maker *m);
/* A divisor of n >= 1. */
int64_t random_divisor(random_maker *m, int64_t n);
clv_dtype random_float(random_maker *m);

/* A float that is there; with elements, if there is one. */
clv_value random_any(random_maker *m);
/* A new input or state. */
clv_value random_new(random_maker *m, clv_dtype dtype, int rank, const int64_t *shape, random_fill fill, int64_t bound);
/* `a` brought to another type: folded, cut, padded, broadcast, cast. */
clv_value random_fit(random_maker *m, clv_value a, const clv_type *type);
/* A float operand of this type: one that is there, one brought to it, or a new leaf. */
clv_value random_operand(random_maker *m, clv_dtype dtype, int rank, const int64_t *shape);
/* Sums the largest dimensions away until RANDOM_ELEMS hold it. */
clv_value random_trim(random_maker *m, clv_value value);

/* Each axis, in one piece or several, cuts dimensions or none. */
clv_layout random_layout(random_maker *m, const clv_type *type);
/* Axes cut the one dimension, as most as each can. */
clv_layout random_cut(random_maker *m, const clv_type *type, int d);
/* Ranks of an axis, of three quarters of the ops; 1: the mesh has none of that name. */
int64_t random_ranks(const random_maker *m, const char *axis);
/* x with a dimension over them. */
clv_value random_over(random_maker *m, clv_value x, int d, const char *axis);

/* ---- random_ops.c ---- */

/* Makes a random op (or a few) of values at hand; id 0: none of those there fits. `differentiable`: only ops that pass
 * gradients. */
clv_value random_op(random_maker *m, bool differentiable);
/* Of the dtype of a float at hand. */
clv_value random_attention(random_maker *m, clv_value a);
clv_value random_experts(random_maker *m, clv_value a);
/* The same of a maximum over a dimension that ranks split, or of two; it may get each rank's part. */
clv_value random_op_of_maxima(random_maker *m, bool differentiable);
