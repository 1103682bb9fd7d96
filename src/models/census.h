/* census.h - what a checkpoint has of a model's tensors: those that are there, those that are missing, and those that
 * the model has no use for. */
#ifndef CLEAVE_MODELS_CENSUS_H
#define CLEAVE_MODELS_CENSUS_H

#include "models/parameters.h"

typedef struct clv_census {
    clv_quant how; /* what the files hold the weights as */
    int64_t n_missing, n_extra;
    char (*missing)[CLV_TENSOR_NAME_SIZE]; /* [n_missing] the family's names */
    const clv_safetensor **extra;          /* [n_extra] of the weights, in the order of the files */
} clv_census;

clv_status clv_census_take(clv_census *out, const clv_weights *weights, const clv_model_config *model, clv_error *err);
void clv_census_free(clv_census *census);

/* Verifies that nothing is missing, that every tensor of the model has its shape and a dtype that can be read, and that
 * there is no layer more: CLV_EFORMAT (CLV_ENOTFOUND) with the tensor, and how many more are missing. */
clv_status clv_census_check(const clv_census *census, const clv_weights *weights, const clv_model_config *model,
                            clv_error *err);
/* Both at once, for those who want no lists. */
clv_status clv_model_check_weights(const clv_weights *weights, const clv_model_config *model, clv_error *err);

#endif
