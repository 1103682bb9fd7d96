/* model_weights.c - loads a folder's weights shard by shard into sessions, and saves a session's weights to a folder.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "io/files/file.h"
#include "models/adapters/lora_merge.h"
#include "models/checkpoint/checkpoint_inventory.h"
#include "models/checkpoint/checkpoint_warnings.h"
#include "models/weights/model_weights.h"
#include "runtime/multi_process/multi_process.h"

/* ---- writing ---- */

static clv_status make_folder(const char *folder, clv_error *err)
{
    if (mkdir(folder, 0777) == 0 || errno == EEXIST)
        return CLV_OK;
    return clv_fail(err, CLV_EIO, "%s: the folder cannot be made: %s", folder, strerror(errno));
}

/* A parameter's way from the ranks of this process to the file. */
typedef struct saving {
    const clv_session *session;
    const clv_model_config *config;
    const clv_adapters *adapters; /* which weights are saved with; NULL: none */
    clv_safetensors_writer *writer;
    const char *name; /* of the parameter */
    clv_dtype dtype;  /* of its state */
    clv_dtype to;     /* of the file */
    int64_t room;     /* elements that fit into both */
    void *values;
    void *scratch; /* where the dtypes differ */
} saving;

static clv_status find_state(clv_state_info *out, const clv_session *session, const char *name, clv_error *err)
{
    clv_state_info info = {.size = sizeof info};
    for (int i = 0; clv_session_state(session, i, &info, err) == CLV_OK && info.name; i++) {
        if (strcmp(info.name, name) == 0) {
            *out = info;
            return CLV_OK;
        }
    }
    return clv_fail(err, CLV_ENOTFOUND, "the session has no state '%s'", name);
}

static void free_room(saving *s)
{
    free(s->values);
    free(s->scratch);
    s->values = s->scratch = NULL;
    s->room = 0;
}

static clv_status make_room(saving *s, int64_t elems, clv_error *err)
{
    if (elems <= s->room)
        return CLV_OK;
    free_room(s);
    s->values = malloc((size_t)elems * clv_dtype_size(s->to));
    s->scratch = malloc((size_t)elems * sizeof(double));
    if (!s->values || !s->scratch)
        return clv_fail_memory(err, "a parameter", (size_t)elems * (clv_dtype_size(s->to) + sizeof(double)));
    s->room = elems;
    return CLV_OK;
}

/* A box of the parameter in the file's dtype, whatever the state's. */
static clv_status save_box(void *arg, const clv_shard *box, clv_error *err)
{
    saving *s = arg;
    int64_t elems = clv_shard_elems(box);
    CLV_TRY(make_room(s, elems, err));
    CLV_TRY(clv_session_read_local(s->session, s->name, box, s->dtype == s->to ? s->values : s->scratch, err));
    if (s->dtype != s->to)
        clv_dtype_convert(s->to, s->values, s->dtype, s->scratch, elems);
    CLV_TRY(clv_lora_merge(s->values, s->to, box, s->adapters, s->name, s->session, s->dtype, err));
    return clv_model_write_parameter(s->writer, s->config, s->name, box, s->to, s->values, err);
}

static clv_status save_parameters(saving *s, clv_error *err)
{
    clv_status status = CLV_OK;
    for (int64_t i = 0; status == CLV_OK && i < clv_model_parameter_count(s->config); i++) {
        clv_parameter parameter = clv_model_parameter_at(s->config, i);
        clv_state_info state = {0};
        status = find_state(&state, s->session, parameter.name, err);
        s->name = parameter.name;
        s->dtype = state.type.dtype;
        if (status == CLV_OK)
            status = clv_session_each_owned_box(s->session, &state.type, &state.layout, save_box, s, err);
    }
    free_room(s);
    return status;
}

static const char saving_what[] = "saving a model";

struct clv_model_saver {
    clv_model_save_spec files;
    char *folder;
    bool leads;
    clv_safetensors_writer *writer; /* NULL: no more */
};

