/* model_weights.c - see model_weights.h. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "io/file.h"
#include "models/census.h"
#include "models/model_weights.h"

/* ---- writing ---- */

static clv_status make_folder(const char *folder, clv_error *err)
{
    if (mkdir(folder, 0777) == 0 || errno == EEXIST)
        return CLV_OK;
    return clv_fail(err, CLV_EIO, "%s: the folder cannot be made: %s", folder, strerror(errno));
}

/* The parameter in f32, whatever the state's dtype. */
static clv_status read_parameter(float *out, const clv_session *session, const clv_parameter *parameter,
                                 clv_dtype dtype, void *scratch, clv_error *err)
{
    if (dtype == CLV_F32)
        return clv_session_read(session, parameter->name, NULL, out, err);
    CLV_TRY(clv_session_read(session, parameter->name, NULL, scratch, err));
    clv_dtype_convert(CLV_F32, out, dtype, scratch, clv_parameter_elems(parameter));
    return CLV_OK;
}

static clv_status state_dtype(clv_dtype *out, const clv_session *session, const char *name, clv_error *err)
{
    clv_state_info info = {.size = sizeof info};
    for (int i = 0; clv_session_state(session, i, &info, err) == CLV_OK && info.name; i++) {
        if (strcmp(info.name, name) == 0) {
            *out = info.type.dtype;
            return CLV_OK;
        }
    }
    return clv_fail(err, CLV_ENOTFOUND, "the session has no state '%s'", name);
}

/* Room for the largest parameter in f32, and once more in any dtype. */
static clv_status make_room(float **values, void **scratch, const clv_model_config *config, clv_error *err)
{
    int64_t most = 1;
    for (int64_t i = 0; i < clv_model_parameter_count(config); i++) {
        clv_parameter parameter = clv_model_parameter_at(config, i);
        int64_t elems = clv_parameter_elems(&parameter);
        most = elems > most ? elems : most;
    }
    *values = malloc((size_t)most * sizeof **values);
    *scratch = malloc((size_t)most * sizeof(double));
    if (*values && *scratch)
        return CLV_OK;
    free(*values);
    free(*scratch);
    return clv_fail_memory(err, "a parameter", (size_t)most * (sizeof **values + sizeof(double)));
}

static clv_status save_weights(const clv_session *session, const clv_model_config *config, const char *path,
                               float *values, void *scratch, clv_error *err)
{
    clv_safetensors_writer *writer;
    CLV_TRY(clv_model_create_weights(&writer, config, path, err));
    clv_status status = CLV_OK;
    for (int64_t i = 0; status == CLV_OK && i < clv_model_parameter_count(config); i++) {
        clv_parameter parameter = clv_model_parameter_at(config, i);
        clv_dtype dtype = CLV_F32;
        status = state_dtype(&dtype, session, parameter.name, err);
        if (status == CLV_OK)
            status = read_parameter(values, session, &parameter, dtype, scratch, err);
        if (status == CLV_OK)
            status = clv_model_write_parameter(writer, config, parameter.name, NULL, values, err);
    }
    if (status == CLV_OK)
        return clv_safetensors_commit(writer, err);
    clv_safetensors_abandon(writer);
    return status;
}

clv_status clv_model_write_folder(const clv_session *session, const clv_model_config *config, const char *folder,
                                  clv_error *err)
{
    float *values;
    void *scratch;
    CLV_TRY(make_folder(folder, err));
    CLV_TRY(make_room(&values, &scratch, config, err));
    char *weights = clv_path_join(folder, "model.safetensors"), *json = clv_path_join(folder, "config.json");
    clv_status status = CLV_OK;
    if (!weights || !json)
        status = clv_fail_memory(err, folder, strlen(folder));
    if (status == CLV_OK)
        status = save_weights(session, config, weights, values, scratch, err);
    if (status == CLV_OK)
        status = clv_model_config_write(config, json, err);
    free(weights);
    free(json);
    free(values);
    free(scratch);
    return status;
}

/* ---- reading ---- */

struct clv_model_weights {
    clv_model_config model;
    clv_weights *weights;
    clv_census census;
};

clv_status clv_model_weights_open(clv_model_weights **out, const clv_model_config *model, const char *folder,
                                  const clv_model_weights_options *options, clv_error *err)
{
    clv_model_weights *c = calloc(1, sizeof *c);
    if (!c)
        return clv_fail_memory(err, folder, sizeof *c);
    c->model = *model;
    clv_status status = clv_weights_open(&c->weights, folder, err);
    if (status == CLV_OK)
        status = clv_census_take(&c->census, c->weights, model, err);
    if (status == CLV_OK)
        status = clv_census_check(&c->census, c->weights, model, err);
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
    clv_census_free(&c->census);
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
    *first = c->census.n_extra > 0 ? c->census.extra[0]->name : NULL;
    return c->census.n_extra;
}

const clv_weights *clv_model_weights_files(const clv_model_weights *w)
{
    return w->weights;
}
