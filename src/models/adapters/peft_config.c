/* peft_config.c - reads PEFT's adapter_config.json: rank, alpha, dropout; rejects all but plain LoRA of linear
 * layers. tests/test_config_keys.c holds the table against PEFT's own list.
 */
#include "models/adapters/peft_config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/error.h"
#include "models/config/config_fields.h"
#include "models/config/config_keys.h"

static const double most_dropout = 0.999999;
enum { MOST_RANK = 1 << 20, PEFT_RANK = 8, PEFT_ALPHA = 8 /* where the keys are missing */ };

static const clv_config_key keys[] = {
    {"peft_type", CLV_CONFIG_KEY_READ, NULL, true},
    {"task_type", CLV_CONFIG_KEY_READ, NULL, false},
    {"base_model_name_or_path", CLV_CONFIG_KEY_READ, NULL, false},
    {"r", CLV_CONFIG_KEY_READ, NULL, true},
    {"lora_alpha", CLV_CONFIG_KEY_READ, NULL, true},
    {"lora_dropout", CLV_CONFIG_KEY_READ, NULL, true},
    {"use_rslora", CLV_CONFIG_KEY_READ, NULL, false},
    {"bias", CLV_CONFIG_KEY_READ, NULL, true},
    {"init_lora_weights", CLV_CONFIG_KEY_READ, NULL, false},
    {"target_modules", CLV_CONFIG_KEY_READ, NULL, false},
    {"exclude_modules", CLV_CONFIG_KEY_READ, NULL, false},
    {"layers_to_transform", CLV_CONFIG_KEY_READ, NULL, false},
    {"use_dora", CLV_CONFIG_KEY_MUST_BE_UNSET, NULL, false},
    {"use_qalora", CLV_CONFIG_KEY_MUST_BE_UNSET, NULL, false},
    {"use_bdlora", CLV_CONFIG_KEY_MUST_BE_UNSET, NULL, false},
    {"modules_to_save", CLV_CONFIG_KEY_MUST_BE_UNSET, NULL, false},
    {"rank_pattern", CLV_CONFIG_KEY_MUST_BE_UNSET, NULL, false},
    {"alpha_pattern", CLV_CONFIG_KEY_MUST_BE_UNSET, NULL, false},
    {"lora_bias", CLV_CONFIG_KEY_MUST_BE_UNSET, NULL, false},
    {"trainable_token_indices", CLV_CONFIG_KEY_MUST_BE_UNSET, NULL, false},
    {"target_parameters", CLV_CONFIG_KEY_MUST_BE_UNSET, NULL, false},
    {"layer_replication", CLV_CONFIG_KEY_MUST_BE_UNSET, NULL, false},
    {"megatron_config", CLV_CONFIG_KEY_MUST_BE_UNSET, NULL, false},
    {"kasa_config", CLV_CONFIG_KEY_MUST_BE_UNSET, NULL, false},
    {"velora_config", CLV_CONFIG_KEY_MUST_BE_UNSET, NULL, false},
    {"arrow_config", CLV_CONFIG_KEY_MUST_BE_UNSET, NULL, false},
    {"monteclora_config", CLV_CONFIG_KEY_MUST_BE_UNSET, NULL, false},
    {"alora_invocation_tokens", CLV_CONFIG_KEY_MUST_BE_UNSET, NULL, false},
    /* how the file came to be, and what init_lora_weights or another key would have to ask for */
    {"auto_mapping", CLV_CONFIG_KEY_IGNORED, NULL, false},
    {"peft_version", CLV_CONFIG_KEY_IGNORED, NULL, false},
    {"revision", CLV_CONFIG_KEY_IGNORED, NULL, false},
    {"inference_mode", CLV_CONFIG_KEY_IGNORED, NULL, false},
    {"runtime_config", CLV_CONFIG_KEY_IGNORED, NULL, false},
    {"layers_pattern", CLV_CONFIG_KEY_IGNORED, NULL, false}, /* the file has what it left */
    {"fan_in_fan_out", CLV_CONFIG_KEY_IGNORED, NULL, false}, /* PEFT goes by the layer's class */
    {"megatron_core", CLV_CONFIG_KEY_IGNORED, NULL, false},
    {"qalora_group_size", CLV_CONFIG_KEY_IGNORED, NULL, false},
    {"loftq_config", CLV_CONFIG_KEY_IGNORED, NULL, false},
    {"eva_config", CLV_CONFIG_KEY_IGNORED, NULL, false},
    {"corda_config", CLV_CONFIG_KEY_IGNORED, NULL, false},
    {"lora_ga_config", CLV_CONFIG_KEY_IGNORED, NULL, false},
    {"ensure_weight_tying", CLV_CONFIG_KEY_IGNORED, NULL, false}, /* of modules that are refused */
};
enum { N_KEYS = sizeof keys / sizeof keys[0] };

bool clv_peft_config_knows_key(const char *key)
{
    return clv_config_keys_find(keys, N_KEYS, "", key) != NULL;
}

/* ---- what they are ---- */

