/* peft_folder.h - loads and saves a PEFT adapter folder, finds its base model and verifies that the base is the same.
 *
 * PEFT (peft.PeftModel.from_pretrained) reads what is written here, and what it wrote is read, where all that changes
 * the result is of this library: plain LoRA of linear layers. cleave_base.json beside these, which PEFT does not look
 * at, says which weights the adapters were trained beside: others of the same shapes are refused. A folder without it,
 * PEFT's, is taken as it is.
 */
#ifndef CLEAVE_MODELS_ADAPTERS_PEFT_FOLDER_H
#define CLEAVE_MODELS_ADAPTERS_PEFT_FOLDER_H

#include "models/model.h"
#include "models/weights/model_weights.h"

extern const char clv_peft_weights_file[], clv_peft_config_file[];

/* Whether it is a folder of adapters, and of no model. */
bool clv_peft_is_adapter_folder(const char *folder);
/* The folder of the model that they belong to, by adapter_config.json: as it stands there, or from the adapters' own
 * folder on. The caller frees it. @return CLV_ENOTFOUND where no such folder is there */
clv_status clv_peft_find_base_folder(char **out, const char *folder, clv_error *err);

/* Gives the model, whose weights are open, the adapters of a folder. */
clv_status clv_peft_open_adapters(clv_model *model, const char *folder, clv_error *err);

/* Checks the tensors of the adapters' file that are not adapters of the model (peft_extra_tensors.c): nothing in them
 * may change a result. @return CLV_EINVAL naming the tensor; errors of reading */
clv_status clv_peft_check_extra_tensors(const clv_model *model, const char *path, clv_error *err);

/* A folder of the model's adapters; the model is borrowed. @return CLV_EINVAL for a model without adapters, or without
 * a folder that they could be of */
clv_status clv_model_save_spec_peft(clv_model_save_spec *out, const clv_model *model, clv_error *err);

/* Which weights a model has, in a line; processes compare models by the same. */
enum { CLV_MODEL_FINGERPRINT_SIZE = 192 };
clv_status clv_model_fingerprint(char out[CLV_MODEL_FINGERPRINT_SIZE], const clv_model *model, clv_error *err);

#endif
