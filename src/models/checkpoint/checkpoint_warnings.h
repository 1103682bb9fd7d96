/* checkpoint_warnings.h - collects the warnings about a model: unused tensors, mismatches with config.json; rejects
 * unreadable weight formats. */
#pragma once

#include "models/checkpoint/checkpoint_inventory.h"
#include "models/config/config_overrides.h"

typedef struct clv_warnings {
    int n;
    char **text; /* [n] sentences without a full stop */
} clv_warnings;

clv_status clv_warnings_add(clv_warnings *warnings, clv_error *err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void clv_warnings_free(clv_warnings *warnings);

/* Adds the warnings about a checkpoint. of_adapters: the files hold adapters; of their unused tensors only those of
 * modules that cleave leaves out (clv_is_unused_module) are named.
 * @return CLV_EUNSUPPORTED with the first rejected tensor, and why; CLV_EIO, CLV_ENOMEM */
clv_status clv_checkpoint_warnings_collect(clv_warnings *warnings, const clv_checkpoint_inventory *inventory,
                                           const clv_config_overrides *overrides, const clv_weights *weights,
                                           const clv_model_config *model, bool of_adapters, clv_error *err);

/* Whether a tensor belongs to a module that affects neither logits nor hidden states: a pooler, a contact head. */
bool clv_is_unused_module(const char *name);
