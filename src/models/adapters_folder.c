/* adapters_folder.c - see adapters_folder.h. */
#include "models/adapters_folder.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "io/file.h"
#include "io/folder.h"
#include "io/json.h"
#include "io/sealed.h"
#include "models/adapters.h"
#include "models/parameters.h"

const char clv_adapters_weights_name[] = "adapter_model.safetensors",
           clv_adapters_config_name[] = "adapter_config.json";
static const char base_name[] = "cleave_base.json", base_format[] = "cleave adapter base";
static const double most_dropout = 0.999999;
enum { VERSION = 1, LIMIT = 1 << 24, MOST_RANK = 1 << 20 };

/* ---- the folder of the base ---- */

bool clv_adapters_are_in(const char *folder)
{
    return clv_folder_has(folder, clv_adapters_config_name) && !clv_folder_has(folder, "config.json");
}

static clv_status load_config(json_t **out, char **path, const char *folder, clv_error *err)
{
    *path = clv_path_join(folder, clv_adapters_config_name);
    if (!*path)
        return clv_fail_memory(err, folder, strlen(folder));
    CLV_TRY(clv_json_load(out, *path, LIMIT, err));
    return clv_json_check_object(*out, *path, err);
}

static bool is_folder(const char *path)
{
    struct stat info;
    return path && stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

static clv_status find_base(char **out, const json_t *config, const char *path, const char *folder, clv_error *err)
{
    const char *base = "";
    CLV_TRY(clv_json_string(&base, config, "base_model_name_or_path", CLV_JSON_OPTIONAL, path, err));
    char *beside = base[0] == '/' ? NULL : clv_path_join(folder, base), *here = strdup(base);
    bool is_here = base[0] && is_folder(here);
    char *found = is_here ? here : base[0] && is_folder(beside) ? beside : NULL;
    if (found != here)
        free(here);
    if (found != beside)
        free(beside);
    if (!found)
        return clv_fail(err, CLV_ENOTFOUND,
                        "%s: its base model \"%.200s\" is no folder here; valid: the base's folder as the model, and "
                        "%s as its adapters",
                        path, base, folder);
    *out = found;
    return CLV_OK;
}

clv_status clv_adapters_find_base(char **out, const char *folder, clv_error *err)
{
    json_t *config = NULL;
    char *path = NULL;
    clv_status status = load_config(&config, &path, folder, err);
    if (status == CLV_OK)
        status = find_base(out, config, path, folder, err);
    json_decref(config);
    free(path);
    return status;
}

/* ---- reading ---- */

/* Keys that change the result where they are not nothing (null, false, an empty list or object). */
static const char *const unsupported[] = {
    "use_dora",          "use_qalora",        "use_bdlora",        "modules_to_save",
    "rank_pattern",      "alpha_pattern",     "lora_bias",         "trainable_token_indices",
    "target_parameters", "layer_replication", "megatron_config",   "kasa_config",
    "velora_config",     "arrow_config",      "monteclora_config", "alora_invocation_tokens"};

static bool is_nothing(const json_t *value)
{
    return !value || json_is_null(value) || json_is_false(value) || (json_is_array(value) && !json_array_size(value)) ||
           (json_is_object(value) && !json_object_size(value));
}

/* Ways to begin that change the base's weights, too. */
static bool changes_base(const char *way)
{
    static const char *const ways[] = {"pissa", "olora", "loftq", "corda"};
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++)
        if (strncmp(way, ways[i], strlen(ways[i])) == 0)
            return true;
    return false;
}

static clv_status check_kind(const json_t *o, const char *path, clv_error *err)
{
    const char *kind = NULL, *bias = "none";
    CLV_TRY(clv_json_string(&kind, o, "peft_type", CLV_JSON_REQUIRED, path, err));
    if (strcmp(kind, "LORA") != 0)
        return clv_fail(err, CLV_EUNSUPPORTED, "%s: \"peft_type\" is \"%.32s\"; supported: LORA", path, kind);
    CLV_TRY(clv_json_string(&bias, o, "bias", CLV_JSON_OPTIONAL, path, err));
    if (strcmp(bias, "none") != 0)
        return clv_fail(err, CLV_EUNSUPPORTED, "%s: \"bias\" is \"%.32s\"; supported: none", path, bias);
    for (size_t i = 0; i < sizeof unsupported / sizeof unsupported[0]; i++)
        if (!is_nothing(json_object_get(o, unsupported[i])))
            return clv_fail(err, CLV_EUNSUPPORTED, "%s: \"%s\" is set; supported: plain LoRA of linear layers", path,
                            unsupported[i]);
    const json_t *way = json_object_get(o, "init_lora_weights");
    if (json_is_string(way) && changes_base(json_string_value(way)))
        return clv_fail(err, CLV_EUNSUPPORTED, "%s: \"init_lora_weights\" is \"%.32s\", which changes the base, too",
                        path, json_string_value(way));
    return CLV_OK;
}

