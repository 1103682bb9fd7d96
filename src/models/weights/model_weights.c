/* model_weights.c - loads a folder's weights shard by shard into sessions, and saves a session's weights to a folder.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "io/files/file.h"
#include "models/adapters/lora_parameters.h"
#include "models/checkpoint/checkpoint_inventory.h"
#include "models/weights/model_weights.h"
#include "runtime/multi_process/multi_process.h"

/* ---- writing ---- */

static clv_status make_folder(const char *folder, clv_error *err)
{
    if (mkdir(folder, 0777) == 0 || errno == EEXIST)
        return CLV_OK;
    return clv_fail(err, CLV_EIO, "%s: the folder cannot be made: %s", folder, strerror(errno));
}

/* Copies a parameter from the ranks of this process to the file. */
typedef struct saving {
    const clv_session *session;
    const clv_model_config *config;
    const clv_adapters *adapters; /* merged into the weights; NULL: none */
    clv_safetensors_writer *writer;
    const char *name; /* name of the parameter */
    clv_dtype dtype;  /* dtype of its state */
    clv_dtype to;     /* dtype of the file */
    int64_t room;     /* capacity of both buffers, in elements */
    void *values;     /* in the file's dtype */
    void *scratch;    /* in the state's dtype, if it differs */
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

/* Saves a box of the parameter, converted to the file's dtype. */
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
    const clv_dtype to = s->to;
    clv_status status = CLV_OK;
    for (int64_t i = 0; status == CLV_OK && i < clv_model_parameter_count(s->config); i++) {
        clv_parameter parameter = clv_model_parameter_at(s->config, i);
        clv_state_info state = {0};
        status = find_state(&state, s->session, parameter.name, err);
        s->name = parameter.name;
        s->to = clv_parameter_row_file_dtype(parameter.row, to);
        s->dtype = state.type.dtype;
        if (status == CLV_OK)
            status = clv_session_for_each_box_of_process(s->session, &state.type, &state.layout, save_box, s, err);
    }
    free_room(s);
    return status;
}

static const char saving_call[] = "saving a model";

struct clv_model_saver {
    clv_model_save_spec spec;
    char *folder;
    bool is_root;
    clv_safetensors_writer *writer; /* NULL: closed */
};

void clv_model_saver_free(clv_model_saver *w)
{
    int64_t bytes;
    if (!w)
        return;
    if (w->writer && w->is_root)
        clv_safetensors_abort(w->writer);
    else if (w->writer)
        clv_safetensors_detach(w->writer, &bytes, NULL);
    free(w->folder);
    free(w);
}

static clv_status new_saver(clv_model_saver **out, const clv_session *session, const clv_model_save_spec *spec,
                            const char *folder, clv_error *err)
{
    *out = calloc(1, sizeof **out);
    if (!*out)
        return clv_fail_memory(err, folder, sizeof **out);
    **out = (clv_model_saver){.spec = *spec, .folder = strdup(folder), .is_root = clv_session_is_root(session)};
    return (*out)->folder ? CLV_OK : clv_fail_memory(err, folder, strlen(folder));
}

/* number: id of the file that the root process has created; ignored by the root, which creates it. */
static clv_status open_file(clv_model_saver *w, int number, clv_error *err)
{
    const clv_model_save_spec *spec = &w->spec;
    char path[CLV_PATH_SIZE];
    CLV_TRY(clv_path_join(path, w->folder, spec->weights_name, err));
    if (!w->is_root)
        return clv_model_attach_weights(&w->writer, spec->config, spec->dtype, path, number, err);
    CLV_TRY(make_folder(w->folder, err));
    return clv_model_create_weights(&w->writer, spec->config, spec->dtype, path, err);
}

clv_status clv_model_saver_begin(clv_model_saver **out, const clv_session *session, const clv_model_save_spec *spec,
                                 const char *folder, clv_error *err)
{
    clv_model_saver *w;
    bool is_root = clv_session_is_root(session);
    int64_t number, none;
    clv_status status = new_saver(&w, session, spec, folder, err);
    if (status == CLV_OK && is_root)
        status = open_file(w, -1, err);
    number = status == CLV_OK && is_root ? clv_safetensors_writer_number_or_negative(w->writer) : 0;
    status = clv_session_agree(session, saving_call, status, number, &number, err);
    bool all_ready = status == CLV_OK;
    if (all_ready && !is_root)
        status = open_file(w, (int)number, err);
    if (all_ready)
        status = clv_session_agree(session, saving_call, status, 0, &none, err);
    if (status == CLV_OK)
        *out = w;
    else
        clv_model_saver_free(w);
    return status;
}

