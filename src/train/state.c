/* state.c - all that a trainer needs to go on, in a folder:
 *
 *   config.json, model.safetensors   the weights, as a folder of the Hub holds them, in the dtype of the run; or
 *   adapter_config.json, adapter_model.safetensors   a model's adapters, whose weights are not trained
 *   optimizer/                       every other state, as a sharded checkpoint: a file a rank (docs/checkpoints.md)
 *   trainer.json                     steps done, what it is of, notes, checksums of the weights; written last
 *
 * Each process writes the files of its own ranks; the first one those that are one for all. */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "cleave/checkpoint.h"
#include "io/file.h"
#include "io/sealed.h"
#include "io/shards.h"
#include "models/adapters.h"
#include "models/adapters_folder.h"
#include "models/parameters.h"
#include "runtime/peers.h"
#include "runtime/shares.h"
#include "tensor/text.h"
#include "train/trainer.h"

const char clv_trainer_manifest_name[] = "trainer.json";

static const char format_name[] = "cleave trainer", weights_name[] = "model.safetensors", config_name[] = "config.json",
                  optimizer_name[] = "optimizer", optimizer_file[] = "optimizer.safetensors",
                  writing_what[] = "saving a checkpoint";
enum { VERSION = 1, LIMIT = 1 << 28, CONFIG_LIMIT = 1 << 24 };

/* ---- the optimizer's state as files ---- */

/* States that are no parameters, as tensors of one file whose elements are in the session. */
typedef struct other_states {
    const clv_trainer *trainer;
    int64_t n;
    clv_tensor_spec *specs;
    clv_tensor_placement *placements;
    clv_safetensors *file;
} other_states;

/* Of what is trained. */
static const clv_model_config *trained(const clv_trainer *t)
{
    return t->model->adapters ? clv_adapters_config(t->model->adapters) : &t->model->config;
}

static const char *weights_of(const clv_trainer *t)
{
    return t->model->adapters ? clv_adapters_weights_name : weights_name;
}

static const char *config_of(const clv_trainer *t)
{
    return t->model->adapters ? clv_adapters_config_name : config_name;
}

static bool is_of(const clv_model_config *config, const char *name)
{
    clv_parameter parameter;
    return clv_model_parameter_find(&parameter, config, name, NULL) == CLV_OK;
}

static bool is_parameter(const clv_trainer *t, const char *name)
{
    return is_of(trained(t), name);
}

/* A weight beside adapters: no checkpoint has it. */
static bool is_frozen(const clv_trainer *t, const char *name)
{
    return t->model->adapters && is_of(&t->model->config, name);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const clv_tensor_spec *)a)->name, ((const clv_tensor_spec *)b)->name);
}

static clv_status list_states(other_states *o, clv_error *err)
{
    clv_state_info info = {.size = sizeof info};
    int all = 0;
    while (clv_session_state(o->trainer->session, all, &info, err) == CLV_OK && info.name)
        all++;
    o->specs = calloc((size_t)all + 1, sizeof *o->specs);
    o->placements = calloc((size_t)all + 1, sizeof *o->placements);
    if (!o->specs || !o->placements)
        return clv_fail_memory(err, "a checkpoint's tensors", (size_t)all * sizeof *o->placements);
    for (int i = 0; i < all; i++) {
        CLV_TRY(clv_session_state(o->trainer->session, i, &info, err));
        if (is_parameter(o->trainer, info.name) || is_frozen(o->trainer, info.name))
            continue;
        clv_tensor_spec *spec = &o->specs[o->n++];
        *spec = (clv_tensor_spec){.name = info.name, .dtype = info.type.dtype, .rank = info.type.rank};
        memcpy(spec->shape, info.type.shape, sizeof spec->shape);
    }
    qsort(o->specs, (size_t)o->n, sizeof *o->specs, by_name);
    return CLV_OK;
}

