/* sharding_projection.h - factor shardings to operand and result layouts (projection, as in Shardy). */
#pragma once

#include "partition/sharding/op_strategy.h"

/* Sharding of one factor. */
typedef struct clv_factor_sharding {
    int n;
    clv_subaxis axes[CLV_MAX_SUBAXES];
    int64_t blocks;
    int64_t alignment; /* in elements of the factor */
    bool remainder;    /* takes the blocks that the factor before it cannot (clv_factor.overflow) */
} clv_factor_sharding;

typedef struct clv_sharding_projection {
    clv_factor_sharding factor[CLV_MAX_FACTORS];
    int n_partial; /* sub-axes over which partial operands give partial results */
    clv_subaxis partial[CLV_MAX_SUBAXES];
    clv_reduction partial_reduction;
} clv_sharding_projection;

/* What is equal for all assignments of a problem: alignments of factors, and the order of sub-axes in each factor: as
 * the available layouts have it, else as the mesh. */
typedef struct clv_projection_context {
    int64_t alignment[CLV_MAX_FACTORS];
    int order[CLV_MAX_FACTORS][CLV_MAX_SUBAXES]; /* indices of sub-axes, major to minor */
} clv_projection_context;

void clv_projection_context_make(clv_projection_context *out, const clv_strategy_problem *problem,
                                 const clv_subaxis *subaxes, int n_subaxes);

/* Makes the shardings of factors for an assignment; false if it is illegal. */
bool clv_sharding_projection_make(clv_sharding_projection *out, const clv_strategy_problem *problem,
                                  const clv_projection_context *context, const clv_subaxis *subaxes,
                                  const int8_t *choice, int n_subaxes);

/* Projects them to the layout of operand i, or result o; false if there is no such layout. */
bool clv_projection_operand_layout(clv_layout *out, const clv_strategy_problem *problem,
                                   const clv_sharding_projection *splits, int i);
bool clv_projection_result_layout(clv_layout *out, const clv_strategy_problem *problem,
                                  const clv_sharding_projection *splits, int o);

/* Whether operands that are partial over the sub-axis may give results that are. */
bool clv_projection_may_stay_partial(const clv_strategy_problem *problem, clv_subaxis subaxis);

/* The dimension that contains factor f; -1: none. */
int clv_projection_dim_of_factor(const clv_dim_factors *dims, int rank, int f);
