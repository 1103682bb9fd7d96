/* checkpoint.c - the public checkpoint API: opens checkpoints and reads their tensors, compares tensor names with a
 * model's, writes tensors, converts between Hugging Face folders and one file a rank (shard, merge), and saves the
 * model or the adapters of a session.
 */
#include "cleave/checkpoint.h"

#include <stdio.h>

#include "base/memory/grow.h"
#include "io/checkpoint/weights.h"
#include "io/files/atomic_folder.h"
#include "io/files/file.h"
#include "models/adapters/peft_folder.h"
#include "models/checkpoint/checkpoint_inventory.h"
#include "models/config/config_overrides.h"
#include "models/model.h"
#include "models/weights/quantize_on_load.h"
#include "models/weights/weight_layouts.h"

struct clv_checkpoint {
    clv_weights *weights;
};

/* ---- reading ---- */

clv_status clv_checkpoint_open(clv_checkpoint **out, const char *path, const clv_checkpoint_options *options,
                               clv_error *err)
{
    clv_checkpoint_options o;
    CLV_TRY(clv_require(out && path, __func__, "out and a path", err));
    CLV_TRY(clv_options_copy_in(&o, sizeof o, sizeof o, options, __func__, err));
    clv_checkpoint *c = calloc(1, sizeof *c);
    if (!c)
        return clv_fail_memory(err, path, sizeof *c);
    clv_status status = clv_weights_open_path(&c->weights, path, err);
    if (status == CLV_OK && o.map)
        status = clv_weights_map(c->weights, err);
    if (status != CLV_OK) {
        clv_checkpoint_close(c);
        return status;
    }
    *out = c;
    return CLV_OK;
}

void clv_checkpoint_close(clv_checkpoint *c)
{
    if (!c)
        return;
    clv_weights_close(c->weights);
    free(c);
}

int clv_checkpoint_exists(const char *folder)
{
    return folder && clv_weights_exist(folder);
}

int64_t clv_checkpoint_tensor_count(const clv_checkpoint *c)
{
    return c ? clv_weights_count(c->weights) : 0;
}

static clv_status at(const clv_safetensor **out, const clv_checkpoint *c, int64_t i, const char *call, clv_error *err)
{
    CLV_TRY(clv_require(c != NULL, call, "a checkpoint", err));
    int64_t n = clv_weights_count(c->weights);
    if (i < 0 || i >= n)
        return clv_fail(err, CLV_EINVAL, "%s: tensor %lld of %lld", call, (long long)i, (long long)n);
    *out = clv_weights_at(c->weights, i);
    return CLV_OK;
}

clv_status clv_checkpoint_tensor(const clv_checkpoint *c, int64_t i, clv_tensor_info *out, clv_error *err)
{
    const clv_safetensor *t;
    CLV_TRY(clv_require(out != NULL, __func__, "out", err));
    CLV_TRY(at(&t, c, i, __func__, err));
    clv_tensor_info info = {.name = t->name,
                            .dtype_name = t->dtype_name,
                            .readable = t->readable,
                            .dtype = t->dtype,
                            .rank = t->rank,
                            .bytes = (int64_t)(t->end - t->begin)};
    memcpy(info.shape, t->shape, sizeof info.shape);
    return clv_struct_copy_out(out, sizeof info, sizeof info, &info, __func__, err);
}

clv_status clv_checkpoint_find(int64_t *out, const clv_checkpoint *c, const char *name, clv_error *err)
{
    const clv_safetensor *found;
    CLV_TRY(clv_require(out && c && name, __func__, "out, a checkpoint and a name", err));
    CLV_TRY(clv_weights_find(&found, c->weights, name, err));
    *out = clv_weights_index_of(c->weights, found);
    return CLV_OK;
}

