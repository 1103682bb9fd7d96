/* generation_config.h - what a model's folder says of generating, read from its files: clv_generation_config. */
#ifndef CLEAVE_INFER_GENERATION_CONFIG_H
#define CLEAVE_INFER_GENERATION_CONFIG_H

#include "cleave/generate.h"
#include "models/config.h"

/* That of the folder, or of a config.json; path "": of a model that no folder holds, of which `model` says what ends a
 * text. Free with clv_generation_config_free.
 * @return CLV_EFORMAT naming file and key; CLV_EIO, CLV_ELIMIT, CLV_ENOMEM */
clv_status clv_generation_config_read(clv_generation_config **out, const char *path, const clv_model_config *model,
                                      clv_error *err);
/* NULL is a no-op. */
void clv_generation_config_free(clv_generation_config *config);

#endif
