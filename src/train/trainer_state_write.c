/* trainer_state_write.c - writes a trainer state: each process its shards, the first one trainer.json and the
 * tokenizer.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "cleave/tokenizer.h"
#include "io/checkpoint/sharded_checkpoint.h"
#include "io/files/file.h"
#include "models/adapters/peft_folder.h"
#include "runtime/multi_process/multi_process.h"
#include "train/trainer_state.h"

static const char optimizer_file[] = "optimizer.safetensors", write_label[] = "saving a checkpoint";

bool clv_trainer_state_is_saved(const void *trainer, const char *name)
{
    return !clv_trainer_is_frozen(trainer, name);
}

/* ---- the optimizer's state as files ---- */

/* Optimizer states as the tensors of one file, whose elements a session holds. */
typedef struct optimizer_states {
    const clv_trainer *trainer;
    const clv_session *from; /* session that the elements are read from */
    int64_t n;
    clv_tensor_spec *specs;
    clv_tensor_placement *placements;
    clv_safetensors *file;
} optimizer_states;

static int by_name(const void *a, const void *b)
{
    return strcmp(((const clv_state_info *)a)->name, ((const clv_state_info *)b)->name);
}

/* Lists the states in the order of the file's tensors, by name. */
static clv_status list_states(optimizer_states *o, clv_error *err)
{
    const clv_trainer *t = o->trainer;
    clv_state_info info = {.size = sizeof info};
    int all = 0;
    while (clv_session_state(t->session, all, &info, err) == CLV_OK && info.name)
        all++;
    CLV_FREED clv_state_info *infos = calloc((size_t)all + 1, sizeof *infos);
    o->specs = calloc((size_t)all + 1, sizeof *o->specs);
    o->placements = calloc((size_t)all + 1, sizeof *o->placements);
    if (!infos || !o->specs || !o->placements)
        return clv_fail_memory(err, "a checkpoint's tensors", (size_t)all * sizeof *infos);
    for (int i = 0; i < all; i++) {
        infos[o->n].size = sizeof *infos;
        CLV_TRY(clv_session_state(t->session, i, &infos[o->n], err));
        o->n += !clv_trainer_is_trained(t, infos[o->n].name) && clv_trainer_state_is_saved(t, infos[o->n].name);
    }
    qsort(infos, (size_t)o->n, sizeof *infos, by_name);
    for (int64_t k = 0; k < o->n; k++) {
        const clv_type *type = &infos[k].type;
        o->specs[k] = (clv_tensor_spec){.name = infos[k].name, .dtype = type->dtype, .rank = type->rank};
        o->placements[k] = (clv_tensor_placement){.rank = type->rank, .layout = infos[k].layout};
        memcpy(o->specs[k].shape, type->shape, sizeof type->shape);
        memcpy(o->placements[k].view, type->shape, sizeof type->shape);
    }
    return CLV_OK;
}

/* A clv_tensor_reader for boxes of this process's ranks. */
static clv_status read_state(const void *arg, const clv_safetensor *tensor, int rank, const int64_t *shape,
                             const clv_shard *box, clv_dtype dtype, void *out, clv_error *err)
{
    const optimizer_states *o = arg;
    return clv_session_read_local(o->from, tensor->name, box, out, err);
}

static clv_status open_states(optimizer_states *o, clv_error *err)
{
    CLV_FREED char *text = NULL;
    uint64_t bytes = 0;
    CLV_TRY(list_states(o, err));
    CLV_TRY(clv_safetensors_make_header(&text, &bytes, o->specs, o->n, err));
    return clv_safetensors_open_header(&o->file, optimizer_file, text, strlen(text), bytes, read_state, o, err);
}

static void close_states(optimizer_states *o)
{
    clv_safetensors_close(o->file);
    free(o->specs);
    free(o->placements);
}

/* ---- processes exchange the checksums of their rank files ---- */

enum { SUM_WORDS = (CLV_CHECKSUM_SIZE - 1) / sizeof(int64_t) };

static void pack_or_unpack_checksum(int64_t *words, char *sum, bool pack)
{
    if (pack)
        memcpy(words, sum, CLV_CHECKSUM_SIZE - 1);
    else
        snprintf(sum, CLV_CHECKSUM_SIZE, "%.*s", CLV_CHECKSUM_SIZE - 1, (const char *)words);
}

