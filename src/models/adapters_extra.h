/* adapters_extra.h - what a file of PEFT's has beyond the adapters of a model: weights of the base, which must be the
 * base's own, and adapters of modules that no model here uses. */
#ifndef CLEAVE_MODELS_ADAPTERS_EXTRA_H
#define CLEAVE_MODELS_ADAPTERS_EXTRA_H

#include "models/opened.h"

/* Verifies that nothing of it changes a result. @return CLV_EINVAL naming the tensor; what reading returns */
clv_status clv_adapters_check_extra(const clv_model *model, const char *path, clv_error *err);

/* Tensors of adapters that are left unread: how many, and the name of the first (NULL: none; borrowed). */
int64_t clv_adapters_unused(const clv_model *model, const char **first);

#endif
