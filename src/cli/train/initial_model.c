/* initial_model.c - the model that training starts from: -m FOLDER, --config FILE, or sizes given as options. */
#include "cli/train/initial_model.h"

clv_status clv_initial_model_open(clv_model **out, const clv_initial_model_option *o, const clv_model_options *options,
                                  clv_error *err)
{
    clv_model_options how = *options;
    clv_model *model;
    const char *path = o->model ? o->model : o->config;
    if (!path)
        return CLV_OK;
    how.config_only = o->config != NULL;
    CLV_TRY(clv_model_open(&model, path, &how, err));
    clv_status status = clv_model_verify_across_processes(model, err);
    if (status == CLV_OK)
        *out = model;
    else
        clv_model_close(model);
    return status;
}