void clv_model_saver_free(clv_model_saver *w)
{
    int64_t bytes;
    if (!w)
        return;
    if (w->writer && w->leads)
        clv_safetensors_abort(w->writer);
    else if (w->writer)
        clv_safetensors_detach(w->writer, &bytes, NULL);
    free(w->folder);
    free(w);
}

static clv_status new_writing(clv_model_saver **out, const clv_session *session, const clv_model_save_spec *files,
                              const char *folder, clv_error *err)
{
    *out = calloc(1, sizeof **out);
    if (!*out)
        return clv_fail_memory(err, folder, sizeof **out);
    **out = (clv_model_saver){.files = *files, .folder = strdup(folder), .leads = clv_session_is_root(session)};
    return (*out)->folder ? CLV_OK : clv_fail_memory(err, folder, strlen(folder));
}

/* number: of the file that the first process has made; -1: this is it, and makes it. */
static clv_status open_file(clv_model_saver *w, int number, clv_error *err)
{
    const clv_model_save_spec *files = &w->files;
    char *path = clv_path_join(w->folder, files->weights_name);
    clv_status status = path ? CLV_OK : clv_fail_memory(err, w->folder, strlen(w->folder));
    if (status == CLV_OK && w->leads)
        status = make_folder(w->folder, err);
    if (status == CLV_OK)
        status = w->leads ? clv_model_create_weights(&w->writer, files->config, files->dtype, path, err)
                          : clv_model_join_weights(&w->writer, files->config, files->dtype, path, number, err);
    free(path);
    return status;
}

clv_status clv_model_saver_begin(clv_model_saver **out, const clv_session *session, const clv_model_save_spec *files,
                                 const char *folder, clv_error *err)
{
    clv_model_saver *w;
    bool leads = clv_session_is_root(session);
    int64_t number, none;
    clv_status status = new_writing(&w, session, files, folder, err);
    if (status == CLV_OK && leads)
        status = open_file(w, -1, err);
    number = status == CLV_OK && leads ? clv_safetensors_writer_id(w->writer) : 0;
    status = clv_session_agree(session, saving_what, status, number, &number, err);
    bool met = status == CLV_OK;
    if (met && !leads)
        status = open_file(w, (int)number, err);
    if (met)
        status = clv_session_agree(session, saving_what, status, 0, &none, err);
    if (status == CLV_OK)
        *out = w;
    else
        clv_model_saver_free(w);
    return status;
}

clv_status clv_model_saver_write_shares(clv_model_saver *w, const clv_session *session, int64_t *bytes, clv_error *err)
{
    const clv_model_save_spec *files = &w->files;
    saving s = {.session = session,
                .config = files->config,
                .adapters = files->adapters,
                .writer = w->writer,
                .to = files->dtype};
    *bytes = 0;
    clv_status status = save_parameters(&s, err);
    if (status != CLV_OK || w->leads)
        return status;
    status = clv_safetensors_detach(w->writer, bytes, err);
    w->writer = NULL;
    return status;
}

clv_status clv_model_saver_finish(clv_model_saver *w, int64_t all_bytes, clv_error *err)
{
    clv_safetensors_add_written_bytes(w->writer, all_bytes);
    clv_status status = clv_safetensors_commit(w->writer, err);
    w->writer = NULL;
    return status == CLV_OK ? w->files.write_sidecars(&w->files, w->folder, err) : status;
}

clv_status clv_model_save_files(const clv_session *session, const clv_model_save_spec *files, const char *folder,
                                clv_error *err)
{
    clv_model_saver *w;
    int64_t bytes, none;
    CLV_TRY(clv_model_saver_begin(&w, session, files, folder, err));
    clv_status status = clv_model_saver_write_shares(w, session, &bytes, err);
    status = clv_session_agree(session, saving_what, status, bytes, &bytes, err);
    if (status == CLV_OK && w->leads)
        status = clv_model_saver_finish(w, bytes, err);
    clv_model_saver_free(w);
    return clv_session_agree(session, saving_what, status, 0, &none, err); /* all is in its place */
}

