/* peft_folder.c - loads and saves a PEFT adapter folder, finds its base model and verifies that the base is the same.
 */
#include "models/adapters/peft_folder.h"

#include <math.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/files/atomic_folder.h"
#include "io/files/file.h"
#include "io/json/checksummed_json.h"
#include "io/json/json.h"
#include "models/adapters/lora_parameters.h"
#include "models/adapters/peft_config.h"
#include "models/weights/parameter_map.h"

const char clv_peft_weights_file[] = "adapter_model.safetensors", clv_peft_config_file[] = "adapter_config.json";
static const char base_name[] = "cleave_base.json", base_format[] = "cleave adapter base";
enum { VERSION = 1, LIMIT = 1 << 24 };

/* ---- the folder of the base ---- */

bool clv_peft_is_adapter_folder(const char *folder)
{
    return clv_folder_has(folder, clv_peft_config_file) && !clv_folder_has(folder, "config.json");
}

static clv_status load_config(json_t **out, char path[CLV_PATH_SIZE], const char *folder, clv_error *err)
{
    CLV_TRY(clv_path_join(path, folder, clv_peft_config_file, err));
    CLV_TRY(clv_json_load(out, path, LIMIT, err));
    return clv_json_check_object(*out, path, err);
}

static clv_status find_base(char **out, const json_t *config, const char *path, const char *folder, clv_error *err)
{
    const char *base = "";
    char relative[CLV_PATH_SIZE];
    CLV_TRY(clv_json_get_string(&base, config, "base_model_name_or_path", CLV_JSON_OPTIONAL, path, err));
    bool is_here = base[0] && clv_is_folder(base);
    if (!is_here && (!base[0] || base[0] == '/' || !clv_path_find(relative, folder, base) || !clv_is_folder(relative)))
        return clv_fail(
            err, CLV_ENOTFOUND,
            "%s: its base model \"%.200s\" does not exist as a folder; valid: the base's folder as the model, and "
            "%s as its adapters",
            path, base, folder);
    *out = strdup(is_here ? base : relative);
    return *out ? CLV_OK : clv_fail_memory(err, path, strlen(base));
}

clv_status clv_peft_find_base_folder(char **out, const char *folder, clv_error *err)
{
    json_auto_t *config = NULL;
    char path[CLV_PATH_SIZE];
    CLV_TRY(load_config(&config, path, folder, err));
    return find_base(out, config, path, folder, err);
}

/* ---- reading ---- */

typedef struct peft_files {
    const json_t *config;
    const char *config_path, *weights_path;
    const clv_weights *weights;
    bool is_bare; /* names lack the family's base */
} peft_files;

/* Counts the layers in which a module has an A in the file. PEFT saves one for every target, so all layers must have
 * it, or none. */
static clv_status count_layers(int64_t *out, const peft_files *files, const clv_model_config *base,
                               const clv_lora_module *module, clv_error *err)
{
    static const char ending[] = ".lora_A.weight";
    char name[CLV_TENSOR_NAME_SIZE + 32];
    const bool of_layers = strchr(module->tensor, '%') != NULL;
    int64_t missing = -1, n = of_layers ? base->layers : 1;
    *out = 0;
    for (int64_t i = 0; i < n; i++) {
        clv_lora_name_a(name, sizeof name, module, base, i, files->is_bare);
        if (!clv_weights_has(files->weights, name)) {
            missing = i;
            continue;
        }
        ++*out;
        name[strlen(name) - strlen(ending)] = '\0';
        CLV_TRY(clv_peft_config_check_module(files->config, name + strlen(clv_adapters_peft_base), of_layers ? i : -1,
                                             files->config_path, err));
    }
    if (*out == 0 || *out == n)
        return CLV_OK;
    clv_lora_name_a(name, sizeof name, module, base, missing, files->is_bare);
    return clv_fail(
        err, CLV_EINVAL,
        "%s: lacks %.128s, and has such a one for %lld of %lld layers; supported: a module in all layers or "
        "in none (\"layers_to_transform\", \"target_modules\" and \"exclude_modules\" of %s choose them)",
        files->weights_path, name, (long long)*out, (long long)n, clv_peft_config_file);
}

