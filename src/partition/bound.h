/* bound.h - what assignments cost at the least when only their first atoms are decided.
 *
 * Work: what it is when the undecided atoms split all of it. Bytes, for each operand and result, by counting elements:
 * of T bytes, a layout cut into P blocks has T/P a rank on average, and of these a rank holds at most 1/Q if the other
 * layout is cut by atoms of size Q besides. So at least T/P * (1 - 1/Q) bytes move, whatever the shapes: a mean over
 * ranks is no more than the most. Reducing over n ranks moves at least T/ranks * (n - 1), and what a rank then lacks of its
 * part (reshard_reduce.c).
 */
#ifndef CLEAVE_PARTITION_BOUND_H
#define CLEAVE_PARTITION_BOUND_H

#include "partition/search.h"

/* A layout that a tensor has, or is wanted in, whatever the assignment. */
typedef struct clv_bound_layout {
    int8_t dim[CLV_MAX_ATOMS]; /* that each atom cuts */
    uint32_t partial;          /* bit a: partial over atom a */
    uint32_t even;             /* bit d: dimension d is cut into equal blocks */
    double blocks;
} clv_bound_layout;

/* One operand or result. */
typedef struct clv_bound_term {
    bool result;
    double bytes, fan_in;
    int first, n;                     /* its layouts: the cheapest counts; a result that is wanted nowhere has none */
    int8_t cuts[CLV_MAX_FACTORS + 2]; /* by choice + 2: the dimension that it cuts */
    uint32_t may_cut, may_pass;       /* bit a: atom a may cut the tensor; may leave it partial */
} clv_bound_term;

typedef struct clv_bound {
    const clv_space *space;
    double ranks;
    int n_terms;
    clv_bound_term term[CLV_MAX_IN + CLV_MAX_OUT];
    clv_bound_layout *layouts;
} clv_bound;

clv_status clv_bound_make(clv_bound *out, const clv_space *space, clv_error *err);
void clv_bound_free(clv_bound *bound);

/* The least that assignments cost which begin with choice[0 .. n): work, and what terms `first` and later move (operands
 * that are present in order, then results). */
clv_price clv_bound_work(const clv_bound *bound, const int8_t *choice, int n);
clv_price clv_bound_changes(const clv_bound *bound, const int8_t *choice, int n, int first);

#endif
