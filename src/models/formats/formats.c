/* formats.c - clv_layouts_write and clv_layouts_read: layouts in the words of JAX, PyTorch, Shardy and Megatron-LM. */
#include "models/formats/formats.h"

#include <ctype.h>

/* ---- names ---- */

static const struct {
    const char *name;
    clv_status (*write)(char **out, const clv_format_input *in, clv_error *err);
    clv_status (*write_tensors)(char **out, const clv_graph *graph, clv_error *err);
} formats[] = {[CLV_FORMAT_NONE] = {"none", NULL, NULL},
               [CLV_FORMAT_JAX] = {"jax", clv_jax_write, clv_jax_write_tensors},
               [CLV_FORMAT_DTENSOR] = {"dtensor", clv_dtensor_write, NULL},
               [CLV_FORMAT_SHARDY] = {"shardy", clv_shardy_write, clv_shardy_write_tensors},
               [CLV_FORMAT_MEGATRON] = {"megatron", clv_megatron_write, NULL}};
enum { N_FORMATS = sizeof formats / sizeof *formats };

const char *clv_layout_format_name(clv_layout_format format)
{
    return (unsigned)format < N_FORMATS ? formats[format].name : "unknown";
}

static clv_status check_format(clv_layout_format format, clv_error *err)
{
    if ((unsigned)format < N_FORMATS && formats[format].write)
        return CLV_OK;
    return clv_fail(err, CLV_EINVAL, "format %d; valid: those of clv_layout_format but CLV_FORMAT_NONE", (int)format);
}

/* ---- writing ---- */

clv_status clv_layouts_write(char **out, clv_layout_format format, const clv_plan_options *plan, clv_error *err)
{
    const clv_mesh alone = {0};
    clv_axis_rules rules;
    clv_format_model model = {0};
    clv_plan_options o;
    CLV_TRY(clv_require(out && plan, __func__, "out and a plan", err));
    CLV_TRY(clv_options_copy_in(&o, sizeof o, sizeof o, plan, __func__, err));
    CLV_TRY(check_format(format, err));
    if (!o.model)
        return clv_fail(err, CLV_EINVAL, "%s names parameters of a checkpoint; a block has none; valid: a model",
                        clv_layout_format_name(format));
    o.mesh = o.mesh ? o.mesh : &alone;
    if (!o.rules)
        CLV_TRY(clv_axis_rules_preset(&rules, o.sp ? "megatron-sp" : NULL, o.mesh, err));
    o.rules = o.rules ? o.rules : &rules;
    if (format != CLV_FORMAT_MEGATRON && clv_axis_rules_stage_axis(o.rules) >= 0)
        return clv_fail(err, CLV_EUNSUPPORTED,
                        "pipeline stages have no form in %s; valid: megatron, or a mesh without "
                        "them",
                        clv_layout_format_name(format));
    clv_status status =
        format == CLV_FORMAT_MEGATRON
            ? clv_model_open(&model.model, o.model,
                             &(clv_model_options){.size = sizeof(clv_model_options), .config_only = 1}, err)
            : clv_format_model_open(&model, o.model, o.mesh, o.rules, err);
    if (status == CLV_OK)
        status = formats[format].write(out, &(clv_format_input){&o, &model}, err);
    clv_format_model_free(&model);
    return status;
}

clv_status clv_layouts_write_graph(char **out, clv_layout_format format, const clv_graph *graph, clv_error *err)
{
    CLV_TRY(clv_require(out && graph, __func__, "out and a graph", err));
    CLV_TRY(check_format(format, err));
    CLV_TRY(clv_graph_status(graph, err));
    if (!formats[format].write_tensors)
        return clv_fail(err, CLV_EUNSUPPORTED, "%s names modules or flags of models; valid for a program: jax, shardy",
                        clv_layout_format_name(format));
    return formats[format].write_tensors(out, graph, err);
}

/* ---- reading ---- */

/* The JSON text of a file that is one, or of Python with one between three quotes. False: there is none. */
static bool find_json(const char **json, size_t *length, const char *text, size_t size)
{
    static const char quotes[] = "\"\"\"";
    size_t at = 0;
    while (at < size && isspace((unsigned char)text[at]))
        at++;
    *json = text;
    *length = size;
    if (at < size && text[at] == '{')
        return true;
    const char *call = memmem(text, size, "json.loads(", 11);
    const char *first = call ? memmem(call, size - (size_t)(call - text), quotes, 3) : NULL;
    const char *last = first ? memmem(first + 3, size - (size_t)(first + 3 - text), quotes, 3) : NULL;
    if (!last)
        return false;
    *json = first + 3;
    *length = (size_t)(last - *json);
    return true;
}

static clv_status read_document(clv_read_layouts *out, const json_t *document, const char *where, const char *model,
                                clv_error *err)
{
    clv_format_model tensors;
    clv_saved_plan *plan = &out->plan;
    const clv_axis_rules whole = {0};
    CLV_TRY(clv_json_check_object(document, where, err));
    const bool specs = json_object_get(document, "specs") != NULL;
    if (!specs && !json_object_get(document, "plan"))
        return clv_fail(err, CLV_EFORMAT, "%s: it has neither \"specs\" (JAX) nor \"plan\" (DTensor)", where);
    if (!model)
        return clv_fail(err, CLV_EINVAL, "%s: its names are those of a model's parameters; give the model", where);
    CLV_TRY(clv_format_read_mesh(&plan->mesh, document, where, err));
    CLV_TRY(clv_format_check_keys(document, "a layout",
                                  specs ? "mesh, specs, views, optimizer, inputs, activations"
                                        : "mesh, tensor_parallel, plan, fully_shard, replicate",
                                  where, err));
    out->format = specs ? CLV_FORMAT_JAX : CLV_FORMAT_DTENSOR;
    clv_status status = clv_format_model_open(&tensors, model, &plan->mesh, &whole, err);
    if (status == CLV_OK)
        status = (specs ? clv_jax_read : clv_dtensor_read)(&plan->rules, &plan->mesh, document, &tensors, where, err);
    clv_format_model_free(&tensors);
    return status;
}

clv_status clv_layouts_read(clv_read_layouts *out, const char *text, size_t size, const char *where, const char *model,
                            clv_error *err)
{
    clv_read_layouts read = {.plan.accumulate = 1, .plan.has_mesh = true};
    const char *json;
    size_t length;
    json_t *document;
    CLV_TRY(clv_require(out && text && where, __func__, "out, a text and its name", err));
    if (find_json(&json, &length, text, size)) {
        CLV_TRY(clv_json_parse(&document, json, length, CLV_JSON_KEYS_UNIQUE, where, err));
        clv_status status = read_document(&read, document, where, model, err);
        json_decref(document);
        CLV_TRY(status);
    } else if (memmem(text, size, "--", 2)) {
        read.format = CLV_FORMAT_MEGATRON;
        CLV_TRY(clv_megatron_read(&read, text, size, err));
    } else {
        return clv_fail(err, CLV_EFORMAT,
                        "%s: no layout: neither a JSON object with \"specs\" or \"plan\", nor flags of Megatron-LM",
                        where);
    }
    return clv_struct_copy_out(out, sizeof read, sizeof read, &read, __func__, err);
}
