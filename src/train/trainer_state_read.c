/* trainer_state_read.c - loads a saved trainer state and checks that it belongs to this model. */
#include <dirent.h>
#include <string.h>

#include "base/error.h"
#include "io/files/file.h"
#include "io/json/checksummed_json.h"
#include "models/weights/parameter_map.h"
#include "runtime/multi_process/multi_process.h"
#include "train/trainer_state.h"

/* CLV_EIO may be temporary (too many open files, a server that does not answer) and is no damage. */
bool clv_trainer_state_status_is_damage(clv_status status)
{
    return status == CLV_EFORMAT || status == CLV_ENOTFOUND || status == CLV_ELIMIT;
}

static clv_status check_model(const clv_trainer *t, const json_t *document, const char *path, clv_error *err)
{
    const json_t *model = json_object_get(document, "model");
    const char *family = NULL, *is = clv_model_config_model_type(&t->model->config);
    CLV_TRY(clv_json_check_object(model, path, err));
    CLV_TRY(clv_json_get_string(&family, model, "family", CLV_JSON_REQUIRED, path, err));
    if (strcmp(family, is) != 0)
        return clv_fail(err, CLV_EINVAL, "%s: the model is of family %.32s, this one of %.32s", path, family, is);
    for (int i = 0; i < CLV_TRAINER_CONFIG_FIELDS; i++) {
        int64_t had = 0, has = clv_trainer_config_field_value(&t->model->config, &clv_trainer_config_readers[i]);
        CLV_TRY(clv_json_get_int(&had, model, clv_trainer_config_readers[i].name, CLV_JSON_REQUIRED, 0, INT64_MAX, path,
                                 err));
        if (had != has)
            return clv_fail(err, CLV_EINVAL, "%s: the model has %s %lld, this one %lld", path,
                            clv_trainer_config_readers[i].name, (long long)had, (long long)has);
    }
    return CLV_OK;
}

static clv_status check_config(const clv_trainer *t, const json_t *document, const char *folder, const char *path,
                               clv_error *err)
{
    char said[CLV_CHECKSUM_SIZE], is[CLV_CHECKSUM_SIZE];
    CLV_TRY(clv_checksummed_json_get_checksum(said, document, "config_checksum", path, err));
    CLV_TRY(clv_trainer_checksum_file(is, folder, clv_trainer_config_name(t), err));
    if (strcmp(said, is) != 0)
        return clv_fail(err, CLV_EFORMAT, "%s/%s: its checksum differs from that in %s: the file is damaged", folder,
                        clv_trainer_config_name(t), clv_trainer_manifest_name);
    return CLV_OK;
}

/* Checksums of the weights file; in the root process. */
static clv_status check_weights(const clv_trainer *t, const json_t *document, const char *folder, const char *path,
                                clv_error *err)
{
    const json_t *said = json_object_get(document, "weights_checksums");
    json_auto_t *are = NULL;
    CLV_TRY(clv_json_check_object(said, path, err));
    CLV_TRY(clv_trainer_checksum_weights(&are, t, folder, err));
    const char *name;
    json_t *sum;
    if (json_object_size(said) != json_object_size(are))
        return clv_fail(err, CLV_EFORMAT, "%s/%s: has %zu tensors, %s has %zu: damaged", folder,
                        clv_trainer_weights_name(t), json_object_size(are), clv_trainer_manifest_name,
                        json_object_size(said));
    json_object_foreach(are, name, sum)
    {
        if (!json_equal(sum, json_object_get(said, name)))
            return clv_fail(err, CLV_EFORMAT,
                            "%s/%s: %.128s: its checksum differs from that in %s: the file is damaged", folder,
                            clv_trainer_weights_name(t), name, clv_trainer_manifest_name);
    }
    return CLV_OK;
}

/* What a checkpoint trained, or by which optimizer, must be the same in this run. by: "by " or "". */
static clv_status check_same(const json_t *document, const char *key, const char *fallback, const char *is,
                             const char *by, const char *path, clv_error *err)
{
    const char *was = fallback;
    CLV_TRY(clv_json_get_string(&was, document, key, CLV_JSON_OPTIONAL, path, err));
    if (strcmp(was, is) == 0)
        return CLV_OK;
    return clv_fail(err, CLV_EINVAL, "%s: trained %s%.300s; this run trains %s%.300s", path, by, was, by, is);
}

typedef struct stored {
    const clv_trainer *trainer;
    clv_model_weights *weights;
    clv_weights *others;
} stored;

static const char master_suffix[] = ".master";

/* The f32 master copy of a parameter, which checkpoints of 16-bit runs have. */
static const clv_safetensor *find_master(const stored *s, const char *parameter)
{
    char name[CLV_TENSOR_NAME_SIZE];
    const clv_safetensor *found = NULL;
    snprintf(name, sizeof name, "%s%s", parameter, master_suffix);
    return clv_weights_find(&found, s->others, name, NULL) == CLV_OK ? found : NULL;
}

/* Whether `name` is a master copy; out: its parameter. */
static bool is_master(char out[CLV_TENSOR_NAME_SIZE], const char *name)
{
    size_t length = strlen(name), end = sizeof master_suffix - 1;
    if (length <= end || length >= CLV_TENSOR_NAME_SIZE || strcmp(name + length - end, master_suffix) != 0)
        return false;
    snprintf(out, CLV_TENSOR_NAME_SIZE, "%.*s", (int)(length - end), name);
    return true;
}

