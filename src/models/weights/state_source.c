/* state_source.c - clv_model_state_source: reads a state of a model's graph with the reader of its storage. */
#include "base/error.h"
#include "models/weights/prepacked_weights.h"
#include "models/weights/quantized_weights.h"
#include "models/weights/weight_storage.h"

static bool is_dense(const clv_state_read_request *r)
{
    return r->model->weights != NULL;
}

static clv_status read_dense(const clv_state_read_request *r, clv_error *err)
{
    return clv_model_read_parameter(r->model->weights->files, &r->model->config, r->parameter.name, r->box,
                                    r->type->dtype, r->out, err);
}

static bool is_quantized(const clv_state_read_request *r)
{
    return clv_parameter_storage_of(&r->model->config, &r->parameter, r->model->quant).blocks;
}

static const struct {
    const char *suffix; /* of the state's name, after the parameter's */
    bool (*holds)(const clv_state_read_request *read);
    clv_status (*read)(const clv_state_read_request *read, clv_error *err);
} storages[] = {
    {"", is_dense, read_dense},
    {CLV_PACKED, clv_state_is_prepacked, clv_read_prepacked},
    {CLV_QUANT_INTS, is_quantized, clv_read_quantized_ints_and_keep_scales},
    {CLV_QUANT_SCALES, is_quantized, clv_read_quantized_scales},
};

clv_status clv_model_state_source(void *arg, const char *name, const clv_type *type, const clv_shard *box, void *out,
                                  int *known, clv_error *err)
{
    clv_model *m = arg;
    CLV_TRY(clv_require(m && name && type && out && known, __func__, "a model as source_arg", err));
    clv_state_read_request read = {.model = m, .name = name, .type = type, .box = box, .out = out};
    *known = 0;
    for (size_t i = 0; i < sizeof storages / sizeof *storages; i++)
        if (clv_model_find_parameter_with_suffix(&read.parameter, &m->config, name, storages[i].suffix) &&
            storages[i].holds(&read)) {
            *known = 1;
            return storages[i].read(&read, err);
        }
    return m->adapter_weights ? clv_model_weights_source(m->adapter_weights, name, type, box, out, known, err) : CLV_OK;
}
