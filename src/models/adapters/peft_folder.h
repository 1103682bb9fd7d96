/* peft_folder.h - loads and saves a PEFT adapter folder, finds its base model and verifies that the base is the same.
 *
 * PEFT (peft.PeftModel.from_pretrained) reads what is saved here. Folders of PEFT can be loaded if they have plain LoRA
 * of linear layers. cleave_base.json, which PEFT ignores, has a fingerprint of the base: another base of the same
 * shapes is rejected. A folder without it is not checked.
 */
#pragma once

#include "models/model.h"

extern const char clv_peft_weights_file[], clv_peft_config_file[];

/* Whether a folder has adapters and no model. */
bool clv_peft_is_adapter_folder(const char *folder);
/* The folder of the base model, from adapter_config.json: relative to the working directory or to the adapter folder.
 * The caller frees it. @return CLV_ENOTFOUND if it does not exist */
clv_status clv_peft_find_base_folder(char **out, const char *folder, clv_error *err);

/* Opens the adapters of a folder for a model with open weights. */
clv_status clv_peft_open_adapters(clv_model *model, const char *folder, clv_error *err);

/* Checks the tensors of the adapters' file that are not adapters of the model (peft_extra_tensors.c): nothing in them
 * may change a result. @return CLV_EINVAL naming the tensor; errors of reading */
clv_status clv_peft_check_extra_tensors(const clv_model *model, const char *path, clv_error *err);

/* How to save the model's adapters; the model is borrowed. @return CLV_EINVAL for a model without adapters or folder */
clv_status clv_model_save_spec_peft(clv_model_save_spec *out, const clv_model *model, clv_error *err);

/* A one-line fingerprint of config and weights. */
enum { CLV_MODEL_FINGERPRINT_SIZE = 192 };
clv_status clv_model_fingerprint(char out[CLV_MODEL_FINGERPRINT_SIZE], const clv_model *model, clv_error *err);
