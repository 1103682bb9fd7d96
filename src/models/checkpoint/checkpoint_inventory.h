/* checkpoint_inventory.h - tensors of a checkpoint against the model's parameters: missing, unexpected, wrong shape
 * or dtype.
 */
#ifndef CLEAVE_MODELS_CHECKPOINT_CHECKPOINT_INVENTORY_H
#define CLEAVE_MODELS_CHECKPOINT_CHECKPOINT_INVENTORY_H

#include "models/weights/parameter_map.h"

typedef struct clv_checkpoint_inventory {
    clv_quant how; /* what the files hold the weights as */
    int64_t n_missing, n_extra;
    char (*missing)[CLV_TENSOR_NAME_SIZE]; /* [n_missing] the family's names */
    const clv_safetensor **extra;          /* [n_extra] of the weights, in the order of the files */
} clv_checkpoint_inventory;

clv_status clv_checkpoint_inventory_collect(clv_checkpoint_inventory *out, const clv_weights *weights,
                                            const clv_model_config *model, clv_error *err);
void clv_checkpoint_inventory_free(clv_checkpoint_inventory *inventory);

/* Verifies that nothing is missing, that every tensor of the model has its shape and a dtype that can be read, and that
 * there is no layer more: CLV_EFORMAT (CLV_ENOTFOUND) with the tensor, and how many more are missing. */
clv_status clv_checkpoint_inventory_check(const clv_checkpoint_inventory *inventory, const clv_weights *weights,
                                          const clv_model_config *model, clv_error *err);
/* Both at once, for those who want no lists. */
clv_status clv_model_check_weights(const clv_weights *weights, const clv_model_config *model, clv_error *err);

#endif
