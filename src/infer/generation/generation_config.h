/* generation_config.h - reads generation_config.json: sampling defaults, EOS ids, stop strings, length limits. */
#ifndef CLEAVE_INFER_GENERATION_GENERATION_CONFIG_H
#define CLEAVE_INFER_GENERATION_GENERATION_CONFIG_H

#include "cleave/generate.h"
#include "models/config/model_config.h"

/* That of the folder, or of a config.json; path "": of a model that no folder holds, of which `model` says what ends a
 * text. Free with clv_generation_config_free.
 * @return CLV_EFORMAT naming file and key; CLV_EIO, CLV_ELIMIT, CLV_ENOMEM */
clv_status clv_generation_config_read(clv_generation_config **out, const char *path, const clv_model_config *model,
                                      clv_error *err);
/* NULL is a no-op. */
void clv_generation_config_free(clv_generation_config *config);

#endif
