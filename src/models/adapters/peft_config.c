/* peft_config.c - reads PEFT's adapter_config.json: rank, alpha, dropout; rejects all but plain LoRA of linear
 * layers. tests/test_config_keys.c holds the table against PEFT's own list.
 */
#include "models/adapters/peft_config.h"

#include <math.h>
#include <string.h>
#include <strings.h>

#include "base/error.h"
#include "models/config/config_readers.h"
#include "models/config/config_keys.h"

static const double most_dropout = 0.999999;
enum { MOST_RANK = 1 << 20, PEFT_RANK = 8, PEFT_ALPHA = 8 /* PEFT's defaults */ };

static const clv_config_keys keys[] = {
    {CLV_CONFIG_KEY_READ, NULL, true, "peft_type r lora_alpha lora_dropout bias"},
    {CLV_CONFIG_KEY_READ, NULL, false,
     "task_type base_model_name_or_path use_rslora init_lora_weights target_modules exclude_modules "
     "layers_to_transform"},
    {CLV_CONFIG_KEY_MUST_BE_UNSET, NULL, false,
     "use_dora use_qalora use_bdlora modules_to_save rank_pattern alpha_pattern lora_bias trainable_token_indices "
     "target_parameters layer_replication megatron_config kasa_config velora_config arrow_config monteclora_config "
     "alora_invocation_tokens"},
    /* Origin of the file; keys that count only beside others. The file has the modules that layers_pattern chose; PEFT
     * goes by a layer's class, not by fan_in_fan_out; ensure_weight_tying is for modules_to_save. */
    {CLV_CONFIG_KEY_IGNORED, NULL, false,
     "auto_mapping peft_version revision inference_mode runtime_config layers_pattern fan_in_fan_out megatron_core "
     "qalora_group_size loftq_config eva_config corda_config lora_ga_config ensure_weight_tying"},
};
enum { N_KEYS = sizeof keys / sizeof *keys };

bool clv_peft_config_knows_key(const char *key)
{
    return clv_config_keys_find(keys, N_KEYS, "", key) != NULL;
}

/* ---- supported adapters ---- */

/* Some initializations change the base weights too. ("pissa_niter_4" is one of them, as "pissa" is.) */
static clv_status check_initialization(const json_t *o, const char *path, clv_error *err)
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
    return clv_config_fail_unsupported(path, "init_lora_weights", way ? way : "no name",
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
    CLV_TRY(clv_config_check_choice(o, "task_type", tasks, path, err)); /* other tasks train a head too */
    CLV_TRY(clv_config_check_choice(o, "bias", none, path, err));
    return check_initialization(o, path, err);
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

/* ---- target modules ---- */

/* Whether a list has the module's name or, unless `exactly`, an ending of it after a dot. */
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
    return json_array_size(layers) == 0; /* null and an empty list: every layer */
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
    return clv_fail(err, CLV_EINVAL, "%s: \"%s\" excludes %.128s, which has adapters in the file", path, key, module);
}