clv_status clv_model_saver_write_shards(clv_model_saver *w, const clv_session *session, int64_t *bytes, clv_error *err)
{
    const clv_model_save_spec *spec = &w->spec;
    saving s = {
        .session = session, .config = spec->config, .adapters = spec->adapters, .writer = w->writer, .to = spec->dtype};
    *bytes = 0;
    clv_status status = save_parameters(&s, err);
    if (status != CLV_OK || w->is_root)
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
    return status == CLV_OK && w->spec.write_sidecars ? w->spec.write_sidecars(&w->spec, w->folder, err) : status;
}

clv_status clv_model_save_files(const clv_session *session, const clv_model_save_spec *spec, const char *folder,
                                clv_error *err)
{
    clv_model_saver *w;
    int64_t bytes, none;
    CLV_TRY(clv_model_saver_begin(&w, session, spec, folder, err));
    clv_status status = clv_model_saver_write_shards(w, session, &bytes, err);
    status = clv_session_agree(session, saving_call, status, bytes, &bytes, err);
    if (status == CLV_OK && w->is_root)
        status = clv_model_saver_finish(w, bytes, err);
    clv_model_saver_free(w);
    return clv_session_agree(session, saving_call, status, 0, &none, err); /* all files are in place */
}

/* A clv_model_save_spec.write_sidecars. */
static clv_status write_config(const clv_model_save_spec *spec, const char *folder, clv_error *err)
{
    char path[CLV_PATH_SIZE];
    CLV_TRY(clv_path_join(path, folder, "config.json", err));
    return clv_model_config_write(spec->config, spec->dtype, path, err);
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

clv_status clv_model_weights_open(clv_model_weights **out, const clv_model_config *config, const char *folder,
                                  const clv_model_weights_options *options, clv_error *err)
{
    const clv_model_weights_options o = options ? *options : (clv_model_weights_options){0};
    clv_warnings dropped = {0};
    clv_model_weights *w = calloc(1, sizeof *w);
    if (!w)
        return clv_fail_memory(err, folder, sizeof *w);
    w->config = *config;
    clv_status status =
        o.is_file ? clv_weights_open_path(&w->files, folder, err) : clv_weights_open(&w->files, folder, err);
    if (status == CLV_OK)
        status = clv_config_overrides_apply(&w->overrides, &w->config, w->files, err);
    if (status == CLV_OK)
        status = clv_checkpoint_inventory_collect(&w->inventory, w->files, &w->config, err);
    if (status == CLV_OK)
        status = clv_checkpoint_warnings_collect(o.warnings ? o.warnings : &dropped, &w->inventory, &w->overrides,
                                                 w->files, &w->config, o.is_adapters, err);
    if (status == CLV_OK)
        status = clv_checkpoint_inventory_check(&w->inventory, w->files, &w->config, err);
    if (status == CLV_OK && o.map)
        status = clv_weights_map(w->files, err);
    clv_warnings_free(&dropped);
    if (status == CLV_OK)
        *out = w;
    else
        clv_model_weights_close(w);
    return status;
}

void clv_model_weights_close(clv_model_weights *w)
{
    if (!w)
        return;
    clv_checkpoint_inventory_free(&w->inventory);
    clv_config_overrides_free(&w->overrides);
    clv_weights_close(w->files);
    free(w);
}

clv_status clv_model_weights_source(void *arg, const char *name, const clv_type *type, const clv_shard *box, void *out,
                                    int *known, clv_error *err)
{
    const clv_model_weights *w = arg;
    clv_parameter parameter;
    *known = clv_model_parameter_find(&parameter, &w->config, name, NULL) == CLV_OK;
    return *known ? clv_model_read_parameter(w->files, &w->config, name, box, type->dtype, out, err) : CLV_OK;
}