/* A model's config.json beside its weights: a clv_model_save_spec.write_sidecars. */
static clv_status write_config(const clv_model_save_spec *files, const char *folder, clv_error *err)
{
    char *path = clv_path_join(folder, "config.json");
    clv_status status = path ? clv_model_config_write(files->config, files->dtype, path, err)
                             : clv_fail_memory(err, folder, strlen(folder));
    free(path);
    return status;
}

clv_model_save_spec clv_model_save_spec_hf(const clv_model_config *config, const clv_adapters *adapters,
                                           clv_dtype dtype)
{
    return (clv_model_save_spec){.config = config,
                                 .adapters = adapters,
                                 .dtype = dtype,
                                 .weights_name = clv_weights_single_name,
                                 .write_sidecars = write_config};
}

/* ---- reading ---- */

struct clv_model_weights {
    clv_model_config model;
    clv_weights *weights;
    clv_config_overrides settled;
    clv_checkpoint_inventory inventory;
    clv_checkpoint_warnings notes;
};

clv_status clv_model_weights_open(clv_model_weights **out, const clv_model_config *model, const char *folder,
                                  const clv_model_weights_options *options, clv_error *err)
{
    clv_model_weights *c = calloc(1, sizeof *c);
    if (!c)
        return clv_fail_memory(err, folder, sizeof *c);
    c->model = *model;
    clv_status status = options && options->is_file ? clv_weights_open_path(&c->weights, folder, err)
                                                    : clv_weights_open(&c->weights, folder, err);
    if (status == CLV_OK)
        status = clv_finalize_config(&c->settled, &c->model, c->weights, err);
    if (status == CLV_OK)
        status = clv_checkpoint_inventory_collect(&c->inventory, c->weights, &c->model, err);
    if (status == CLV_OK)
        status = clv_checkpoint_warnings_collect(&c->notes, &c->inventory, &c->settled, c->weights, &c->model,
                                                 options && options->is_adapters, err);
    if (status == CLV_OK)
        status = clv_checkpoint_inventory_check(&c->inventory, c->weights, &c->model, err);
    if (status == CLV_OK && options && options->map)
        status = clv_weights_map(c->weights, err);
    if (status != CLV_OK) {
        clv_model_weights_close(c);
        return status;
    }
    *out = c;
    return CLV_OK;
}

void clv_model_weights_close(clv_model_weights *c)
{
    if (!c)
        return;
    clv_checkpoint_warnings_free(&c->notes);
    clv_checkpoint_inventory_free(&c->inventory);
    clv_config_overrides_free(&c->settled);
    clv_weights_close(c->weights);
    free(c);
}

clv_status clv_model_weights_source(void *arg, const char *name, const clv_type *type, const clv_shard *box, void *out,
                                    int *known, clv_error *err)
{
    const clv_model_weights *c = arg;
    clv_parameter parameter;
    *known = clv_model_parameter_find(&parameter, &c->model, name, NULL) == CLV_OK;
    return *known ? clv_model_read_parameter(c->weights, &c->model, name, box, type->dtype, out, err) : CLV_OK;
}

uint64_t clv_model_weights_bytes_read(const clv_model_weights *c)
{
    return clv_weights_bytes_read(c->weights);
}

int64_t clv_model_weights_extra(const clv_model_weights *c, const char **first)
{
    *first = c->inventory.n_extra > 0 ? c->inventory.extra[0]->name : NULL;
    return c->inventory.n_extra;
}

const char *clv_model_weights_warning(const clv_model_weights *c, int i)
{
    return i >= 0 && i < c->notes.n ? c->notes.text[i] : NULL;
}

const clv_model_config *clv_model_weights_config(const clv_model_weights *c)
{
    return &c->model;
}

const clv_safetensor *clv_model_weights_extra_at(const clv_model_weights *c, int64_t i)
{
    return i < c->inventory.n_extra ? c->inventory.extra[i] : NULL;
}

const clv_weights *clv_model_weights_files(const clv_model_weights *w)
{
    return w->weights;
}
