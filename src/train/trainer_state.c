/* trainer_state.c - file names, identity and checksums of a saved trainer state. */
#include "train/trainer_state.h"

#include "io/checkpoint/sharded_checkpoint.h"
#include "io/files/file.h"
#include "models/adapters/lora_parameters.h"
#include "models/adapters/peft_folder.h"
#include "models/weights/parameter_map.h"
#include "tensor/parse_print.h"

const char clv_trainer_manifest_name[] = "trainer.json";
const char clv_trainer_format_name[] = "cleave trainer", clv_trainer_optimizer_name[] = "optimizer";
static const char weights_name[] = "model.safetensors", config_name[] = "config.json";
enum { CONFIG_LIMIT = 1 << 24 };

const clv_model_config *clv_trainer_trained_config(const clv_trainer *t)
{
    return t->model->adapters ? &t->model->adapters->config : &t->model->config;
}

const char *clv_trainer_weights_name(const clv_trainer *t)
{
    return t->model->adapters ? clv_peft_weights_file : weights_name;
}

const char *clv_trainer_config_name(const clv_trainer *t)
{
    return t->model->adapters ? clv_peft_config_file : config_name;
}

static bool is_parameter(const clv_model_config *config, const char *name)
{
    clv_parameter parameter;
    return clv_model_parameter_find(&parameter, config, name, NULL) == CLV_OK;
}

bool clv_trainer_is_trained(const clv_trainer *t, const char *name)
{
    return is_parameter(clv_trainer_trained_config(t), name);
}

bool clv_trainer_is_frozen(const clv_trainer *t, const char *name)
{
    return t->model->adapters && is_parameter(&t->model->config, name);
}

clv_status clv_trainer_describe_trained(char out[CLV_TRAINER_DESCRIPTION_SIZE], const clv_trainer *t, clv_error *err)
{
    char base[CLV_MODEL_FINGERPRINT_SIZE];
    const clv_adapters *s = t->model->adapters;
    clv_text text = {.out = out, .size = CLV_TRAINER_DESCRIPTION_SIZE};
    if (!s) {
        snprintf(out, CLV_TRAINER_DESCRIPTION_SIZE, "all weights");
        return CLV_OK;
    }
    CLV_TRY(clv_model_fingerprint(base, t->model, err));
    clv_text_add(&text, "adapters of rank %lld, alpha %g, beside %s:", (long long)s->config.adapter_rank, s->alpha,
                 base);
    for (int i = 0; i < s->n_targets; i++)
        clv_text_add(&text, " %s", s->targets[i]);
    return CLV_OK;
}

const clv_trainer_config_field clv_trainer_config_readers[CLV_TRAINER_CONFIG_FIELDS] = {
    {"hidden", offsetof(clv_model_config, hidden)},     {"layers", offsetof(clv_model_config, layers)},
    {"heads", offsetof(clv_model_config, heads)},       {"kv_heads", offsetof(clv_model_config, kv_heads)},
    {"head_dim", offsetof(clv_model_config, head_dim)}, {"ffn", offsetof(clv_model_config, ffn)},
    {"vocab", offsetof(clv_model_config, vocab)},
};

int64_t clv_trainer_config_field_value(const clv_model_config *c, const clv_trainer_config_field *size)
{
    int64_t value;
    memcpy(&value, (const char *)c + size->at, sizeof value);
    return value;
}

clv_status clv_trainer_checksum_file(char sum[CLV_CHECKSUM_SIZE], const char *folder, const char *name, clv_error *err)
{
    char path[CLV_PATH_SIZE];
    CLV_FREED char *text = NULL;
    size_t size = 0;
    CLV_TRY(clv_path_join(path, folder, name, err));
    CLV_TRY(clv_file_read(&text, &size, path, CONFIG_LIMIT, err));
    clv_checksum_of(sum, text, size);
    return CLV_OK;
}

static clv_status open_weights_file(clv_safetensors **out, const clv_trainer *t, const char *folder, clv_error *err)
{
    char path[CLV_PATH_SIZE];
    CLV_TRY(clv_path_join(path, folder, clv_trainer_weights_name(t), err));
    return clv_safetensors_open(out, path, err);
}

clv_status clv_trainer_checksum_weights(json_t **out, const clv_trainer *t, const char *folder, clv_error *err)
{
    clv_safetensors *file;
    CLV_TRY(open_weights_file(&file, t, folder, err));
    json_t *sums = json_object();
    clv_status status = sums ? CLV_OK : clv_fail_memory(err, "checksums", 0);
    for (int64_t i = 0; status == CLV_OK && i < clv_safetensors_count(file); i++) {
        const clv_safetensor *tensor = clv_safetensors_at(file, i);
        char sum[CLV_CHECKSUM_SIZE];
        status = clv_tensor_checksum(sum, tensor, err);
        if (status == CLV_OK && json_object_set_new(sums, tensor->name, json_string(sum)) != 0)
            status = clv_fail_memory(err, "checksums", sizeof sum);
    }
    clv_safetensors_close(file);
    if (status == CLV_OK)
        *out = sums;
    else
        json_decref(sums);
    return status;
}