/* Words of a rank: the size of its file, the checksum of its header, and that of its part of each tensor. */
static void pack_or_unpack_rank(int64_t *words, clv_manifest *m, int64_t rank, bool pack)
{
    clv_manifest_rank *entry = &m->ranks[rank];
    if (pack)
        words[0] = (int64_t)entry->bytes;
    else
        entry->bytes = (uint64_t)words[0];
    pack_or_unpack_checksum(&words[1], entry->header, pack);
    for (int64_t i = 0; i < m->n_tensors; i++) {
        clv_manifest_part *part = clv_manifest_part_of(&m->tensors[i], rank);
        if (part)
            pack_or_unpack_checksum(&words[1 + SUM_WORDS * (1 + i)], part->checksum, pack);
    }
}

/* Round k exchanges the k-th rank of each process. */
static clv_status exchange_one_rank(const clv_session *session, clv_manifest *m, int k, int64_t *mine, int n,
                                    int64_t *all, clv_error *err)
{
    int first, last;
    clv_session_local_ranks(session, &first, &last);
    memset(mine, 0, (size_t)n * sizeof *mine);
    mine[0] = -1; /* this process has fewer ranks */
    if (first + k < last) {
        mine[0] = first + k;
        pack_or_unpack_rank(mine + 1, m, first + k, true);
    }
    CLV_TRY(clv_session_allgather(session, write_label, mine, n, all, err));
    for (int64_t r = 0; r < m->n_ranks; r++) {
        int64_t *row = all + r * n;
        if (row[0] >= 0)
            pack_or_unpack_rank(row + 1, m, row[0], false);
    }
    return CLV_OK;
}

/* Of any process. */
static int max_local_ranks(const clv_session *session, int64_t n_ranks)
{
    int most = 0;
    for (int r = 0, n = 0; r < n_ranks; r++) {
        n = clv_session_rank_is_process_leader(session, r) ? 1 : n + 1;
        most = n > most ? n : most;
    }
    return most;
}

static clv_status exchange_checksums(const clv_trainer *t, clv_manifest *m, clv_error *err)
{
    int n = (int)(2 + SUM_WORDS * (1 + m->n_tensors)), rounds = max_local_ranks(t->session, m->n_ranks);
    size_t bytes = (size_t)n * (size_t)m->n_ranks * sizeof(int64_t);
    CLV_FREED int64_t *mine = calloc((size_t)n, sizeof *mine), *all = malloc(bytes);
    clv_status status = mine && all ? CLV_OK : clv_fail_memory(err, "checksums", bytes);
    CLV_TRY(clv_job_agree(t->model->job, status, err));
    for (int k = 0; k < rounds; k++)
        CLV_TRY(exchange_one_rank(t->session, m, k, mine, n, all, err));
    return CLV_OK;
}

/* ---- trainer.json ---- */

static json_t *model_object(const clv_trainer *t)
{
    json_t *model = json_pack("{s:s, s:s}", "family", clv_model_config_model_type(&t->model->config), "dtype",
                              clv_dtype_name(t->model->dtype));
    for (int i = 0; i < CLV_TRAINER_CONFIG_FIELDS; i++)
        json_object_set_new(
            model, clv_trainer_config_readers[i].name,
            json_integer(clv_trainer_config_field_value(&t->model->config, &clv_trainer_config_readers[i])));
    return model;
}

static clv_status make_document(json_t **out, const clv_trainer *t, clv_error *err)
{
    char what[CLV_TRAINER_DESCRIPTION_SIZE], mesh[CLV_MESH_TEXT];
    CLV_TRY(clv_trainer_describe_trained(what, t, err));
    clv_mesh_print(mesh, sizeof mesh, &t->model->mesh);
    *out = json_pack("{s:s, s:i, s:I, s:o, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:o}", "format",
                     clv_trainer_format_name, "version", CLV_TRAINER_VERSION, "steps", (json_int_t)t->step, "model",
                     model_object(t), "trained", what, "optimizer", clv_optimizer_name(t->optimizer), "mesh", mesh,
                     "rules", t->model->rules.name, "skipped", (json_int_t)t->skipped, "batch", (json_int_t)t->batch,
                     "seq", (json_int_t)t->seq, "seed", (json_int_t)t->seed, "notes", json_deep_copy(t->metadata));
    return *out ? CLV_OK : clv_fail_memory(err, clv_trainer_manifest_name, sizeof what);
}

/* ---- writer ---- */

struct clv_trainer_state_writer {
    const clv_trainer *trainer;
    char *folder;
    json_t *document; /* trainer.json without checksums; in the root process */
    optimizer_states others;
    const clv_safetensors *others_file;
    clv_sharded_writer *ranks;
    clv_model_saver *weights;
    int64_t bytes; /* of the weights file that this process wrote; after the exchange, of all processes */
};

void clv_trainer_state_writer_free(clv_trainer_state_writer *w)
{
    if (!w)
        return;
    clv_model_saver_free(w->weights);
    clv_sharded_writer_free(w->ranks);
    close_states(&w->others);
    json_decref(w->document);
    free(w->folder);
    free(w);
}