clv_status clv_checkpoint_read(const clv_checkpoint *c, int64_t i, const clv_shard *box, clv_dtype dtype, void *out,
                               clv_error *err)
{
    const clv_safetensor *t;
    CLV_TRY(clv_require(out != NULL, __func__, "where the elements go", err));
    CLV_TRY(at(&t, c, i, __func__, err));
    if (clv_dtype_size(dtype) == 0)
        return clv_fail(err, CLV_EDTYPE, "%s: dtype %d; valid: those of clv_dtype", __func__, (int)dtype);
    return clv_safetensors_read(t, box, dtype, out, err);
}

int clv_checkpoint_file_count(const clv_checkpoint *c)
{
    return c ? clv_weights_file_count(c->weights) : 0;
}

const char *clv_checkpoint_file(const clv_checkpoint *c, int i, int64_t *bytes)
{
    bool is_there = i >= 0 && i < clv_checkpoint_file_count(c);
    if (bytes)
        *bytes = is_there ? (int64_t)clv_safetensors_file_bytes(clv_weights_file(c->weights, i)) : 0;
    return is_there ? clv_weights_file_name(c->weights, i) : NULL;
}

const clv_mesh *clv_checkpoint_mesh(const clv_checkpoint *c)
{
    const clv_manifest *m = c ? clv_weights_sharded_manifest(c->weights) : NULL;
    return m ? &m->mesh : NULL;
}

int clv_checkpoint_rank_file(char *out, size_t size, int64_t *bytes, const clv_checkpoint *c, int64_t rank)
{
    const clv_manifest *m = c ? clv_weights_sharded_manifest(c->weights) : NULL;
    if (!m || rank < 0 || rank >= m->n_ranks)
        return 0;
    if (bytes)
        *bytes = (int64_t)m->ranks[rank].bytes;
    char name[CLV_RANK_FILE_SIZE];
    clv_rank_file_name(name, rank, m->n_ranks);
    return snprintf(out, size, "%s", name);
}

/* ---- against a model ---- */

clv_status clv_model_for_each_tensor(const clv_model *model, clv_expected_tensor_callback *take, void *arg,
                                     clv_error *err)
{
    CLV_TRY(clv_require(model && take, __func__, "a model, and what takes its tensors", err));
    for (int64_t i = 0; i < clv_model_parameter_count(&model->config); i++) {
        clv_parameter p = clv_model_parameter_at(&model->config, i);
        for (int k = 0; k < clv_parameter_tensor_count(&model->config, &p); k++) {
            clv_model_tensor tensor = clv_parameter_tensor(&model->config, &p, k);
            take(arg, tensor.name, tensor.rank, tensor.shape);
        }
    }
    return CLV_OK;
}

clv_status clv_checkpoint_compare(const clv_checkpoint *c, const clv_model *model, clv_tensor_mismatch_callback *take,
                                  void *arg, clv_error *err)
{
    clv_checkpoint_inventory inventory;
    clv_config_overrides settled;
    CLV_TRY(clv_require(c && model && take, __func__, "a checkpoint, a model, and what takes names", err));
    clv_model_config config = model->config;
    CLV_TRY(clv_config_overrides_apply(&settled, &config, c->weights, err));
    clv_status status = clv_checkpoint_inventory_collect(&inventory, c->weights, &config, err);
    clv_config_overrides_free(&settled);
    CLV_TRY(status);
    for (int64_t i = 0; i < inventory.n_missing; i++)
        take(arg, inventory.missing[i], 1);
    for (int64_t i = 0; i < inventory.n_extra; i++)
        take(arg, inventory.extra[i]->name, 0);
    clv_checkpoint_inventory_free(&inventory);
    return CLV_OK;
}

/* ---- writing a file ---- */

struct clv_checkpoint_writer {
    char *path;
    int64_t n;
    int64_t capacity, metadata_capacity;
    clv_tensor_spec *specs; /* [n]; names are the writer's */
    int n_metadata;
    clv_metadata_entry *metadata; /* [n_metadata]; texts are the writer's */
    clv_safetensors_writer *file; /* NULL: nothing is written yet */
};

