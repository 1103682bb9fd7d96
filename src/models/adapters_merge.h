/* adapters_merge.h - weights as they are saved: with what their adapters add. */
#ifndef CLEAVE_MODELS_ADAPTERS_MERGE_H
#define CLEAVE_MODELS_ADAPTERS_MERGE_H

#include "models/adapters.h"

/* Adds scale * A B to a box of the weight of this name, in dtype `to`, which ranks of this process hold: where its
 * box is, those of its adapter are. dtype: of the adapter's state. A weight without an adapter, and no adapters at
 * all, are left. */
clv_status clv_adapters_merge(void *weight, clv_dtype to, const clv_shard *box, const clv_adapters *adapters,
                              const char *name, const clv_session *session, clv_dtype dtype, clv_error *err);

#endif
