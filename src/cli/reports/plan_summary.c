/* plan_summary.c - header of `cleave plan`: step, model or block sizes, mesh, rules and machine. */
#include "cli/reports/plan_summary.h"

#include <string.h>

#include "cleave/model.h"
#include "cleave/status.h"

/* ---- sizes ---- */

static void add_size(clv_table *t, const char *key, int64_t size)
{
    if (size > 0)
        clv_table_int(t, key, size);
}

static clv_status add_model(clv_table *t, const char *path, clv_error *err)
{
    clv_model *model;
    clv_model_info info = {.size = sizeof info};
    const clv_model_options options = {.size = sizeof options, .config_only = 1};
    CLV_TRY(clv_model_open(&model, path, &options, err));
    clv_status status = clv_model_get_info(model, &info, err);
    clv_model_close(model);
    if (status != CLV_OK)
        return status;
    clv_table_text(t, "family", info.family);
    clv_table_count(t, "parameters", (double)info.parameters);
    clv_table_int(t, "layers", info.layers);
    clv_table_int(t, "hidden", info.hidden);
    clv_table_int(t, "heads", info.heads);
    clv_table_int(t, "kv_heads", info.kv_heads);
    clv_table_int(t, "head_dim", info.head_dim);
    clv_table_int(t, "ffn", info.ffn);
    clv_table_int(t, "vocab", info.vocab);
    return CLV_OK;
}

/* Sizes that were not given are the planner's. */
static void add_block(clv_table *t, const char *block, const clv_plan_options *o)
{
    int64_t hidden = o->hidden ? o->hidden : CLV_PLAN_HIDDEN, heads = o->heads ? o->heads : CLV_PLAN_HEADS;
    bool attends = strcmp(block, "ffn") != 0, feeds = strcmp(block, "attention") != 0;
    clv_table_text(t, "block", block);
    clv_table_int(t, "hidden", hidden);
    add_size(t, "heads", attends ? heads : 0);
    add_size(t, "kv_heads", !attends ? 0 : o->kv_heads ? o->kv_heads : heads);
    add_size(t, "head_dim", !attends ? 0 : o->head_dim ? o->head_dim : hidden / heads);
    add_size(t, "ffn", !feeds ? 0 : o->ffn ? o->ffn : 4 * hidden);
}

/* ---- how ---- */

static const char *step_of(const clv_plan_option *o)
{
    if (o->block)
        return o->gradient ? "forward and backward" : "forward";
    return o->prefill ? "prefill" : o->decode ? "decode" : "training";
}

/* What was asked for beyond the defaults. */
static void add_changes(clv_table *t, const clv_plan_option *o)
{
    const clv_lora_option *lora = &o->lora;
    add_size(t, "accumulate", o->plan.accumulate > 1 ? o->plan.accumulate : 0);
    add_size(t, "lora_rank", lora->rank);
    if (o->quant)
        clv_table_text(t, "quant", o->quant);
    if (strcmp(o->comm_dtype, "f32") != 0)
        clv_table_text(t, "comm_dtype", o->comm_dtype);
    if (o->recompute.mode || o->recompute.activations)
        clv_table_text(t, "recompute", o->recompute.mode ? o->recompute.mode : "selective");
    if (o->plan.compile.reshard_after_forward)
        clv_table_bool(t, "reshard_after_forward", true);
    if (o->plan.compile.overlap)
        clv_table_bool(t, "overlap", true);
}

static clv_status add_mesh(clv_table *t, const clv_mesh_option *option, clv_error *err)
{
    clv_mesh mesh;
    clv_axis_rules rules;
    char text[CLV_MESH_TEXT];
    CLV_TRY(clv_mesh_option_read(&mesh, option, err));
    CLV_TRY(clv_mesh_option_rules(&rules, option, &mesh, err));
    clv_mesh_print(text, sizeof text, &mesh);
    clv_table_text(t, "mesh", text);
    clv_table_text(t, "rules", rules.name[0] ? rules.name : "none");
    return CLV_OK;
}

clv_status clv_plan_summary_add(clv_table *t, const clv_plan_option *option, const char *machine, clv_error *err)
{
    const clv_plan_options *o = &option->plan;
    clv_table_header(t, "plan");
    clv_table_text(t, "step", step_of(option));
    if (option->block)
        add_block(t, option->block, o);
    else
        CLV_TRY(add_model(t, o->model, err));
    clv_table_int(t, "batch", o->batch);
    clv_table_int(t, "seq", o->seq);
    clv_table_text(t, "dtype", option->dtype);
    add_changes(t, option);
    CLV_TRY(add_mesh(t, &option->mesh, err));
    clv_table_text(t, "hardware", machine);
    return CLV_OK;
}
