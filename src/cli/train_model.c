#include "cli/train_model.h"

clv_status clv_start_option_open(clv_model **out, const clv_start_option *o, const clv_model_options *options,
                                 clv_error *err)
{
    clv_model_options how = *options;
    clv_model *model;
    const char *path = o->model ? o->model : o->config;
    if (!path)
        return CLV_OK;
    how.config_only = o->config != NULL;
    CLV_TRY(clv_model_open(&model, path, &how, err));
    clv_status status = clv_model_compare(model, err);
    if (status == CLV_OK)
        *out = model;
    else
        clv_model_close(model);
    return status;
}
