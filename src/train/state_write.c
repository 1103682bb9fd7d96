/* state_write.c - a trainer's state into a folder: see state.h. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "cleave/checkpoint.h"
#include "cleave/tokenizer.h"
#include "io/file.h"
#include "io/shards.h"
#include "models/adapters_folder.h"
#include "models/parameters.h"
#include "runtime/peers.h"
#include "runtime/shares.h"
#include "train/state.h"

static const char optimizer_file[] = "optimizer.safetensors", writing_what[] = "saving a checkpoint";

bool clv_state_is_saved(const void *trainer, const char *name)
{
    return !clv_trainer_leaves(trainer, name);
}

/* ---- the optimizer's state as files ---- */

/* States that are no parameters, as tensors of one file whose elements are in a session. */
typedef struct other_states {
    const clv_trainer *trainer;
    const clv_session *from; /* whose elements are read */
    int64_t n;
    clv_tensor_spec *specs;
    clv_tensor_placement *placements;
    clv_safetensors *file;
} other_states;

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
        if (clv_trainer_trains(o->trainer, info.name) || !clv_state_is_saved(o->trainer, info.name))
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
    return clv_session_read_here(o->from, tensor->name, box, out, err);
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

static clv_status tell_sums(const clv_trainer *t, clv_manifest *m, clv_error *err)
{
    const clv_session *session = t->session;
    int first, last, n = (int)(2 + WORDS_OF_SUM * (1 + m->n_tensors));
    size_t bytes = (size_t)n * (size_t)m->n_ranks * sizeof(int64_t);
    int64_t *mine = calloc((size_t)n, sizeof *mine), *all = malloc(bytes), most = 0;
    clv_status status = mine && all ? CLV_OK : clv_fail_memory(err, "checksums", bytes);
    clv_session_ranks_here(session, &first, &last);
    status = clv_trainer_agree(t, status, err);
    if (status == CLV_OK)
        status = clv_trainer_find_most(t, writing_what, last - first, &most, err);
    for (int k = 0; status == CLV_OK && k < most; k++)
        status = tell_round(session, m, k, mine, n, all, err);
    free(mine);
    free(all);
    return status;
}

/* ---- trainer.json ---- */

static json_t *model_object(const clv_trainer *t)
{
    json_t *model = json_pack("{s:s, s:s}", "family", clv_model_config_type(&t->model->config), "dtype",
                              clv_dtype_name(t->model->dtype));
    for (int i = 0; i < CLV_TRAINER_SIZES; i++)
        json_object_set_new(model, clv_trainer_sizes[i].name,
                            json_integer(clv_trainer_size_of(&t->model->config, &clv_trainer_sizes[i])));
    return model;
}

static json_t *notes_object(const clv_trainer *t)
{
    json_t *notes = json_object();
    for (int i = 0; i < t->n_notes; i++)
        json_object_set_new(notes, t->notes[i].key, json_string(t->notes[i].text));
    return notes;
}

static clv_status make_document(json_t **out, const clv_trainer *t, clv_error *err)
{
    char what[CLV_TRAINER_SAYS], mesh[CLV_MESH_TEXT];
    CLV_TRY(clv_trainer_say(what, t, err));
    clv_mesh_print(mesh, sizeof mesh, &t->model->mesh);
    *out = json_pack("{s:s, s:i, s:I, s:o, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:o}", "format",
                     clv_trainer_format_name, "version", CLV_TRAINER_VERSION, "steps", (json_int_t)t->step, "model",
                     model_object(t), "trained", what, "optimizer", clv_optimizer_name(t->optimizer), "mesh", mesh,
                     "rules", t->model->rules.name, "skipped", (json_int_t)t->skipped, "batch", (json_int_t)t->batch,
                     "seq", (json_int_t)t->seq, "seed", (json_int_t)t->seed, "notes", notes_object(t));
    return *out ? CLV_OK : clv_fail_memory(err, clv_trainer_manifest_name, sizeof what);
}

/* ---- all of it ---- */

struct clv_state_writing {
    const clv_trainer *trainer;
    char *folder;
    json_t *document; /* trainer.json without checksums; of the first process */
    other_states others;
    const clv_safetensors *others_file;
    clv_shards_writing *ranks;
    clv_model_writing *weights;
    int64_t bytes; /* of the weights' file: that this process wrote, beside the first; once told, that all these did */
};

void clv_state_free(clv_state_writing *w)
{
    if (!w)
        return;
    clv_model_writing_free(w->weights);
    clv_shards_writing_free(w->ranks);
    close_states(&w->others);
    json_decref(w->document);
    free(w->folder);
    free(w);
}