clv_status clv_checkpoint_create(clv_checkpoint_writer **out, const char *path, clv_error *err)
{
    CLV_TRY(clv_require(out && path, __func__, "out and a path", err));
    CLV_TRY(clv_atomic_file_check_writable(path, err));
    clv_checkpoint_writer *w = calloc(1, sizeof *w);
    if (w)
        w->path = strdup(path);
    if (w && w->path) {
        *out = w;
        return CLV_OK;
    }
    free(w);
    return clv_fail_memory(err, path, sizeof *w);
}

static clv_status check_added(const clv_checkpoint_writer *w, const char *name, clv_error *err)
{
    if (w->file)
        return clv_fail(err, CLV_EINVAL, "%s: %s is added after elements were written", w->path, name);
    return CLV_OK;
}

clv_status clv_checkpoint_add_tensor(clv_checkpoint_writer *w, const char *name, clv_dtype dtype, int rank,
                                     const int64_t *shape, clv_error *err)
{
    CLV_TRY(clv_require(w && name && (shape || rank == 0), __func__, "a writer, a name and a shape", err));
    CLV_TRY(check_added(w, name, err));
    if (rank < 0 || rank > CLV_MAX_RANK)
        return clv_fail(err, CLV_EINVAL, "%s: %d dimensions; valid: 0 to %d", name, rank, CLV_MAX_RANK);
    if (clv_dtype_size(dtype) == 0)
        return clv_fail(err, CLV_EDTYPE, "%s: dtype %d; valid: those of clv_dtype", name, (int)dtype);
    CLV_TRY(clv_shape_check(shape, rank, dtype, err));
    CLV_TRY(clv_grow(&w->specs, &w->capacity, w->n + 1, sizeof *w->specs, "a tensor", err));
    const char *copy = strdup(name);
    if (!copy)
        return clv_fail_memory(err, "a tensor's name", strlen(name));
    clv_tensor_spec *spec = &w->specs[w->n++];
    *spec = (clv_tensor_spec){.name = copy, .dtype = dtype, .rank = rank};
    for (int d = 0; d < rank; d++)
        spec->shape[d] = shape[d];
    return CLV_OK;
}

clv_status clv_checkpoint_add_metadata(clv_checkpoint_writer *w, const char *key, const char *text, clv_error *err)
{
    CLV_TRY(clv_require(w && key && text, __func__, "a writer, a key and a text", err));
    CLV_TRY(check_added(w, key, err));
    CLV_TRY(clv_grow(&w->metadata, &w->metadata_capacity, w->n_metadata + 1, sizeof *w->metadata, "metadata", err));
    const clv_metadata_entry entry = {strdup(key), strdup(text)};
    if (entry.key && entry.text) {
        w->metadata[w->n_metadata++] = entry;
        return CLV_OK;
    }
    free((char *)entry.key);
    free((char *)entry.text);
    return clv_fail_memory(err, "metadata", strlen(text));
}

static clv_status begin(clv_checkpoint_writer *w, clv_error *err)
{
    return clv_safetensors_create_with_metadata(&w->file, w->path, w->specs, w->n, w->metadata, w->n_metadata, err);
}

clv_status clv_checkpoint_write(clv_checkpoint_writer *w, int64_t i, const clv_shard *box, const void *data,
                                clv_error *err)
{
    CLV_TRY(clv_require(w && data, __func__, "a writer and elements", err));
    if (i < 0 || i >= w->n)
        return clv_fail(err, CLV_EINVAL, "%s: tensor %lld of %lld", w->path, (long long)i, (long long)w->n);
    if (!w->file)
        CLV_TRY(begin(w, err));
    return clv_safetensors_write(w->file, i, box, data, err);
}

static void free_writer(clv_checkpoint_writer *w)
{
    for (int64_t i = 0; i < w->n; i++)
        free((char *)w->specs[i].name);
    for (int i = 0; i < w->n_metadata; i++) {
        free((char *)w->metadata[i].key);
        free((char *)w->metadata[i].text);
    }
    free(w->specs);
    free(w->metadata);
    free(w->path);
    free(w);
}

