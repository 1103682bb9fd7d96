/* checkpoint_inventory.h - compares the tensors of a checkpoint with the model's parameters: missing, unexpected, wrong
 * shape or dtype. */
#pragma once

#include "models/weights/parameter_map.h"

typedef struct clv_checkpoint_inventory {
    clv_quant quant; /* how the files store the weights */
    int64_t n_missing, n_extra;
    char (*missing)[CLV_TENSOR_NAME_SIZE]; /* [n_missing] names of the family's tensors */
    const clv_safetensor **extra;          /* [n_extra] unused tensors, in the order of the files */
} clv_checkpoint_inventory;

clv_status clv_checkpoint_inventory_collect(clv_checkpoint_inventory *out, const clv_weights *weights,
                                            const clv_model_config *model, clv_error *err);
void clv_checkpoint_inventory_free(clv_checkpoint_inventory *inventory);

/* Checks that no tensor is missing, that each has its shape and a readable dtype, and that no layer is left over:
 * CLV_EFORMAT (CLV_ENOTFOUND) names the tensor, and the number of other missing tensors. */
clv_status clv_checkpoint_inventory_check(const clv_checkpoint_inventory *inventory, const clv_weights *weights,
                                          const clv_model_config *model, clv_error *err);
/* Collects and checks an inventory. */
clv_status clv_model_check_weights(const clv_weights *weights, const clv_model_config *model, clv_error *err);