static clv_status make_optimizer_folder(const char *path, clv_error *err)
{
    return mkdir(path, 0777) == 0 ? CLV_OK : clv_fail_errno(err, "make the folder", path);
}

/* What this process does by itself. */
static clv_status begin_here(clv_state_writing *w, const char *folder, clv_error *err)
{
    const clv_trainer *t = w->trainer;
    const char *name = optimizer_file;
    bool leads = clv_session_leads(t->session);
    char *path = clv_path_join(folder, clv_trainer_optimizer_name);
    w->folder = strdup(folder);
    clv_status status = w->folder && path ? CLV_OK : clv_fail_memory(err, folder, strlen(folder));
    if (status == CLV_OK && leads)
        status = make_optimizer_folder(path, err);
    if (status == CLV_OK && leads)
        status = make_document(&w->document, t, err);
    if (status == CLV_OK)
        status = open_states(&w->others, err);
    const clv_shards_options options = {
        .mesh = t->model->mesh, .rules = t->model->rules.name, .placements = w->others.placements};
    w->others_file = w->others.file;
    if (status == CLV_OK)
        status = clv_shards_begin(&w->ranks, path, &w->others_file, &name, 1, &options, err);
    free(path);
    return status;
}

clv_status clv_state_begin(clv_state_writing **out, const clv_trainer *t, const char *folder, clv_error *err)
{
    const clv_model *m = t->model;
    clv_model_files files = clv_model_folder_files(&m->config, NULL, m->dtype);
    int64_t none;
    if (m->adapters)
        CLV_TRY(clv_adapters_files(&files, m, err)); /* or refused in all */
    clv_state_writing *w = calloc(1, sizeof *w);
    clv_status status = w ? CLV_OK : clv_fail_memory(err, folder, sizeof *w);
    if (w) {
        *w = (clv_state_writing){.trainer = t, .others.trainer = t};
        status = begin_here(w, folder, err);
    }
    status = clv_session_agree(t->session, writing_what, status, 0, &none, err);
    if (status == CLV_OK)
        status = clv_model_begin_files(&w->weights, t->session, &files, folder, err);
    if (status == CLV_OK)
        *out = w;
    else
        clv_state_free(w);
    return status;
}

clv_status clv_state_write(clv_state_writing *w, const clv_session *from, clv_error *err)
{
    int first, last;
    clv_session_ranks_here(from, &first, &last);
    w->others.from = from;
    CLV_TRY(clv_model_write_shares(w->weights, from, &w->bytes, err));
    return clv_shards_write_ranks(w->ranks, first, last, err);
}

clv_status clv_state_tell(clv_state_writing *w, clv_error *err)
{
    CLV_TRY(clv_session_agree(w->trainer->session, writing_what, CLV_OK, w->bytes, &w->bytes, err));
    return tell_sums(w->trainer, clv_shards_writing_manifest(w->ranks), err);
}

/* With checksums of what is there. */
static clv_status write_document(const clv_state_writing *w, clv_error *err)
{
    char *path = clv_path_join(w->folder, clv_trainer_manifest_name), config[CLV_CHECKSUM_SIZE];
    json_t *weights = NULL;
    clv_status status = path ? CLV_OK : clv_fail_memory(err, w->folder, strlen(w->folder));
    if (status == CLV_OK)
        status = clv_trainer_sum_file(config, w->folder, clv_trainer_config_name(w->trainer), err);
    if (status == CLV_OK)
        status = clv_trainer_sum_weights(&weights, w->trainer, w->folder, err);
    if (status == CLV_OK && (json_object_set_new(w->document, "config_checksum", json_string(config)) != 0 ||
                             json_object_set(w->document, "weights_checksums", weights) != 0))
        status = clv_fail_memory(err, path, sizeof config);
    if (status == CLV_OK)
        status = clv_sealed_write(path, w->document, CLV_TRAINER_LIMIT, err);
    json_decref(weights);
    free(path);
    return status;
}

/* That of the folder that the model is of, where it is still there. */
static clv_status copy_tokenizer(const clv_state_writing *w, clv_error *err)
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

clv_status clv_state_end(clv_state_writing *w, clv_error *err)
{
    CLV_TRY(clv_model_end_files(w->weights, w->bytes, err));
    CLV_TRY(clv_shards_write_manifest(w->ranks, err));
    CLV_TRY(copy_tokenizer(w, err));
    return write_document(w, err);
}