/* A clv_tensor_reader: the box of a rank of this process. */
static clv_status read_state(const void *arg, const clv_safetensor *tensor, int rank, const int64_t *shape,
                             const clv_shard *box, clv_dtype dtype, void *out, clv_error *err)
{
    const other_states *o = arg;
    (void)rank, (void)shape, (void)dtype; /* those of the state */
    return clv_session_read_here(o->trainer->session, tensor->name, box, out, err);
}

static clv_status place_states(other_states *o, clv_error *err)
{
    clv_state_info info = {.size = sizeof info};
    for (int i = 0; clv_session_state(o->trainer->session, i, &info, err) == CLV_OK && info.name; i++)
        for (int64_t k = 0; k < clv_safetensors_count(o->file); k++) {
            clv_tensor_placement *p = &o->placements[k];
            if (strcmp(clv_safetensors_at(o->file, k)->name, info.name) != 0)
                continue;
            *p = (clv_tensor_placement){.rank = info.type.rank, .layout = info.layout};
            memcpy(p->view, info.type.shape, sizeof p->view);
            break;
        }
    return CLV_OK;
}

static clv_status open_states(other_states *o, clv_error *err)
{
    char *text = NULL;
    uint64_t bytes = 0;
    CLV_TRY(list_states(o, err));
    CLV_TRY(clv_safetensors_header_of(&text, &bytes, o->specs, o->n, err));
    clv_status status =
        clv_safetensors_open_header(&o->file, optimizer_file, text, strlen(text), bytes, read_state, o, err);
    free(text);
    return status == CLV_OK ? place_states(o, err) : status;
}

static void close_states(other_states *o)
{
    clv_safetensors_close(o->file);
    free(o->specs);
    free(o->placements);
}

/* ---- what the processes tell each other of their rank files ---- */

enum { WORDS_OF_SUM = 2, SUM_DIGITS = 16 };

static void sum_to_words(int64_t *words, const char *sum)
{
    for (int i = 0; i < WORDS_OF_SUM; i++) {
        char digits[SUM_DIGITS + 1] = "";
        memcpy(digits, sum + (size_t)i * SUM_DIGITS, SUM_DIGITS);
        words[i] = (int64_t)strtoull(digits, NULL, 16);
    }
}

static void words_to_sum(char *sum, const int64_t *words)
{
    snprintf(sum, CLV_CHECKSUM_SIZE, "%016llx%016llx", (unsigned long long)words[0], (unsigned long long)words[1]);
}

/* Words of a rank: its file's bytes, its header's checksum, and of each tensor the checksum of the rank's part. */
static void rank_to_words(int64_t *words, const clv_manifest *m, int64_t rank)
{
    words[0] = (int64_t)m->ranks[rank].bytes;
    sum_to_words(&words[1], m->ranks[rank].header);
    for (int64_t i = 0; i < m->n_tensors; i++) {
        const clv_manifest_part *part = clv_manifest_part_of(&m->tensors[i], rank);
        if (part)
            sum_to_words(&words[1 + WORDS_OF_SUM * (1 + i)], part->checksum);
    }
}

static void words_to_rank(clv_manifest *m, int64_t rank, const int64_t *words)
{
    m->ranks[rank].bytes = (uint64_t)words[0];
    words_to_sum(m->ranks[rank].header, &words[1]);
    for (int64_t i = 0; i < m->n_tensors; i++) {
        clv_manifest_part *part = clv_manifest_part_of(&m->tensors[i], rank);
        if (part)
            words_to_sum(part->checksum, &words[1 + WORDS_OF_SUM * (1 + i)]);
    }
}

/* Round k is of the k-th rank of each process. `firsts`: of the process that has rank r, by all ranks. */
static clv_status tell_round(const clv_session *session, clv_manifest *m, int k, int64_t *mine, int n, int64_t *all,
                             clv_error *err)
{
    int first, last;
    clv_session_ranks_here(session, &first, &last);
    memset(mine, 0, (size_t)n * sizeof *mine);
    mine[0] = -1; /* no such rank here */
    if (first + k < last) {
        mine[0] = first + k;
        rank_to_words(mine + 1, m, first + k);
    }
    CLV_TRY(clv_session_tell(session, writing_what, mine, n, all, err));
    for (int64_t r = 0; r < m->n_ranks; r++) {
        const int64_t *row = all + r * n;
        if (row[0] >= 0)
            words_to_rank(m, row[0], row + 1);
    }
    return CLV_OK;
}