/* The modules that have an A in the file, in full; the caller frees *out. A layer's stand for all layers'. */
static clv_status find_targets(char **out, const clv_weights *weights, const clv_model_config *base, const char *path,
                               clv_error *err)
{
    size_t size = 1, length = 0;
    char *text = calloc(1, size);
    for (const clv_parameter_row *row = base->family->parameters; text && row->name; row++)
        for (int k = 0; k < 2 && row->theirs[k]; k++) {
            char name[CLV_TENSOR_NAME_SIZE + 32];
            if (!clv_adapters_name_a(name, sizeof name, row, k) || !clv_weights_has(weights, name))
                continue;
            int module = (int)(strlen(row->theirs[k]) - strlen(".weight"));
            size += (size_t)module + 1;
            char *grown = realloc(text, size);
            if (!grown) {
                free(text);
                text = NULL;
                break;
            }
            text = grown;
            length += (size_t)sprintf(text + length, "%s%.*s", length ? "," : "", module, row->theirs[k]);
        }
    if (!text)
        return clv_fail_memory(err, path, size);
    if (length == 0) {
        free(text);
        return clv_fail(err, CLV_EINVAL, "%s: has adapters of none of the linear layers of this model, a %s", path,
                        clv_model_config_type(base));
    }
    *out = text;
    return CLV_OK;
}

/* Their sizes, and dropout; rank-stabilized adapters (arXiv:2312.03732) are scaled by the root of the rank. */
static clv_status read_sizes(clv_lora_options *out, const json_t *o, const char *path, clv_error *err)
{
    bool stabilized = false;
    CLV_TRY(clv_json_int(&out->rank, o, "r", CLV_JSON_REQUIRED, 1, MOST_RANK, path, err));
    CLV_TRY(clv_json_real(&out->alpha, o, "lora_alpha", CLV_JSON_REQUIRED, 1e-30, 1e30, path, err));
    CLV_TRY(clv_json_real(&out->dropout, o, "lora_dropout", CLV_JSON_OPTIONAL, 0, most_dropout, path, err));
    CLV_TRY(clv_json_bool(&stabilized, o, "use_rslora", CLV_JSON_OPTIONAL, path, err));
    if (stabilized)
        out->alpha *= sqrt((double)out->rank);
    return CLV_OK;
}

/* Only where the folder says whose they are. */
static clv_status check_base(const clv_model *m, const char *folder, clv_error *err)
{
    char is[CLV_MODEL_SAYS], *path = clv_path_join(folder, base_name);
    const char *was = NULL;
    json_t *document = NULL;
    clv_status status = path ? CLV_OK : clv_fail_memory(err, folder, strlen(folder));
    if (status == CLV_OK && m->weights && access(path, F_OK) == 0) {
        status = clv_sealed_read(&document, path, LIMIT, err);
        if (status == CLV_OK)
            status = clv_sealed_check_version(document, base_format, VERSION, path, err);
        if (status == CLV_OK)
            status = clv_json_string(&was, document, "base", CLV_JSON_REQUIRED, path, err);
        if (status == CLV_OK)
            status = clv_model_say(is, m, err);
        if (status == CLV_OK && strcmp(is, was) != 0)
            status = clv_fail(err, CLV_EINVAL, "%s: the adapters are of another model (%.190s), this one is %s", folder,
                              was, is);
    }
    json_decref(document);
    free(path);
    return status;
}

static clv_status open_weights(clv_model *m, const char *path, clv_error *err)
{
    const char *first;
    const clv_model_weights_options options = {.is_file = true};
    clv_error why = {0};
    clv_status status =
        clv_model_weights_open(&m->adapter_weights, clv_adapters_config(m->adapters), path, &options, &why);
    if (status != CLV_OK)
        return clv_fail(err, status == CLV_EFORMAT || status == CLV_ENOTFOUND ? CLV_EINVAL : status,
                        "the adapters are not this model's: %.400s", why.message);
    if (clv_model_weights_extra(m->adapter_weights, &first) > 0)
        return clv_fail(err, CLV_EINVAL, "%s: has \"%.128s\", which this model has no use for", path, first);
    return CLV_OK;
}