/* The modules that have an A in the file, by their full names: "first,second"; the caller frees *out. NULL: none. */
static clv_status find_targets(char **out, const peft_files *files, const clv_model_config *base, clv_error *err)
{
    for (clv_lora_module m = {0}; clv_lora_next_module(&m, base);) {
        int64_t layers;
        char *longer;
        CLV_TRY(count_layers(&layers, files, base, &m, err));
        if (layers == 0)
            continue;
        if (asprintf(&longer, "%s%s%.*s", *out ? *out : "", *out ? "," : "", (int)(m.end - m.tensor), m.tensor) < 0)
            return clv_fail_memory(err, files->weights_path, CLV_TENSOR_NAME_SIZE);
        free(*out);
        *out = longer;
    }
    return CLV_OK;
}

/* Checks the fingerprint of the base, if the folder has one. */
static clv_status check_base(const clv_model *m, const char *folder, clv_error *err)
{
    char is[CLV_MODEL_FINGERPRINT_SIZE], path[CLV_PATH_SIZE];
    const char *was = NULL;
    json_auto_t *document = NULL;
    if (!m->weights || !clv_path_find(path, folder, base_name))
        return CLV_OK;
    CLV_TRY(clv_checksummed_json_read(&document, path, LIMIT, err));
    CLV_TRY(clv_checksummed_json_check_version(document, base_format, VERSION, path, err));
    CLV_TRY(clv_json_get_string(&was, document, "base", CLV_JSON_REQUIRED, path, err));
    CLV_TRY(clv_model_fingerprint(is, m, err));
    if (strcmp(is, was) != 0)
        return clv_fail(err, CLV_EINVAL, "%s: the adapters are of another model (%.190s), this one is %s", folder, was,
                        is);
    return CLV_OK;
}

static clv_status open_weights(clv_model *m, const char *path, clv_error *err)
{
    const clv_model_weights_options options = {.is_file = true, .is_adapters = true, .warnings = &m->warnings};
    clv_error why = {0};
    clv_status status = clv_model_weights_open(&m->adapter_weights, &m->adapters->config, path, &options, &why);
    if (status != CLV_OK)
        return clv_fail(err, status == CLV_EFORMAT || status == CLV_ENOTFOUND ? CLV_EINVAL : status,
                        "the adapters are not this model's: %.400s", why.message);
    return clv_peft_check_extra_tensors(m, path, err);
}

static clv_status make_adapters(clv_model *m, peft_files *files, clv_lora_options *lora, clv_error *err)
{
    CLV_FREED char *targets = NULL;
    CLV_TRY(find_targets(&targets, files, &m->config, err));
    if (!targets) {
        files->is_bare = true;
        CLV_TRY(find_targets(&targets, files, &m->config, err));
    }
    if (!targets)
        return clv_fail(err, CLV_EINVAL,
                        "%s: has adapters of none of the linear layers of this model, a %s; its first tensor is "
                        "%.128s, of linear layers they would be %s<module>.lora_A.weight",
                        files->weights_path, clv_model_config_model_type(&m->config),
                        clv_weights_count(files->weights) > 0 ? clv_weights_at(files->weights, 0)->name : "none",
                        clv_adapters_peft_base);
    lora->targets = targets;
    return clv_adapters_new(&m->adapters, &m->config, lora, files->is_bare, err);
}

static clv_status open_adapters(clv_model *m, peft_files *files, const char *folder, clv_error *err)
{
    clv_lora_options lora = {.size = sizeof lora, .folder = files->weights_path};
    clv_weights *weights;
    CLV_TRY(clv_peft_config_read(&lora, files->config, files->config_path, err));
    if (!clv_folder_has(folder, clv_peft_weights_file) && clv_folder_has(folder, "adapter_model.bin"))
        return clv_fail(err, CLV_ENOTFOUND,
                        "%s: has no %s; adapter_model.bin is a Python pickle; convert it by PEFT's %s", folder,
                        clv_peft_weights_file, "from_pretrained and save_pretrained");
    CLV_TRY(clv_weights_open_path(&weights, files->weights_path, err));
    files->weights = weights;
    clv_status status = make_adapters(m, files, &lora, err);
    clv_weights_close(weights);
    return status == CLV_OK ? open_weights(m, files->weights_path, err) : status;
}

