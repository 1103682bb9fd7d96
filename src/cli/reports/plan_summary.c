/* plan_summary.c - header of `cleave plan`: step, model or block sizes, mesh, rules and machine. */
#include "cli/reports/plan_summary.h"

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
    const clv_model_options options = {.size = sizeof options, .config_only = true};
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
static void add_block(clv_table *t, const clv_plan_options *o)
{
    int64_t hidden = o->hidden ? o->hidden : CLV_PLAN_HIDDEN, heads = o->heads ? o->heads : CLV_PLAN_HEADS;
    bool attends = o->block != CLV_PLAN_BLOCK_FFN, feeds = o->block != CLV_PLAN_BLOCK_ATTENTION;
    clv_table_text(t, "block", clv_plan_block_name(o->block));
    clv_table_int(t, "hidden", hidden);
    add_size(t, "heads", attends ? heads : 0);
    add_size(t, "kv_heads", !attends ? 0 : o->kv_heads ? o->kv_heads : heads);
    add_size(t, "head_dim", !attends ? 0 : o->head_dim ? o->head_dim : hidden / heads);
    add_size(t, "ffn", !feeds ? 0 : o->ffn ? o->ffn : 4 * hidden);
}

/* ---- how ---- */

static const char *step_of(const clv_plan_options *o)
{
    switch (o->mode) {
    case CLV_PLAN_MODE_GRAD:
        return "forward and backward";
    case CLV_PLAN_MODE_PREFILL:
        return "prefill";
    case CLV_PLAN_MODE_DECODE:
        return "decode";
    default:
        return o->block ? "forward" : "training";
    }
}

/* Options other than the defaults. */
static void add_changes(clv_table *t, const clv_plan_options *o, const clv_lora_options *lora)
{
    const clv_compile_options *c = &o->compile;
    add_size(t, "accumulate", o->accumulate > 1 ? o->accumulate : 0);
    if (o->no_sync)
        clv_table_bool(t, "no_sync", true);
    add_size(t, "lora_rank", lora->rank);
    if (o->quant)
        clv_table_text(t, "quant", clv_quant_name(o->quant));
    if (c->comm_dtype)
        clv_table_text(t, "comm_dtype", clv_comm_dtype_name(c->comm_dtype));
    if (c->recompute)
        clv_table_text(t, "recompute", clv_recompute_name(c->recompute));
    if (c->reshard_after_forward)
        clv_table_text(t, "reshard_after_forward", clv_reshard_after_forward_name(c->reshard_after_forward));
    if (c->overlap)
        clv_table_bool(t, "overlap", true);
}

clv_status clv_plan_summary_add(clv_table *t, const clv_plan_option *option, const char *machine, clv_error *err)
{
    const clv_plan_options *o = &option->plan;
    const char *rules = option->mesh.axis_rules.name;
    char mesh[CLV_MESH_TEXT];
    clv_table_header(t, "plan");
    clv_table_text(t, "step", step_of(o));
    if (o->block)
        add_block(t, o);
    else
        CLV_TRY(add_model(t, o->model, err));
    clv_table_int(t, "batch", o->batch);
    clv_table_int(t, "seq", o->seq);
    clv_table_text(t, "dtype", clv_dtype_name(o->dtype));
    add_changes(t, o, &option->lora);
    clv_mesh_print(mesh, sizeof mesh, &option->mesh.mesh);
    clv_table_text(t, "mesh", mesh);
    clv_table_text(t, "rules", rules[0] ? rules : "none");
    clv_table_text(t, "hardware", machine);
    return CLV_OK;
}
