/* peft_config.h - reads PEFT's adapter_config.json: rank, alpha, dropout; rejects all but plain LoRA of linear
 * layers.
 */
#pragma once

#include "cleave/model.h"
#include "io/json/json.h"

/* Verifies every key, and reads rank, alpha and dropout. @return CLV_EUNSUPPORTED, CLV_EFORMAT naming the key */
clv_status clv_peft_config_read(clv_lora_options *out, const json_t *config, const char *path, clv_error *err);

/* Verifies that PEFT would give adapters to this module ("model.layers.0.self_attn.q_proj") of this layer (-1: of
 * none): those of others it leaves out. Keys that are regular expressions are not looked at. @return CLV_EINVAL */
clv_status clv_peft_config_check_module(const json_t *config, const char *module, int64_t layer, const char *path,
                                        clv_error *err);

/* Whether the key is known here. */
bool clv_peft_config_knows_key(const char *key);