/* The most ranks that a process has. */
static clv_status count_most(int64_t *most, const clv_session *session, int64_t *counts, int ranks, clv_error *err)
{
    int first, last;
    clv_session_ranks_here(session, &first, &last);
    int64_t here = last - first;
    *most = 0;
    CLV_TRY(clv_session_tell(session, writing_what, &here, 1, counts, err));
    for (int r = 0; r < ranks; r++)
        *most = counts[r] > *most ? counts[r] : *most;
    return CLV_OK;
}

/* A clv_shards_meet. */
static clv_status tell_all(void *arg, clv_manifest *m, clv_status status, clv_error *err)
{
    const clv_trainer *t = arg;
    const clv_session *session = t->session;
    int first, last, n = (int)(2 + WORDS_OF_SUM * (1 + m->n_tensors));
    int64_t *mine = calloc((size_t)n, sizeof *mine), most = 0;
    int64_t *all = calloc((size_t)n * (size_t)m->n_ranks + 1, sizeof *all);
    clv_session_ranks_here(session, &first, &last);
    if (status == CLV_OK && (!mine || !all))
        status = clv_fail_memory(err, "checksums", (size_t)n * (size_t)m->n_ranks * sizeof *all);
    status = clv_trainer_agree(t, status, err);
    if (status == CLV_OK && last - first < m->n_ranks)
        status = count_most(&most, session, all, (int)m->n_ranks, err);
    for (int k = 0; status == CLV_OK && k < most; k++)
        status = tell_round(session, m, k, mine, n, all, err);
    free(mine);
    free(all);
    return status;
}

static clv_status write_others(const clv_trainer *t, const char *folder, clv_error *err)
{
    other_states o = {.trainer = t};
    char *path = clv_path_join(folder, optimizer_name);
    int first, last;
    clv_session_ranks_here(t->session, &first, &last);
    clv_shards_options options = {.mesh = t->model->mesh,
                                  .rules = t->model->rules.name,
                                  .meet = tell_all,
                                  .meet_arg = (void *)t,
                                  .first = first,
                                  .last = last};
    const char *name = optimizer_file;
    int64_t none;
    clv_status status = path ? open_states(&o, err) : clv_fail_memory(err, folder, strlen(folder));
    status = clv_session_agree(t->session, writing_what, status, 0, &none, err);
    options.placements = o.placements;
    const clv_safetensors *file = o.file;
    if (status == CLV_OK)
        status = clv_shards_write(path, &file, &name, 1, &options, err);
    close_states(&o);
    free(path);
    return status;
}

/* ---- trainer.json ---- */

enum { ADAPTERS_TEXT = 1024 };

/* Which adapters are trained, and beside which weights: "all weights" for a model without. */
static clv_status say_trained(char out[ADAPTERS_TEXT], const clv_trainer *t, clv_error *err)
{
    char base[CLV_MODEL_SAYS];
    const clv_adapters *s = t->model->adapters;
    clv_text text = {.out = out, .size = ADAPTERS_TEXT};
    if (!s) {
        snprintf(out, ADAPTERS_TEXT, "all weights");
        return CLV_OK;
    }
    CLV_TRY(clv_model_say(base, t->model, err));
    clv_text_add(&text, "adapters of rank %lld, alpha %g, beside %s:", (long long)clv_adapters_rank(s),
                 clv_adapters_alpha(s), base);
    for (int i = 0; clv_adapters_target(s, i); i++)
        clv_text_add(&text, " %s", clv_adapters_target(s, i));
    return CLV_OK;
}

/* Sizes by which a model is told from another. */
typedef struct named_size {
    const char *name;
    size_t at;
} named_size;

