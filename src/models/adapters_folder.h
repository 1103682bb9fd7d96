/* adapters_folder.h - adapters as a folder of PEFT's form: adapter_config.json, adapter_model.safetensors.
 *
 * PEFT (peft.PeftModel.from_pretrained) reads what is written here, and what it wrote is read, where all that changes
 * the result is of this library: plain LoRA of linear layers. cleave_base.json beside these, which PEFT does not look
 * at, says which weights the adapters were trained beside: others of the same shapes are refused. A folder without it,
 * PEFT's, is taken as it is. */
#ifndef CLEAVE_MODELS_ADAPTERS_FOLDER_H
#define CLEAVE_MODELS_ADAPTERS_FOLDER_H

#include "models/model_weights.h"
#include "models/opened.h"

extern const char clv_adapters_weights_name[], clv_adapters_config_name[];

/* Whether it is a folder of adapters, and of no model. */
bool clv_adapters_are_in(const char *folder);
/* The folder of the model that they belong to, by adapter_config.json: as it stands there, or from the adapters' own
 * folder on. The caller frees it. @return CLV_ENOTFOUND where no such folder is there */
clv_status clv_adapters_find_base(char **out, const char *folder, clv_error *err);

/* Gives the model, whose weights are open, the adapters of a folder. */
clv_status clv_adapters_open(clv_model *model, const char *folder, clv_error *err);

/* A folder of the model's adapters; the model is borrowed. @return CLV_EINVAL for a model without adapters, or without
 * a folder that they could be of */
clv_status clv_adapters_files(clv_model_files *out, const clv_model *model, clv_error *err);

/* Which weights a model has, in a line; processes compare models by the same. */
enum { CLV_MODEL_SAYS = 192 };
clv_status clv_model_say(char out[CLV_MODEL_SAYS], const clv_model *model, clv_error *err);

#endif
