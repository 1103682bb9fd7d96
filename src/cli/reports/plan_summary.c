/* plan_summary.c - header of `cleave plan`: step, model or block sizes, mesh, rules and machine. */
#include "cli/reports/plan_summary.h"

static void add_size(clv_table *t, const char *key, int64_t size)
{
    if (size > 0)
        clv_table_int(t, key, size);
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

void clv_plan_summary_add(clv_table *t, const clv_plan_report *r)
{
    const clv_plan_options *o = &r->option->plan;
    const clv_model_info *info = &r->model;
    const char *rules = r->option->mesh.axis_rules.name;
    char mesh[CLV_MESH_TEXT];
    clv_table_header(t, "plan");
    clv_table_text(t, "step", clv_plan_step(o));
    clv_table_text(t, o->block ? "block" : "family", o->block ? clv_plan_block_name(o->block) : info->family);
    if (!o->block) {
        clv_table_count(t, "parameters", (double)info->parameters);
        clv_table_int(t, "layers", info->layers);
    }
    clv_table_int(t, "hidden", info->hidden);
    add_size(t, "heads", info->heads);
    add_size(t, "kv_heads", info->kv_heads);
    add_size(t, "head_dim", info->head_dim);
    add_size(t, "ffn", info->ffn);
    add_size(t, "experts", info->experts);
    add_size(t, "experts_per_token", info->top_k);
    add_size(t, "expert_ffn", info->expert_ffn);
    add_size(t, "vocab", info->vocab);
    clv_table_int(t, "batch", o->batch);
    clv_table_int(t, "seq", o->seq);
    clv_table_text(t, "dtype", clv_dtype_name(o->dtype));
    add_changes(t, o, &r->option->lora);
    clv_mesh_print(mesh, sizeof mesh, &r->option->mesh.mesh);
    clv_table_text(t, "mesh", mesh);
    clv_table_text(t, "rules", rules[0] ? rules : "none");
    clv_table_text(t, "hardware", r->machine.name);
}