static const named_size sizes[] = {
    {"hidden", offsetof(clv_model_config, hidden)},     {"layers", offsetof(clv_model_config, layers)},
    {"heads", offsetof(clv_model_config, heads)},       {"kv_heads", offsetof(clv_model_config, kv_heads)},
    {"head_dim", offsetof(clv_model_config, head_dim)}, {"ffn", offsetof(clv_model_config, ffn)},
    {"vocab", offsetof(clv_model_config, vocab)},
};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

static int64_t size_of(const clv_model_config *c, const named_size *size)
{
    int64_t value;
    memcpy(&value, (const char *)c + size->at, sizeof value);
    return value;
}

static clv_status checksum_file(char sum[CLV_CHECKSUM_SIZE], const char *folder, const char *name, clv_error *err)
{
    char *path = clv_path_join(folder, name), *text = NULL;
    size_t size = 0;
    clv_status status =
        path ? clv_file_read(&text, &size, path, CONFIG_LIMIT, err) : clv_fail_memory(err, folder, strlen(folder));
    if (status == CLV_OK)
        clv_checksum_of(sum, text, size);
    free(text);
    free(path);
    return status;
}

static clv_status open_weights_file(clv_safetensors **out, const clv_trainer *t, const char *folder, clv_error *err)
{
    char *path = clv_path_join(folder, weights_of(t));
    clv_status status = path ? clv_safetensors_open(out, path, err) : clv_fail_memory(err, folder, strlen(folder));
    free(path);
    return status;
}

/* {"model.embed_tokens.weight": "<32 digits>", ...}; the caller releases *out. */
static clv_status sum_weights(json_t **out, const clv_trainer *t, const char *folder, clv_error *err)
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

static json_t *model_object(const clv_trainer *t)
{
    json_t *model = json_pack("{s:s, s:s}", "family", clv_model_config_type(&t->model->config), "dtype",
                              clv_dtype_name(t->model->dtype));
    for (int i = 0; i < SIZES; i++)
        json_object_set_new(model, sizes[i].name, json_integer(size_of(&t->model->config, &sizes[i])));
    return model;
}

static json_t *notes_object(const clv_trainer *t)
{
    json_t *notes = json_object();
    for (int i = 0; i < t->n_notes; i++)
        json_object_set_new(notes, t->notes[i].key, json_string(t->notes[i].text));
    return notes;
}

static clv_status write_manifest(const clv_trainer *t, const char *folder, clv_error *err)
{
    char *path = clv_path_join(folder, clv_trainer_manifest_name), config[CLV_CHECKSUM_SIZE], mesh[CLV_MESH_TEXT];
    char what[ADAPTERS_TEXT];
    json_t *weights = NULL, *document = NULL;
    clv_status status = path ? CLV_OK : clv_fail_memory(err, folder, strlen(folder));
    if (status == CLV_OK)
        status = checksum_file(config, folder, config_of(t), err);
    if (status == CLV_OK)
        status = sum_weights(&weights, t, folder, err);
    if (status == CLV_OK)
        status = say_trained(what, t, err);
    if (status == CLV_OK) {
        clv_mesh_print(mesh, sizeof mesh, &t->model->mesh);
        document = json_pack("{s:s, s:i, s:I, s:o, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:o, s:s, s:o}", "format",
                             format_name, "version", VERSION, "steps", (json_int_t)t->step, "model", model_object(t),
                             "trained", what, "optimizer", clv_optimizer_name(t->optimizer), "mesh", mesh, "rules",
                             t->model->rules.name, "skipped", (json_int_t)t->skipped, "batch", (json_int_t)t->batch,
                             "seq", (json_int_t)t->seq, "seed", (json_int_t)t->seed, "notes", notes_object(t),
                             "config_checksum", config, "weights_checksums", weights);
        status = clv_sealed_write(path, document, LIMIT, err);
    }
    json_decref(document);
    free(path);
    return status;
}