clv_status clv_peft_open_adapters(clv_model *m, const char *folder, clv_error *err)
{
    json_auto_t *config = NULL;
    char where[CLV_PATH_SIZE], path[CLV_PATH_SIZE];
    CLV_TRY(clv_path_join(path, folder, clv_peft_weights_file, err));
    CLV_TRY(load_config(&config, where, folder, err));
    CLV_TRY(open_adapters(m, &(peft_files){.config = config, .config_path = where, .weights_path = path}, folder, err));
    return check_base(m, folder, err);
}

/* ---- writing ---- */

static json_t *config_of(const clv_model *m)
{
    const clv_adapters *s = m->adapters;
    char *base = realpath(m->path, NULL);
    bool is_conv = strcmp(clv_model_config_model_type(&m->config), "gpt2") == 0;
    json_t *targets = json_array();
    for (int i = 0; i < s->n_targets; i++)
        json_array_append_new(targets, json_string(s->targets[i]));
    double alpha = s->alpha;
    json_t *config = json_pack("{s:s, s:s?, s:s?, s:I, s:o, s:f, s:o, s:b, s:b, s:s, s:b, s:b, s:n}", "peft_type",
                               "LORA", "base_model_name_or_path", base, "task_type",
                               m->config.bidirectional ? NULL : "CAUSAL_LM", "r", (json_int_t)s->config.adapter_rank,
                               "lora_alpha", alpha == floor(alpha) ? json_integer((json_int_t)alpha) : json_real(alpha),
                               "lora_dropout", s->dropout, "target_modules", targets, "fan_in_fan_out", is_conv,
                               "inference_mode", 1, "bias", "none", "use_rslora", 0, "use_dora", 0, "modules_to_save");
    free(base);
    return config;
}

static clv_status write_config(const clv_model *m, const char *folder, clv_error *err)
{
    char path[CLV_PATH_SIZE];
    CLV_TRY(clv_path_join(path, folder, clv_peft_config_file, err));
    json_auto_t *config = config_of(m);
    CLV_FREED char *text = config ? json_dumps(config, JSON_INDENT(2)) : NULL;
    return text ? clv_file_write(path, text, strlen(text), err) : clv_fail_memory(err, folder, strlen(folder));
}

static clv_status write_base(const clv_model *m, const char *folder, clv_error *err)
{
    char base[CLV_MODEL_FINGERPRINT_SIZE], path[CLV_PATH_SIZE];
    CLV_TRY(clv_path_join(path, folder, base_name, err));
    CLV_TRY(clv_model_fingerprint(base, m, err));
    json_auto_t *document = json_pack("{s:s, s:i, s:s}", "format", base_format, "version", VERSION, "base", base);
    return clv_checksummed_json_write(path, document, LIMIT, err);
}

/* A clv_model_save_spec.write_sidecars. */
static clv_status write_sidecars(const clv_model_save_spec *files, const char *folder, clv_error *err)
{
    CLV_TRY(write_config(files->arg, folder, err));
    return write_base(files->arg, folder, err);
}

clv_status clv_model_save_spec_peft(clv_model_save_spec *out, const clv_model *m, clv_error *err)
{
    if (!m->adapters || !m->weights)
        return clv_fail(err, CLV_EINVAL, "the model has no %s",
                        m->adapters ? "folder that the adapters could be of" : "adapters");
    *out = (clv_model_save_spec){.config = &m->adapters->config,
                                 .dtype = m->dtype,
                                 .weights_name = clv_peft_weights_file,
                                 .write_sidecars = write_sidecars,
                                 .arg = m};
    return CLV_OK;
}
