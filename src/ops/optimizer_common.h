/* optimizer_common.h - helpers of optimizer ops: shape, rule, cost; moments and master copies. Their operands are the
 * parameter, its moments, the gradient, lr, perhaps others, and at last, optional, what the gradient is multiplied
 * by; results are parameter and moments, in place, and perhaps the parameter rounded.
 */
#ifndef CLEAVE_OPS_OPTIMIZER_COMMON_H
#define CLEAVE_OPS_OPTIMIZER_COMMON_H

#include "graph/graph.h"

/* ---- the op ---- */

/* Parameter, moments and gradient are alike, moments of the dtype of statistics, lr and the scale f32 numbers;
 * results are types of parameter and moments. A result behind these is for the op to say. */
clv_status clv_update_shape(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err);
/* A clv_op_def.rule: every dimension passes. */
void clv_update_rule(const clv_op *op, const clv_type *in, const clv_type *out, clv_rule *rule);
/* So many flops an element; parameter, moments and gradient are read, results written. */
clv_op_cost clv_update_cost(const clv_op *op, const clv_type *in, const clv_type *out, double flops);
/* Brings parameter and moments to where results are. What the gradient is multiplied by; NaN: nothing is updated. */
float clv_update_prepare(const clv_call *call);

/* ---- the builder ---- */

/* The gradient of a parameter in this layout, which is its moments': straight from where it is made, not by way of the
 * parameter's layout. A constraint of the backward pass, named after the parameter. */
clv_value clv_constrain_gradient(clv_graph *graph, clv_value parameter, clv_value gradient, const clv_layout *layout);

/* The update of a parameter. */
typedef struct clv_state_update {
    clv_value parameter;
    clv_value updated;        /* the parameter, or of one of 16 bits an f32 copy ".master" that begins as it does */
    clv_value gradient;       /* laid out as moments are */
    const clv_layout *layout; /* of moments; NULL: the parameter's */
} clv_state_update;

/* False: the graph has failed, or does now. */
bool clv_update_begin(clv_state_update *out, clv_graph *graph, clv_value parameter, clv_value gradient,
                      const clv_layout *layout, const char *call);
/* State "<parameter><suffix>", zeros. */
clv_value clv_update_moment(clv_graph *graph, const clv_state_update *update, const char *suffix);
/* Whether the parameter is the rounding of what is updated. */
bool clv_update_has_master_copy(const clv_state_update *update);
/* Emits the op on `in`, whose last is the scale (CLV_NONE: none), and assigns its results: in[1..] are the moments; a
 * result behind them is the parameter. */
void clv_update_emit(clv_graph *graph, const clv_state_update *update, const clv_op_def *def, const void *attrs,
                     const clv_value *in, int n_in);

#endif
