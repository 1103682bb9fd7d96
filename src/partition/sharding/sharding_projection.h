/* sharding_projection.h - factor shardings to operand and result layouts (projection, as in Shardy). */
#ifndef CLEAVE_PARTITION_SHARDING_SHARDING_PROJECTION_H
#define CLEAVE_PARTITION_SHARDING_SHARDING_PROJECTION_H

#include "partition/sharding/op_strategy.h"

/* How one factor is cut. */
typedef struct clv_factor_sharding {
    int n;
    clv_subaxis axes[CLV_MAX_ATOMS];
    int64_t blocks;
    int64_t alignment; /* in elements of the factor */
    bool remainder;    /* takes what the more major factor of its dimension leaves (clv_factor.overflow) */
} clv_factor_sharding;

typedef struct clv_sharding_projection {
    clv_factor_sharding factor[CLV_MAX_FACTORS];
    int n_partial; /* subaxes over which partial operands pass */
    clv_subaxis partial[CLV_MAX_ATOMS];
    clv_reduction partial_reduction;
} clv_sharding_projection;

/* Fixed a problem: each factor's alignment, and in which order subaxes cut it (as operands have it, else as the mesh).
 * */
typedef struct clv_projection_context {
    int64_t alignment[CLV_MAX_FACTORS];
    int order[CLV_MAX_FACTORS][CLV_MAX_ATOMS]; /* subaxes, major to minor */
} clv_projection_context;

void clv_projection_context_make(clv_projection_context *out, const clv_strategy_problem *problem,
                                 const clv_subaxis *subaxes, int n_subaxes);

/* False when the assignment is illegal: a factor that must be whole, blocks that cannot be formed. */
bool clv_sharding_projection_make(clv_sharding_projection *out, const clv_strategy_problem *problem,
                                  const clv_projection_context *context, const clv_subaxis *subaxes,
                                  const int8_t *choice, int n_subaxes);

/* The layouts of operand i / result o; false when there is none. */
bool clv_projection_operand_layout(clv_layout *out, const clv_strategy_problem *problem,
                                   const clv_sharding_projection *splits, int i);
bool clv_projection_result_layout(clv_layout *out, const clv_strategy_problem *problem,
                                  const clv_sharding_projection *splits, int o);

/* Whether partial operands may pass over the subaxis. */
bool clv_projection_may_stay_partial(const clv_strategy_problem *problem, clv_subaxis subaxis);

/* The dimension that holds factor f; -1: none. */
int clv_projection_dim_of_factor(const clv_dim_factors *dims, int rank, int f);

#endif
