/* lora_merge.h - merges LoRA adapters into a weight shard when it is saved: W + scale * A B. */
#ifndef CLEAVE_MODELS_ADAPTERS_LORA_MERGE_H
#define CLEAVE_MODELS_ADAPTERS_LORA_MERGE_H

#include "models/adapters/lora_parameters.h"

/* Adds scale * A B to a box of the weight of this name, in dtype `to`, which ranks of this process hold: where its
 * box is, those of its adapter are. dtype: of the adapter's state. A weight without an adapter, and no adapters at
 * all, are left. */
clv_status clv_lora_merge(void *weight, clv_dtype to, const clv_shard *box, const clv_adapters *adapters,
                          const char *name, const clv_session *session, clv_dtype dtype, clv_error *err);

#endif
