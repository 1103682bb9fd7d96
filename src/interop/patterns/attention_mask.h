/* attention_mask.h - which keys a query sees, of attention that is found in its parts. */
#pragma once

#include "interop/patterns/rewriter.h"

enum { ATTENTION_MASKS = 2 };

/* What a condition says of scores. Dimensions are those of the scores that are not 1, queries and keys last. */
typedef struct attention_condition {
    bool causal;
    int64_t window;      /* of keys that a query sees; 0: all */
    int padding;         /* the keys that all queries of a batch see: bool, of these dimensions; 0: all */
    int padding_dims[2]; /* batch, keys; batch -1: it has none */
} attention_condition;

typedef struct attention_mask {
    attention_condition conditions[ATTENTION_MASKS], all; /* under which scores count */
    int n;
    double hidden; /* the score of those that do not */
} attention_mask;

/* Whether an op is a choice between scores and one large negative number, times `scale`, by a condition that is causal,
 * of padding, or both; adds that. at[n]: where the scores' dimensions are among those of the op's that are not 1. */
bool attention_mask_read(attention_mask *m, const rewriter *rw, const clv_op *op, const int *at, int n, double scale);
/* Which of the conditions the one of an op is, a choice whose dimensions are given likewise; -1: none. */
int attention_mask_find(const rewriter *rw, const attention_mask *m, const clv_op *op, const int *at, int n);
/* The mask of padding [B,Sk]; CLV_NONE: none. */
clv_value attention_mask_padding(rewriter *rw, const attention_mask *m, int64_t batch, int64_t keys);
/* Rows that see a key, [B,S or 1,1,1]; others have the mean of all values, as their scores are all the same. Attention
 * gives 0 there, which is right where hidden scores are -inf. CLV_NONE: all see one, or it is right. */
clv_value attention_mask_rows(rewriter *rw, const attention_mask *m, int64_t batch, int64_t keys);
/* The result [B,Sq,H,D], with the mean of values v [B,Sk,K,D] in rows that see no key. */
clv_value attention_mask_means(rewriter *rw, clv_value seen, clv_value out, clv_value v);
/* What such rows add to the gradient of values [B,Sk,K,D]. */
clv_value attention_mask_means_gradient(rewriter *rw, clv_value seen, clv_value d_out, clv_type v);