static clv_status write_trained(const clv_trainer *t, const char *folder, clv_error *err)
{
    return t->model->adapters ? clv_model_save_adapters(t->model, t->session, folder, err)
                              : clv_model_save(t->model, t->session, folder, err);
}

clv_status clv_trainer_write_state(const clv_trainer *t, const char *folder, clv_error *err)
{
    bool leads = clv_session_leads(t->session);
    clv_status status = CLV_OK;
    int64_t none;
    if (leads) {
        char *path = clv_path_join(folder, optimizer_name);
        if (!path)
            status = clv_fail_memory(err, folder, strlen(folder));
        else if (mkdir(path, 0777) != 0)
            status = clv_fail_errno(err, "make the folder", path);
        free(path);
    }
    CLV_TRY(clv_session_agree(t->session, writing_what, status, 0, &none, err));
    CLV_TRY(write_trained(t, folder, err));
    status = write_others(t, folder, err); /* the first process writes the manifest, alone */
    if (status == CLV_OK && leads)
        status = write_manifest(t, folder, err);
    return clv_trainer_agree(t, status, err);
}

/* ---- reading ---- */

/* CLV_EIO may pass (too many open files, a server that does not answer), and the files be whole. */
bool clv_trainer_is_damage(clv_status status)
{
    return status == CLV_EFORMAT || status == CLV_ENOTFOUND || status == CLV_ELIMIT;
}

static clv_status check_model(const clv_trainer *t, const json_t *document, const char *path, clv_error *err)
{
    const json_t *model = json_object_get(document, "model");
    const char *family = NULL, *is = clv_model_config_type(&t->model->config);
    CLV_TRY(clv_json_check_object(model, path, err));
    CLV_TRY(clv_json_string(&family, model, "family", CLV_JSON_REQUIRED, path, err));
    if (strcmp(family, is) != 0)
        return clv_fail(err, CLV_EINVAL, "%s: is of a model of family %.32s, this one is %.32s", path, family, is);
    for (int i = 0; i < SIZES; i++) {
        int64_t had = 0, has = size_of(&t->model->config, &sizes[i]);
        CLV_TRY(clv_json_int(&had, model, sizes[i].name, CLV_JSON_REQUIRED, 0, INT64_MAX, path, err));
        if (had != has)
            return clv_fail(err, CLV_EINVAL, "%s: is of a model with %s %lld, this one has %lld", path, sizes[i].name,
                            (long long)had, (long long)has);
    }
    return CLV_OK;
}

static clv_status check_config(const clv_trainer *t, const json_t *document, const char *folder, const char *path,
                               clv_error *err)
{
    char said[CLV_CHECKSUM_SIZE], is[CLV_CHECKSUM_SIZE];
    CLV_TRY(clv_sealed_get_checksum(said, document, "config_checksum", path, err));
    CLV_TRY(checksum_file(is, folder, config_of(t), err));
    if (strcmp(said, is) != 0)
        return clv_fail(err, CLV_EFORMAT, "%s/%s: its checksum differs from that in %s: the file is damaged", folder,
                        config_of(t), clv_trainer_manifest_name);
    return CLV_OK;
}

/* All of the weights' file, by the first process. */
static clv_status check_weights(const clv_trainer *t, const json_t *document, const char *folder, const char *path,
                                clv_error *err)
{
    const json_t *said = json_object_get(document, "weights_checksums");
    json_t *are = NULL;
    CLV_TRY(clv_json_check_object(said, path, err));
    CLV_TRY(sum_weights(&are, t, folder, err));
    const char *name;
    json_t *sum;
    clv_status status = CLV_OK;
    if (json_object_size(said) != json_object_size(are))
        status = clv_fail(err, CLV_EFORMAT, "%s/%s: has %zu tensors, %s has %zu: damaged", folder, weights_of(t),
                          json_object_size(are), clv_trainer_manifest_name, json_object_size(said));
    json_object_foreach(are, name, sum)
    {
        if (status == CLV_OK && !json_equal(sum, json_object_get(said, name)))
            status = clv_fail(err, CLV_EFORMAT,
                              "%s/%s: %.128s: its checksum differs from that in %s: the file is "
                              "damaged",
                              folder, weights_of(t), name, clv_trainer_manifest_name);
    }
    json_decref(are);
    return status;
}