static clv_status open_adapters(clv_model *m, const json_t *config, const char *where, const char *path, clv_error *err)
{
    clv_lora_options lora = {.size = sizeof lora};
    clv_weights *weights;
    char *targets = NULL;
    CLV_TRY(check_kind(config, where, err));
    CLV_TRY(read_sizes(&lora, config, where, err));
    CLV_TRY(clv_weights_open_path(&weights, path, err));
    clv_status status = find_targets(&targets, weights, &m->config, path, err);
    clv_weights_close(weights);
    lora.targets = targets;
    if (status == CLV_OK)
        status = clv_adapters_new(&m->adapters, &m->config, &lora, err);
    free(targets);
    return status == CLV_OK ? open_weights(m, path, err) : status;
}

clv_status clv_adapters_open(clv_model *m, const char *folder, clv_error *err)
{
    json_t *config = NULL;
    char *where = NULL, *path = clv_path_join(folder, clv_adapters_weights_name);
    clv_status status = path ? CLV_OK : clv_fail_memory(err, folder, strlen(folder));
    if (status == CLV_OK)
        status = load_config(&config, &where, folder, err);
    if (status == CLV_OK)
        status = open_adapters(m, config, where, path, err);
    if (status == CLV_OK)
        status = check_base(m, folder, err);
    json_decref(config);
    free(where);
    free(path);
    return status;
}

/* ---- writing ---- */

static json_t *config_of(const clv_model *m)
{
    const clv_adapters *s = m->adapters;
    char *base = realpath(m->path, NULL);
    bool is_conv = strcmp(clv_model_config_type(&m->config), "gpt2") == 0;
    json_t *targets = json_array();
    for (int i = 0; clv_adapters_target(s, i); i++)
        json_array_append_new(targets, json_string(clv_adapters_target(s, i)));
    double alpha = clv_adapters_alpha(s);
    json_t *config =
        json_pack("{s:s, s:s?, s:s?, s:I, s:o, s:f, s:o, s:b, s:b, s:s, s:b, s:b, s:n}", "peft_type", "LORA",
                  "base_model_name_or_path", base, "task_type", m->config.bidirectional ? NULL : "CAUSAL_LM", "r",
                  (json_int_t)clv_adapters_rank(s), "lora_alpha",
                  alpha == floor(alpha) ? json_integer((json_int_t)alpha) : json_real(alpha), "lora_dropout",
                  clv_adapters_dropout(s), "target_modules", targets, "fan_in_fan_out", is_conv, "inference_mode", 1,
                  "bias", "none", "use_rslora", 0, "use_dora", 0, "modules_to_save");
    free(base);
    return config;
}

static clv_status write_config(const clv_model *m, const char *folder, clv_error *err)
{
    char *path = clv_path_join(folder, clv_adapters_config_name);
    json_t *config = config_of(m);
    char *text = config ? json_dumps(config, JSON_INDENT(2)) : NULL;
    clv_status status =
        path && text ? clv_file_write(path, text, strlen(text), err) : clv_fail_memory(err, folder, strlen(folder));
    json_decref(config);
    free(text);
    free(path);
    return status;
}

static clv_status write_base(const clv_model *m, const char *folder, clv_error *err)
{
    char base[CLV_MODEL_SAYS], *path = clv_path_join(folder, base_name);
    clv_status status = path ? clv_model_say(base, m, err) : clv_fail_memory(err, folder, strlen(folder));
    if (status == CLV_OK) {
        json_t *document = json_pack("{s:s, s:i, s:s}", "format", base_format, "version", VERSION, "base", base);
        status = clv_sealed_write(path, document, LIMIT, err);
        json_decref(document);
    }
    free(path);
    return status;
}

/* A clv_model_files.write_beside. */
static clv_status write_beside(const clv_model_files *files, const char *folder, clv_error *err)
{
    CLV_TRY(write_config(files->arg, folder, err));
    return write_base(files->arg, folder, err);
}

clv_status clv_adapters_files(clv_model_files *out, const clv_model *m, clv_error *err)
{
    if (!m->adapters || !m->weights)
        return clv_fail(err, CLV_EINVAL, "the model has no %s",
                        m->adapters ? "folder that the adapters could be of" : "adapters");
    *out = (clv_model_files){.config = clv_adapters_config(m->adapters),
                             .dtype = m->dtype,
                             .weights_name = clv_adapters_weights_name,
                             .write_beside = write_beside,
                             .arg = m};
    return CLV_OK;
}
