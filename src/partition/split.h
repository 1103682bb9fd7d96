/* split.h - from an assignment of atoms to factors to the layouts of operands and results. */
#ifndef CLEAVE_PARTITION_SPLIT_H
#define CLEAVE_PARTITION_SPLIT_H

#include "partition/strategy.h"

/* How one factor is cut. */
typedef struct clv_factor_split {
    int n;
    clv_subaxis axes[CLV_MAX_ATOMS];
    int64_t blocks;
    int64_t granule; /* in elements of the factor */
    bool remainder;  /* takes what the more major factor of its dimension leaves (clv_factor.spill) */
} clv_factor_split;

typedef struct clv_splits {
    clv_factor_split factor[CLV_MAX_FACTORS];
    int n_partial; /* atoms over which partial operands pass */
    clv_subaxis partial[CLV_MAX_ATOMS];
    clv_reduction partial_reduction;
} clv_splits;

/* Fixed a problem: each factor's granule, and in which order atoms cut it (as operands have it, else as the mesh). */
typedef struct clv_split_context {
    int64_t granule[CLV_MAX_FACTORS];
    int order[CLV_MAX_FACTORS][CLV_MAX_ATOMS]; /* atoms, major to minor */
} clv_split_context;

void clv_split_context_make(clv_split_context *out, const clv_problem *problem, const clv_subaxis *atoms, int n_atoms);

/* False when the assignment is illegal: a factor that must be whole, blocks that cannot be formed. */
bool clv_splits_make(clv_splits *out, const clv_problem *problem, const clv_split_context *context,
                     const clv_subaxis *atoms, const int8_t *choice, int n_atoms);

/* The layouts of operand i / result o; false when there is none. */
bool clv_split_operand(clv_layout *out, const clv_problem *problem, const clv_splits *splits, int i);
bool clv_split_result(clv_layout *out, const clv_problem *problem, const clv_splits *splits, int o);

/* Whether partial operands may pass over the atom. */
bool clv_split_may_pass(const clv_problem *problem, clv_subaxis atom);

/* The dimension that holds factor f; -1: none. */
int clv_split_dim_of(const clv_dim_factors *dims, int rank, int f);

#endif