static clv_status check_trained(const clv_trainer *t, const json_t *document, const char *path, clv_error *err)
{
    char is[ADAPTERS_TEXT];
    const char *was = "all weights";
    CLV_TRY(say_trained(is, t, err));
    CLV_TRY(clv_json_string(&was, document, "trained", CLV_JSON_OPTIONAL, path, err));
    if (strcmp(was, is) != 0)
        return clv_fail(err, CLV_EINVAL, "%s: is of a training of %.300s; this one is of %.300s", path, was, is);
    return CLV_OK;
}

/* Another's state is none that this one could go on with. */
static clv_status check_optimizer(const clv_trainer *t, const json_t *document, const char *path, clv_error *err)
{
    const char *was = clv_optimizer_name(CLV_OPTIMIZER_ADAMW), *is = clv_optimizer_name(t->optimizer);
    CLV_TRY(clv_json_string(&was, document, "optimizer", CLV_JSON_OPTIONAL, path, err));
    if (strcmp(was, is) != 0)
        return clv_fail(err, CLV_EINVAL, "%s: is of a training by %.32s, this one is by %s", path, was, is);
    return CLV_OK;
}

typedef struct stored {
    const clv_trainer *trainer;
    clv_model_weights *weights;
    clv_weights *others;
} stored;

static const char master_suffix[] = ".master";

/* A checkpoint of a run of 16 bits has f32 copies of its parameters, one of f32 has not. */
static const clv_safetensor *find_master(const stored *s, const char *parameter)
{
    char name[CLV_TENSOR_NAME_SIZE];
    const clv_safetensor *found = NULL;
    snprintf(name, sizeof name, "%s%s", parameter, master_suffix);
    return clv_weights_find(&found, s->others, name, NULL) == CLV_OK ? found : NULL;
}

/* Whether `name` is that of such a copy; out: of what. */
static bool is_master(char out[CLV_TENSOR_NAME_SIZE], const char *name)
{
    size_t length = strlen(name), end = sizeof master_suffix - 1;
    if (length <= end || length >= CLV_TENSOR_NAME_SIZE || strcmp(name + length - end, master_suffix) != 0)
        return false;
    snprintf(out, CLV_TENSOR_NAME_SIZE, "%.*s", (int)(length - end), name);
    return true;
}

/* A state that is stored under a name of its own. */
static clv_status read_other(const clv_safetensor *tensor, const char *name, const clv_type *type, const clv_shard *box,
                             void *out, int *known, clv_error *err)
{
    *known = 1;
    if (!tensor->readable || tensor->dtype != type->dtype || tensor->rank != type->rank ||
        memcmp(tensor->shape, type->shape, (size_t)type->rank * sizeof *type->shape) != 0)
        return clv_fail(err, CLV_EINVAL, "the checkpoint has state '%.100s' of another shape or dtype (%s)", name,
                        tensor->dtype_name);
    return clv_safetensors_read(tensor, box, type->dtype, out, err);
}

/* A clv_state_source, whatever the dtypes of then and now: f32 weights are those that were updated. */
static clv_status read_stored(void *arg, const char *name, const clv_type *type, const clv_shard *box, void *out,
                              int *known, clv_error *err)
{
    stored *s = arg;
    char parameter[CLV_TENSOR_NAME_SIZE];
    const clv_safetensor *tensor = NULL;
    bool is_one = is_parameter(s->trainer, name);
    if (is_frozen(s->trainer, name))
        return clv_model_source((void *)s->trainer->model, name, type, box, out, known, err);
    if (is_one && clv_dtype_size(type->dtype) > 2)
        tensor = find_master(s, name);
    if (is_one && !tensor)
        return clv_model_weights_source(s->weights, name, type, box, out, known, err);
    if (!tensor && is_master(parameter, name) && !find_master(s, parameter))
        return clv_model_weights_source(s->weights, parameter, type, box, out, known, err);
    if (!tensor)
        CLV_TRY(clv_weights_find(&tensor, s->others, name, err));
    return read_other(tensor, name, type, box, out, known, err);
}

