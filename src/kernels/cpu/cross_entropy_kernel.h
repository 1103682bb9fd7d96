/* cross_entropy_kernel.h - softmax cross-entropy of vocabulary-sharded logits: partial sums, gradients.
 *
 *   max[r]    = max_v logits[r,v]                                     combines as max over ranks
 *   sums[r,0] = sum_v exp(logits[r,v] - max[r])                       combine as sum; one packed tensor, so one
 *   sums[r,1] = logits[r,label[r]] - max[r], 0 on other ranks      all-reduce
 *   loss[r]   = log(sums[r,0]) - sums[r,1]                            rows only
 *   d_sums[r] = (d_loss[r] / sums[r,0], -d_loss[r])                 rows only
 *   d_logits[r,v] = exp(logits[r,v] - max[r]) * d_sums[r,0] + [label[r] == v] * d_sums[r,1]      no communication
 *
 * Full logits are never gathered (Megatron-LM, vocab_parallel_cross_entropy). Rows with label == ignore have loss 0 and
 * gradient 0. Labels outside this rank's [vocab_lo, vocab_lo + cols) add nothing to sums[r,1].
 * Statistics (max, sums, loss, d_loss, d_sums) are f32, or f64 when the logits are f64: clv_cross_entropy_stats_dtype.
 * Numerics: f32 with the sum in f64; fixed order. NaN logits give a NaN loss and gradient.
 */
#pragma once

#include "cleave/dtype.h"

typedef struct clv_cross_entropy_args {
    clv_dtype dtype;       /* of the logits and their gradient               */
    clv_dtype label_dtype; /* i32 or i64                                     */
    int64_t rows;          /* >= 0                                           */
    int64_t cols;          /* local columns of the vocabulary, >= 0 */
    int64_t vocab_lo;      /* token of column 0                              */
    int64_t ignore;        /* a label of no loss, CLV_IGNORE_INDEX (graph.h) as a rule */
} clv_cross_entropy_args;

/* f64 for f64 logits, else f32. */
clv_dtype clv_cross_entropy_stats_dtype(clv_dtype logits);

/* max [rows]; -inf where there is no column. */
void clv_cross_entropy_max(const clv_cross_entropy_args *ce, void *max, const void *logits);

/* sums [rows,2], given the maximum over the whole vocabulary. */
void clv_cross_entropy_sums(const clv_cross_entropy_args *ce, void *sums, const void *logits, const void *labels,
                            const void *max);

/* loss [rows] from the summed sums. */
void clv_cross_entropy_loss(const clv_cross_entropy_args *ce, void *loss, const void *sums, const void *labels);

/* d_sums [rows,2], given d_loss [rows] and the summed sums. d_sums may be sums. */
void clv_cross_entropy_loss_backward(const clv_cross_entropy_args *ce, void *d_sums, const void *sums,
                                     const void *labels, const void *d_loss);

/* d_logits [rows, cols] from d_sums. d_logits may be logits. */
void clv_cross_entropy_backward(const clv_cross_entropy_args *ce, void *d_logits, const void *logits,
                                const void *labels, const void *max, const void *d_sums);
