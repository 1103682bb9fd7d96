/* checkpoint_warnings.h - warnings about unused tensors and mismatches with config.json; rejects unreadable weight
 * formats. Tensors that stand for weights in a form which cannot be read are refused.
 */
#ifndef CLEAVE_MODELS_CHECKPOINT_CHECKPOINT_WARNINGS_H
#define CLEAVE_MODELS_CHECKPOINT_CHECKPOINT_WARNINGS_H

#include "models/checkpoint/checkpoint_inventory.h"
#include "models/config/finalize_config.h"

typedef struct clv_checkpoint_warnings {
    int n;
    char **text; /* [n] sentences without a full stop, each of the folder */
} clv_checkpoint_warnings;

/* of_adapters: the files hold adapters, and only those of unused parts are noted.
 * @return CLV_EUNSUPPORTED with the first tensor that is refused, and why; CLV_EIO, CLV_ENOMEM */
clv_status clv_checkpoint_warnings_collect(clv_checkpoint_warnings *out, const clv_checkpoint_inventory *inventory,
                                           const clv_config_overrides *overrides, const clv_weights *weights,
                                           const clv_model_config *model, bool of_adapters, clv_error *err);
void clv_checkpoint_warnings_free(clv_checkpoint_warnings *notes);

/* Whether a tensor is of a part of transformers' classes that takes no part in logits or hidden states. */
bool clv_is_unused_module(const char *name);

#endif