static clv_status open_trained(clv_model_weights **out, const clv_trainer *t, const char *folder, clv_error *err)
{
    const clv_model_weights_options file = {.is_file = true};
    if (!t->model->adapters)
        return clv_model_weights_open(out, trained(t), folder, NULL, err);
    char *path = clv_path_join(folder, weights_of(t));
    clv_status status =
        path ? clv_model_weights_open(out, trained(t), path, &file, err) : clv_fail_memory(err, folder, strlen(folder));
    free(path);
    return status;
}

static clv_status read_tensors(clv_trainer *t, const char *folder, clv_error *err)
{
    stored s = {.trainer = t};
    char *others = clv_path_join(folder, optimizer_name);
    clv_status status = others ? CLV_OK : clv_fail_memory(err, folder, strlen(folder));
    if (status == CLV_OK)
        status = open_trained(&s.weights, t, folder, err);
    if (status == CLV_OK)
        status = clv_weights_open(&s.others, others, err);
    if (status == CLV_OK)
        status = clv_session_reload_here(t->session, read_stored, &s, err);
    clv_weights_close(s.others);
    clv_model_weights_close(s.weights);
    free(others);
    return status;
}

static clv_status take_notes(clv_trainer *t, const json_t *document, const char *path, clv_error *err)
{
    json_t *notes = json_object_get(document, "notes"), *text;
    const char *key;
    CLV_TRY(clv_json_check_object(notes, path, err));
    clv_trainer_clear_notes(t);
    json_object_foreach(notes, key, text) if (json_is_string(text))
        CLV_TRY(clv_trainer_note(t, key, json_string_value(text), err));
    return CLV_OK;
}

static clv_status read_document(clv_trainer *t, const json_t *document, const char *folder, const char *path,
                                clv_error *err)
{
    int64_t steps = 0, skipped = 0;
    CLV_TRY(clv_sealed_check_version(document, format_name, VERSION, path, err));
    CLV_TRY(clv_json_int(&steps, document, "steps", CLV_JSON_REQUIRED, 0, INT32_MAX - 1, path, err));
    CLV_TRY(clv_json_int(&skipped, document, "skipped", CLV_JSON_OPTIONAL, 0, steps, path, err));
    CLV_TRY(check_model(t, document, path, err));
    CLV_TRY(check_trained(t, document, path, err));
    CLV_TRY(check_optimizer(t, document, path, err));
    if (clv_session_leads(t->session)) {
        CLV_TRY(check_config(t, document, folder, path, err));
        CLV_TRY(check_weights(t, document, folder, path, err));
    }
    CLV_TRY(read_tensors(t, folder, err));
    CLV_TRY(take_notes(t, document, path, err));
    t->step = steps;
    t->skipped = skipped;
    return CLV_OK;
}

/* A file is missing where the others are seen; else it may be there, for those who see the folder. */
static clv_status check_is_seen(const char *folder, clv_status status, clv_error *err)
{
    DIR *dir = status == CLV_ENOTFOUND ? opendir(folder) : NULL;
    if (status == CLV_ENOTFOUND && !dir)
        return clv_fail(err, CLV_EIO, "%s: cannot be listed by every process; valid: a folder that all see", folder);
    if (dir)
        closedir(dir);
    return status;
}

clv_status clv_trainer_read_state(clv_trainer *t, const char *folder, clv_error *err)
{
    char *path = clv_path_join(folder, clv_trainer_manifest_name);
    json_t *document = NULL;
    clv_status status =
        path ? clv_sealed_read(&document, path, LIMIT, err) : clv_fail_memory(err, folder, strlen(folder));
    if (status == CLV_OK)
        status = read_document(t, document, folder, path, err);
    json_decref(document);
    free(path);
    return check_is_seen(folder, status, err);
}
