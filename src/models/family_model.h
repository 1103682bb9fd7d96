/* family_model.h - a model as the functions of a family that a program stated see it (cleave/family.h). */
#ifndef CLEAVE_MODELS_FAMILY_MODEL_H
#define CLEAVE_MODELS_FAMILY_MODEL_H

#include "models/config.h"

clv_family_model clv_family_model_of(const clv_model_config *config);

#endif
