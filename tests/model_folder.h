/* model_folder.h - a model's folder, with values of a test's own. */
#pragma once

#include <stdio.h>
#include <stdlib.h>

#include "must.h"

#include "models/weights/parameter_map.h"

/* [clv_parameter_elems(p)], which the caller frees. */
typedef float *model_values(void *arg, const clv_model_config *c, const clv_parameter *p);

/* config.json, and every parameter in a model.safetensors of f32. */
static inline void write_model_folder(const char *path, const clv_model_config *c, model_values *values, void *arg)
{
    clv_safetensors_writer *writer;
    clv_error err = {0};
    char command[600], file[600];
    snprintf(command, sizeof command, "mkdir -p %s", path);
    assert_int_equal(system(command), 0);
    snprintf(file, sizeof file, "%s/config.json", path);
    must(clv_model_config_write(c, CLV_F32, file, &err), &err);
    snprintf(file, sizeof file, "%s/model.safetensors", path);
    must(clv_model_create_weights(&writer, c, CLV_F32, file, &err), &err);
    for (int64_t i = 0; i < clv_model_parameter_count(c); i++) {
        clv_parameter p = clv_model_parameter_at(c, i);
        float *w = values(arg, c, &p);
        must(clv_model_write_parameter(writer, c, p.name, NULL, CLV_F32, w, &err), &err);
        free(w);
    }
    must(clv_safetensors_commit(writer, &err), &err);
}
