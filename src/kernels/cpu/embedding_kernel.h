/* embedding_kernel.h - embedding gather and scatter-add for a rank's rows [lo, hi) of the table.
 *
 *   out[i,:] = table[ids[i] - lo, :] where lo <= ids[i] < hi, else 0        summed over ranks: the embedding
 *   d_table[v - lo,:] += sum over i with ids[i] == v of d_out[i,:]          partial over whatever splits i
 *
 * Source: Megatron-LM, VocabParallelEmbedding. ids are i32 or i64. Sharding: i, table rows and width.
 */
#pragma once

#include "cleave/dtype.h"

typedef struct clv_embedding_args {
    clv_dtype id_dtype; /* i32 or i64                          */
    int64_t count;      /* ids, >= 0                           */
    int64_t lo, hi;     /* local rows of the table, [lo, hi) */
    int64_t width;      /* elements of a row, >= 0             */
} clv_embedding_args;

/* out [count, width] of out_dtype, table [hi - lo, width] of table_dtype (floats; equal: copied). Disjoint. */
void clv_embedding_gather(const clv_embedding_args *e, clv_dtype out_dtype, void *out, clv_dtype table_dtype,
                          const void *table, const void *ids);

/* Adds to d_table [hi - lo, width], of which rows that no id names are not touched. For each row, the terms are added
 * by ascending i: in d_table itself when it is f32 or f64; with what is there in f32, rounded once, for bf16 and f16
 * (this costs count^2 comparisons of ids, so f32 is the better choice). Disjoint. */
void clv_embedding_scatter(const clv_embedding_args *e, clv_dtype table_dtype, void *d_table, clv_dtype out_dtype,
                           const void *d_out, const void *ids);
