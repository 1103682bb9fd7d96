/* config_overrides.h - corrects the config by the checkpoint: untied embeddings, stored rotary frequencies.
 *
 * - Tied embeddings become untied if the files have two tables that differ, as in transformers 5.24
 *   (PreTrainedModel.tie_weights).
 * - Rotary frequencies are those of the files, if they have them: see clv_model_find_inv_freq.
 */
#pragma once

#include "models/weights/parameter_map.h"

typedef struct clv_config_overrides {
    bool untied;                       /* config.json ties the embeddings, the files do not */
    float *inv_freq;                   /* [D/2], the model's rope.inv_freq points to it; NULL: none are stored */
    const clv_safetensor *frequencies; /* the tensor that they were read from */
    int64_t others;                    /* number of stored frequency tensors that differ */
} clv_config_overrides;

/* Corrects the config. Free *out after the last use of the config.
 * @return CLV_EFORMAT for frequencies of another shape, or not finite; CLV_EIO, CLV_ENOMEM */
clv_status clv_config_overrides_apply(clv_config_overrides *out, clv_model_config *model, const clv_weights *weights,
                                      clv_error *err);
void clv_config_overrides_free(clv_config_overrides *settled);

/* Whether two tensors have equal shapes and values, compared as f32: NaN differs from itself, -0 equals 0. */
clv_status clv_tensors_equal(bool *out, const clv_safetensor *a, const clv_safetensor *b, clv_error *err);