/* Ways to begin: these change the base's weights, too, others do not. "pissa_niter_4" begins as "pissa" does. */
static clv_status check_beginning(const json_t *o, const char *path, clv_error *err)
{
    static const char *const changing[] = {"pissa", "olora", "loftq", "corda", "lora_ga"};
    static const char *const others[] = {"gaussian", "eva", "orthogonal", "mica"};
    const json_t *value = json_object_get(o, "init_lora_weights");
    const char *way = json_string_value(value);
    if (!value || json_is_null(value) || json_is_boolean(value))
        return CLV_OK;
    for (size_t i = 0; way && i < sizeof changing / sizeof changing[0]; i++)
        if (strncasecmp(way, changing[i], strlen(changing[i])) == 0)
            return clv_fail(err, CLV_EUNSUPPORTED,
                            "%s: \"init_lora_weights\" is \"%.32s\", which changes the base, too; supported: true, "
                            "false, gaussian, eva, orthogonal, mica (PEFT's save_pretrained with "
                            "path_initial_model_for_weight_conversion makes plain adapters of these)",
                            path, way);
    for (size_t i = 0; way && i < sizeof others / sizeof others[0]; i++)
        if (strcasecmp(way, others[i]) == 0)
            return CLV_OK;
    return clv_config_unsupported(path, "init_lora_weights", way ? way : "no name",
                                  "true, false, gaussian, eva, orthogonal, mica", err);
}

static clv_status check_kind(const json_t *o, const char *path, clv_error *err)
{
    static const char *const tasks[] = {"CAUSAL_LM", "FEATURE_EXTRACTION", NULL}, *const none[] = {"none", NULL};
    const char *kind = NULL;
    CLV_TRY(clv_json_get_string(&kind, o, "peft_type", CLV_JSON_REQUIRED, path, err));
    if (strcmp(kind, "LORA") != 0)
        return clv_fail(err, CLV_EUNSUPPORTED, "%s: \"peft_type\" is \"%.32s\"; supported: LORA", path, kind);
    CLV_TRY(clv_config_keys_check(keys, N_KEYS, "", o, path, err));
    CLV_TRY(clv_config_choice(o, "task_type", tasks, path, err)); /* those of other heads train these, too */
    CLV_TRY(clv_config_choice(o, "bias", none, path, err));
    return check_beginning(o, path, err);
}

clv_status clv_peft_config_read(clv_lora_options *out, const json_t *o, const char *path, clv_error *err)
{
    bool stabilized = false;
    out->rank = PEFT_RANK;
    out->alpha = PEFT_ALPHA;
    CLV_TRY(check_kind(o, path, err));
    CLV_TRY(clv_json_get_int(&out->rank, o, "r", CLV_JSON_OPTIONAL, 1, MOST_RANK, path, err));
    CLV_TRY(clv_json_get_real(&out->alpha, o, "lora_alpha", CLV_JSON_OPTIONAL, 1e-30, 1e30, path, err));
    CLV_TRY(clv_json_get_real(&out->dropout, o, "lora_dropout", CLV_JSON_OPTIONAL, 0, most_dropout, path, err));
    CLV_TRY(clv_json_get_bool(&stabilized, o, "use_rslora", CLV_JSON_OPTIONAL, path, err));
    if (stabilized) /* scaled by the root of the rank (arXiv:2312.03732) */
        out->alpha *= sqrt((double)out->rank);
    return CLV_OK;
}

/* ---- which modules have them ---- */

/* Whether a list names the module, or how its name ends behind a dot; `exactly`: the first of these. */
static bool names(const json_t *list, const char *module, bool exactly)
{
    const json_t *item;
    size_t i, length = strlen(module);
    json_array_foreach(list, i, item)
    {
        size_t n = json_string_length(item);
        if (!json_is_string(item) || n > length || strcmp(module + length - n, json_string_value(item)) != 0)
            continue;
        if (n == length || (!exactly && module[length - n - 1] == '.'))
            return true;
    }
    return false;
}

static bool has_layer(const json_t *layers, int64_t layer)
{
    const json_t *item;
    size_t i;
    if (json_is_integer(layers))
        return json_integer_value(layers) == layer;
    json_array_foreach(layers, i, item)
    {
        if (json_is_integer(item) && json_integer_value(item) == layer)
            return true;
    }
    return json_array_size(layers) == 0; /* null and an empty list choose none */
}

clv_status clv_peft_config_check_module(const json_t *o, const char *module, int64_t layer, const char *path,
                                        clv_error *err)
{
    const json_t *targets = json_object_get(o, "target_modules"), *excluded = json_object_get(o, "exclude_modules");
    const char *key = NULL;
    if (json_is_array(excluded) && names(excluded, module, false))
        key = "exclude_modules";
    else if (json_is_array(targets) && !names(targets, module, false))
        key = "target_modules";
    else if (json_is_array(targets) && !names(targets, module, true) &&
             !has_layer(json_object_get(o, "layers_to_transform"), layer))
        key = "layers_to_transform";
    if (!key)
        return CLV_OK;
    return clv_fail(err, CLV_EINVAL, "%s: \"%s\" leaves out %.128s, of which the adapters are there", path, key,
                    module);
}
