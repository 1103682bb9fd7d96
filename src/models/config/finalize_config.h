/* finalize_config.h - corrects the config by the checkpoint: untied embeddings, stored rotary frequencies.
 *
 * - Embeddings that config.json ties to the output projection are not tied where the files have two tables that differ,
 *   as in transformers 5.24 (PreTrainedModel.tie_weights).
 * - A family's rotary frequencies are those of the files, where these have them: see clv_model_find_rope_frequencies.
 */
#ifndef CLEAVE_MODELS_CONFIG_FINALIZE_CONFIG_H
#define CLEAVE_MODELS_CONFIG_FINALIZE_CONFIG_H

#include "models/weights/parameter_map.h"

typedef struct clv_config_overrides {
    bool untied;                       /* though config.json ties them */
    float *inv_freq;                   /* [D/2], to which the model's rope.inv_freq points; NULL: none are stored */
    const clv_safetensor *frequencies; /* where they come from */
    int64_t others;                    /* tensors of frequencies that differ from these */
} clv_config_overrides;

/* Changes the model to what its files say; free *out after the last use of the model.
 * @return CLV_EFORMAT for frequencies of another shape, or that are not finite; CLV_EIO, CLV_ENOMEM */
clv_status clv_finalize_config(clv_config_overrides *out, clv_model_config *model, const clv_weights *weights,
                               clv_error *err);
void clv_config_overrides_free(clv_config_overrides *settled);

/* Whether two tensors of one shape hold the same values, as f32. */
clv_status clv_tensors_equal(bool *out, const clv_safetensor *a, const clv_safetensor *b, clv_error *err);

#endif
