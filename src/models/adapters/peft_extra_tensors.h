/* peft_extra_tensors.h - PEFT tensors that are no adapters of the model: base weights must equal the base's, others
 * are unused.
 */
#ifndef CLEAVE_MODELS_ADAPTERS_PEFT_EXTRA_TENSORS_H
#define CLEAVE_MODELS_ADAPTERS_PEFT_EXTRA_TENSORS_H

#include "models/model.h"

/* Verifies that nothing of it changes a result. @return CLV_EINVAL naming the tensor; what reading returns */
clv_status clv_peft_check_extra_tensors(const clv_model *model, const char *path, clv_error *err);

/* Tensors of adapters that are left unread: how many, and the name of the first (NULL: none; borrowed). */
int64_t clv_peft_unused_tensors(const clv_model *model, const char **first);

#endif
