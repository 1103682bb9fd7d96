/* compress_collectives.h - pass: marks collectives that send their tensor in a narrower wire dtype. */
#ifndef CLEAVE_PARTITION_PASSES_COMPRESS_COLLECTIVES_H
#define CLEAVE_PARTITION_PASSES_COMPRESS_COLLECTIVES_H

#include "partition/sharding_table.h"

/* Tensors of which each rank holds fewer elements go as they are: what a message of so few takes is its start. */
enum { CLV_COMPRESS_MIN_ELEMS = 64 };

/* Sets `carried` of the rows that are to be carried as dtype, or, where they sum gradients for updates, as `gradients`
 * unless that is CLV_COMM_F32; of CLV_COMM_F32 alone it does nothing. */
clv_status clv_compress_collectives(clv_sharding_table *table, clv_comm_dtype dtype, clv_comm_dtype gradients,
                                    clv_error *err);

#endif