clv_status clv_checkpoint_commit(clv_checkpoint_writer *w, clv_error *err)
{
    CLV_TRY(clv_require(w != NULL, __func__, "a writer", err));
    clv_status status = w->file ? CLV_OK : begin(w, err);
    if (status == CLV_OK)
        status = clv_safetensors_commit(w->file, err);
    free_writer(w);
    return status;
}

void clv_checkpoint_abandon(clv_checkpoint_writer *w)
{
    if (!w)
        return;
    clv_safetensors_abort(w->file);
    free_writer(w);
}

/* ---- conversion ---- */

static bool owns(const void *arg, const char *name)
{
    return clv_weights_owns_file(arg, name);
}

/* Writes the weights into a folder. */
typedef clv_status form_writer(const void *arg, const clv_weights *weights, const char *folder,
                               const clv_convert_options *options, clv_error *err);

/* Creates the folder `to`: the weights as `write` writes them, and copies of all other files of `from`. */
static clv_status convert(const char *from, const clv_weights *weights, const char *to, form_writer *write,
                          const void *arg, const clv_convert_options *options, clv_error *err)
{
    clv_atomic_folder folder;
    CLV_TRY(clv_atomic_folder_open(&folder, to, err));
    clv_status status = write(arg, weights, folder.temporary, options, err);
    if (status == CLV_OK)
        status = clv_folder_copy(from, folder.temporary, owns, weights, err);
    if (status == CLV_OK)
        return clv_atomic_folder_commit(&folder, err);
    clv_atomic_folder_abort(&folder, err);
    return status;
}

typedef struct sharding {
    clv_sharded_write_options shards;
    const clv_weights *weights;
} sharding;

/* A form_writer of a sharding. */
static clv_status write_shards(const void *arg, const clv_weights *original, const char *folder,
                               const clv_convert_options *options, clv_error *err)
{
    const sharding *s = arg;
    clv_sharded_write_options o = s->shards;
    o.progress = options->progress;
    o.progress_arg = options->progress_arg;
    return clv_weights_shard(s->weights, folder, &o, err);
}

static clv_status shard_weights(const clv_model *model, const clv_weights *weights, const char *to,
                                const clv_convert_options *options, clv_error *err)
{
    clv_weight_layouts *placement;
    CLV_FREED clv_tensor_placement *placements = NULL;
    CLV_TRY(clv_weight_layouts_new(&placement, &model->config, &model->mesh, &model->rules, model->quant, err));
    clv_status status = clv_weight_layouts_of_checkpoint(&placements, placement, weights, err);
    clv_weight_layouts_free(placement);
    CLV_TRY(status);
    const sharding s = {.weights = weights,
                        .shards = {.mesh = model->mesh,
                                   .rules = options->rules_text ? options->rules_text : model->rules.name,
                                   .placements = placements}};
    return convert(model->path, model->weights->files, to, write_shards, &s, options, err);
}

clv_status clv_checkpoint_shard(const clv_model *model, const char *to, const clv_convert_options *options,
                                clv_error *err)
{
    clv_convert_options o;
    clv_quantize_on_load *blocks;
    CLV_TRY(clv_require(model && to && model->weights, __func__, "a model with weights, and a folder to make", err));
    CLV_TRY(clv_options_copy_in(&o, sizeof o, sizeof o, options, __func__, err));
    if (model->adapters)
        return clv_fail(err, CLV_EUNSUPPORTED,
                        "%s: of a model with adapters its weights alone would be written; valid: adapters merged into "
                        "them first (cleave merge)",
                        model->path);
    const clv_weights *weights = model->weights->files;
    if (model->quant == model->weights->inventory.quant)
        return shard_weights(model, weights, to, &o, err);
    CLV_TRY(clv_quantize_on_load_open(&blocks, weights, &model->config, model->quant, err));
    clv_status status = shard_weights(model, clv_quantize_on_load_weights(blocks), to, &o, err);
    clv_quantize_on_load_close(blocks);
    return status;
}