/* The part without communication. */
static clv_status begin_local(clv_trainer_state_writer *w, const char *folder, clv_error *err)
{
    const clv_trainer *t = w->trainer;
    const char *name = optimizer_file;
    char path[CLV_PATH_SIZE];
    CLV_TRY(clv_path_join(path, folder, clv_trainer_optimizer_name, err));
    w->folder = strdup(folder);
    if (!w->folder)
        return clv_fail_memory(err, folder, strlen(folder));
    if (clv_session_is_root(t->session)) {
        if (mkdir(path, 0777) != 0)
            return clv_fail_errno(err, "make the folder", path);
        CLV_TRY(make_document(&w->document, t, err));
    }
    CLV_TRY(open_states(&w->others, err));
    const clv_sharded_write_options options = {
        .mesh = t->model->mesh, .rules = t->model->rules.name, .placements = w->others.placements};
    w->others_file = w->others.file;
    return clv_sharded_writer_new(&w->ranks, path, &w->others_file, &name, 1, &options, err);
}

clv_status clv_trainer_state_writer_begin(clv_trainer_state_writer **out, const clv_trainer *t, const char *folder,
                                          clv_error *err)
{
    const clv_model *m = t->model;
    clv_model_save_spec files = clv_model_save_spec_hf(&m->config, NULL, m->dtype);
    int64_t none;
    if (m->adapters)
        CLV_TRY(clv_model_save_spec_peft(&files, m, err)); /* fails in all processes alike */
    clv_trainer_state_writer *w = calloc(1, sizeof *w);
    clv_status status = w ? CLV_OK : clv_fail_memory(err, folder, sizeof *w);
    if (w) {
        *w = (clv_trainer_state_writer){.trainer = t, .others.trainer = t};
        status = begin_local(w, folder, err);
    }
    status = clv_session_agree(t->session, write_label, status, 0, &none, err);
    if (status == CLV_OK)
        status = clv_model_saver_begin(&w->weights, t->session, &files, folder, err);
    if (status == CLV_OK)
        *out = w;
    else
        clv_trainer_state_writer_free(w);
    return status;
}

clv_status clv_trainer_state_writer_write(clv_trainer_state_writer *w, const clv_session *from, clv_error *err)
{
    int first, last;
    clv_session_local_ranks(from, &first, &last);
    w->others.from = from;
    CLV_TRY(clv_model_saver_write_shards(w->weights, from, &w->bytes, err));
    return clv_sharded_writer_write_ranks(w->ranks, first, last, err);
}

clv_status clv_trainer_state_writer_exchange(clv_trainer_state_writer *w, clv_error *err)
{
    CLV_TRY(clv_session_agree(w->trainer->session, write_label, CLV_OK, w->bytes, &w->bytes, err));
    return exchange_checksums(w->trainer, clv_sharded_writer_manifest(w->ranks), err);
}

/* trainer.json with the checksums of config and weights. */
static clv_status write_document(const clv_trainer_state_writer *w, clv_error *err)
{
    char path[CLV_PATH_SIZE], config[CLV_CHECKSUM_SIZE];
    json_auto_t *weights = NULL;
    CLV_TRY(clv_path_join(path, w->folder, clv_trainer_manifest_name, err));
    CLV_TRY(clv_trainer_checksum_file(config, w->folder, clv_trainer_config_name(w->trainer), err));
    CLV_TRY(clv_trainer_checksum_weights(&weights, w->trainer, w->folder, err));
    if (json_object_set_new(w->document, "config_checksum", json_string(config)) != 0 ||
        json_object_set(w->document, "weights_checksums", weights) != 0)
        return clv_fail_memory(err, path, sizeof config);
    return clv_checksummed_json_write(path, w->document, CLV_TRAINER_JSON_LIMIT, err);
}

/* The tokenizer of the model's folder, if it still exists. */
static clv_status copy_tokenizer(const clv_trainer_state_writer *w, clv_error *err)
{
    const clv_model *m = w->trainer->model;
    clv_error why = {.rank = -1};
    if (m->adapters || !m->weights)
        return CLV_OK;
    clv_status status = clv_tokenizer_copy(m->path, w->folder, &why);
    if (status == CLV_OK || status == CLV_ENOTFOUND)
        return CLV_OK;
    if (err)
        *err = why;
    return status;
}

clv_status clv_trainer_state_writer_finish(clv_trainer_state_writer *w, clv_error *err)
{
    CLV_TRY(clv_model_saver_finish(w->weights, w->bytes, err));
    CLV_TRY(clv_sharded_writer_write_manifest(w->ranks, err));
    CLV_TRY(copy_tokenizer(w, err));
    return write_document(w, err);
}