/* Reads a state from a tensor of the same shape and dtype. */
static clv_status read_optimizer_state(const clv_safetensor *tensor, const char *name, const clv_type *type,
                                       const clv_shard *box, void *out, int *known, clv_error *err)
{
    *known = 1;
    if (!tensor->readable || tensor->dtype != type->dtype || tensor->rank != type->rank ||
        memcmp(tensor->shape, type->shape, (size_t)type->rank * sizeof *type->shape) != 0)
        return clv_fail(err, CLV_EINVAL, "the checkpoint has state '%.100s' of another shape or dtype (%s)", name,
                        tensor->dtype_name);
    return clv_safetensors_read(tensor, box, type->dtype, out, err);
}

/* A clv_state_source; the checkpoint may have another dtype: master copies, if any, are the weights. */
static clv_status read_stored(void *arg, const char *name, const clv_type *type, const clv_shard *box, void *out,
                              int *known, clv_error *err)
{
    stored *s = arg;
    char parameter[CLV_TENSOR_NAME_SIZE];
    const clv_safetensor *tensor = NULL;
    bool is_one = clv_trainer_is_trained(s->trainer, name);
    if (clv_trainer_is_frozen(s->trainer, name))
        return clv_model_state_source((void *)s->trainer->model, name, type, box, out, known, err);
    if (is_one && clv_dtype_size(type->dtype) > 2)
        tensor = find_master(s, name);
    if (is_one && !tensor)
        return clv_model_weights_source(s->weights, name, type, box, out, known, err);
    if (!tensor && is_master(parameter, name) && !find_master(s, parameter))
        return clv_model_weights_source(s->weights, parameter, type, box, out, known, err);
    if (!tensor)
        CLV_TRY(clv_weights_find(&tensor, s->others, name, err));
    return read_optimizer_state(tensor, name, type, box, out, known, err);
}

static clv_status open_trained(clv_model_weights **out, const clv_trainer *t, const char *folder, clv_error *err)
{
    const clv_model_weights_options file = {.is_file = true};
    char path[CLV_PATH_SIZE];
    if (!t->model->adapters)
        return clv_model_weights_open(out, clv_trainer_trained_config(t), folder, NULL, err);
    CLV_TRY(clv_path_join(path, folder, clv_trainer_weights_name(t), err));
    return clv_model_weights_open(out, clv_trainer_trained_config(t), path, &file, err);
}

static clv_status read_tensors(clv_trainer *t, const char *folder, clv_error *err)
{
    stored s = {.trainer = t};
    char others[CLV_PATH_SIZE];
    CLV_TRY(clv_path_join(others, folder, clv_trainer_optimizer_name, err));
    clv_status status = open_trained(&s.weights, t, folder, err);
    if (status == CLV_OK)
        status = clv_weights_open(&s.others, others, err);
    if (status == CLV_OK)
        status = clv_session_reload_local(t->session, read_stored, &s, err);
    clv_weights_close(s.others);
    clv_model_weights_close(s.weights);
    return status;
}

static clv_status read_metadata(clv_trainer *t, const json_t *document, const char *path, clv_error *err)
{
    json_t *notes = json_object_get(document, "notes"), *text;
    const char *key;
    CLV_TRY(clv_json_check_object(notes, path, err));
    json_object_clear(t->metadata);
    json_object_foreach(notes, key, text) if (json_is_string(text))
        CLV_TRY(clv_trainer_set_metadata(t, key, json_string_value(text), err));
    return CLV_OK;
}

static clv_status read_document(clv_trainer *t, const json_t *document, const char *folder, const char *path,
                                clv_error *err)
{
    int64_t steps = 0, skipped = 0;
    char trained[CLV_TRAINER_DESCRIPTION_SIZE];
    CLV_TRY(clv_checksummed_json_check_version(document, clv_trainer_format_name, CLV_TRAINER_VERSION, path, err));
    CLV_TRY(clv_json_get_int(&steps, document, "steps", CLV_JSON_REQUIRED, 0, INT32_MAX - 1, path, err));
    CLV_TRY(clv_json_get_int(&skipped, document, "skipped", CLV_JSON_OPTIONAL, 0, steps, path, err));
    CLV_TRY(check_model(t, document, path, err));
    CLV_TRY(clv_trainer_describe_trained(trained, t, err));
    CLV_TRY(check_same(document, "trained", "all weights", trained, "", path, err));
    CLV_TRY(check_same(document, "optimizer", clv_optimizer_name(CLV_OPTIMIZER_ADAMW), clv_optimizer_name(t->optimizer),
                       "by ", path, err));
    if (clv_session_is_root(t->session)) {
        CLV_TRY(check_config(t, document, folder, path, err));
        CLV_TRY(check_weights(t, document, folder, path, err));
    }
    CLV_TRY(read_tensors(t, folder, err));
    CLV_TRY(read_metadata(t, document, path, err));
    t->step = steps;
    t->skipped = skipped;
    return CLV_OK;
}

/* A missing file is damage only if this process sees the folder. */
static clv_status check_folder_is_visible(const char *folder, clv_status status, clv_error *err)
{
    DIR *dir = status == CLV_ENOTFOUND ? opendir(folder) : NULL;
    if (status == CLV_ENOTFOUND && !dir)
        return clv_fail(err, CLV_EIO, "%s: not every process can list it; valid: a folder that all see", folder);
    if (dir)
        closedir(dir);
    return status;
}

clv_status clv_trainer_state_read(clv_trainer *t, const char *folder, clv_error *err)
{
    char path[CLV_PATH_SIZE];
    json_auto_t *document = NULL;
    clv_status status = clv_path_join(path, folder, clv_trainer_manifest_name, err);
    if (status == CLV_OK)
        status = clv_checksummed_json_read(&document, path, CLV_TRAINER_JSON_LIMIT, err);
    if (status == CLV_OK)
        status = read_document(t, document, folder, path, err);
    return check_folder_is_visible(folder, status, err);
}