static clv_status write_merged(const void *arg, const clv_weights *weights, const char *folder,
                               const clv_convert_options *options, clv_error *err)
{
    return clv_weights_merge(weights, folder, options->progress, options->progress_arg, err);
}

/* A form_writer: the model's weights with its adapters. They are written in the dtype of the base's first tensor, or
 * f32, so that the base's config.json stays true. */
static clv_status write_with_adapters(const void *arg, const clv_weights *weights, const char *folder,
                                      const clv_convert_options *options, clv_error *err)
{
    const clv_model *m = arg;
    const clv_safetensor *first = clv_weights_at(weights, 0);
    const clv_model_save_spec spec = {.config = &m->config,
                                      .adapters = m->adapters,
                                      .dtype = clv_dtype_is_float(first->dtype) ? first->dtype : CLV_F32,
                                      .weights_name = clv_weights_single_name};
    clv_graph *graph;
    clv_program *program = NULL;
    clv_session *session = NULL;
    CLV_TRY(clv_graph_new(&graph, &m->mesh, err));
    clv_model_inference(graph, m, &(clv_model_graph_options){.batch = 1, .seq = 1});
    clv_status status = clv_model_compile(&program, m, graph, err);
    clv_graph_free(graph);
    if (status == CLV_OK)
        status = clv_model_open_session(&session, m, false, err);
    if (status == CLV_OK)
        status = clv_session_load(session, program, err);
    if (status == CLV_OK)
        status = clv_model_save_files(session, &spec, folder, err);
    clv_session_free(session);
    clv_program_free(program);
    return status;
}

static clv_status merge_adapters(const char *from, const char *to, const clv_convert_options *options, clv_error *err)
{
    clv_model *m;
    CLV_TRY(clv_model_open(&m, from, NULL, err));
    clv_status status =
        m->quant == CLV_QUANT_NONE
            ? convert(m->path, m->weights->files, to, write_with_adapters, m, options, err)
            : clv_fail(err, CLV_EUNSUPPORTED,
                       "%s: adapters are not merged into weights in %s; valid: as their base the folder of floats that "
                       "these were made of",
                       m->path, clv_quant_name(m->quant));
    clv_model_close(m);
    return status;
}

clv_status clv_checkpoint_merge(const char *from, const char *to, const clv_convert_options *options, clv_error *err)
{
    clv_convert_options o;
    clv_weights *weights;
    CLV_TRY(clv_require(from && to, __func__, "two folders", err));
    CLV_TRY(clv_options_copy_in(&o, sizeof o, sizeof o, options, __func__, err));
    if (clv_peft_is_adapter_folder(from))
        return merge_adapters(from, to, &o, err);
    CLV_TRY(clv_weights_open(&weights, from, err));
    clv_status status = clv_weights_sharded_manifest(weights)
                            ? convert(from, weights, to, write_merged, NULL, &o, err)
                            : clv_fail(err, CLV_EINVAL, "%s: has no %s; valid: a folder that cleave shard made", from,
                                       clv_manifest_name);
    clv_weights_close(weights);
    return status;
}

clv_status clv_model_save(const clv_model *model, const clv_session *session, const char *folder, clv_error *err)
{
    CLV_TRY(clv_require(model && session && folder, __func__, "a model, a session and a folder", err));
    if (model->quant != CLV_QUANT_NONE)
        return clv_fail(err, CLV_EUNSUPPORTED, "clv_model_save: weights in %s; valid: a model opened as floats",
                        clv_quant_name(model->quant));
    const clv_model_save_spec files = clv_model_save_spec_hf(&model->config, model->adapters, model->dtype);
    return clv_model_save_files(session, &files, folder, err);
}

clv_status clv_model_save_adapters(const clv_model *model, const clv_session *session, const char *folder,
                                   clv_error *err)
{
    clv_model_save_spec files;
    CLV_TRY(clv_require(model && session && folder, __func__, "a model, a session and a folder", err));
    CLV_TRY(clv_model_save_spec_peft(&files, model, err));
    return clv_model_save_files(session, &files, folder, err);
}
