/* custom_family_view.h - converts the internal config to clv_family_model, the struct that user-defined families see.
 */
#ifndef CLEAVE_MODELS_FAMILIES_CUSTOM_FAMILY_VIEW_H
#define CLEAVE_MODELS_FAMILIES_CUSTOM_FAMILY_VIEW_H

#include "models/config/model_config.h"

clv_family_model clv_family_model_from_config(const clv_model_config *config);

#endif
