/* search.h - the cheapest assignment of atoms to factors, by branch and bound.
 *
 * It gives what pricing every assignment in order gives, and prices no change of layout before work and a lower bound on
 * bytes (bound.h) say that it may matter. clv_strategy_choose is its only user.
 */
#ifndef CLEAVE_PARTITION_SEARCH_H
#define CLEAVE_PARTITION_SEARCH_H

#include "partition/split.h"
#include "partition/strategy.h"

/* The assignments of one problem under one division of the mesh axes into atoms. */
typedef struct clv_space {
    const clv_problem *problem;
    clv_split_context context;
    bool keep; /* operands stay in place where that is asked for */
    int n_atoms;
    clv_subaxis atom[CLV_MAX_ATOMS];
    int n_choices[CLV_MAX_ATOMS]; /* what each atom may do, in order of preference among equal prices */
    int8_t choice[CLV_MAX_ATOMS][CLV_MAX_FACTORS + 2];
} clv_space;

/* *best is replaced if the space has a cheaper strategy, or if *found is false and it has a legal one. */
clv_status clv_search_space(clv_strategy *best, bool *found, const clv_space *space, clv_error *err);

#endif
