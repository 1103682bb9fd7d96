/* plan_summary.c - adds the first lines of `cleave plan` to a table: step, model or block sizes, mesh, rules and
 * machine. */
#include "cli/reports/plan_summary.h"

static void add_size(clv_table *t, const char *key, int64_t size)
{
    if (size > 0)
        clv_table_int(t, key, size);
}

int clv_plan_settings_list(clv_plan_setting out[CLV_PLAN_SETTINGS], const clv_plan_option *option)
{
    const clv_plan_options *o = &option->plan;
    const clv_compile_options *c = &o->compile;
    int n = 0;
    if (o->accumulate > 1)
        out[n++] = (clv_plan_setting){.key = "accumulate", .number = o->accumulate};
    if (o->no_sync)
        out[n++] = (clv_plan_setting){.key = "no_sync"};
    if (option->lora.rank > 0)
        out[n++] = (clv_plan_setting){.key = "lora_rank", .number = option->lora.rank};
    if (o->quant)
        out[n++] = (clv_plan_setting){.key = "quant", .word = clv_quant_name(o->quant)};
    if (c->comm_dtype)
        out[n++] = (clv_plan_setting){.key = "comm_dtype", .word = clv_comm_dtype_name(c->comm_dtype)};
    if (c->recompute)
        out[n++] = (clv_plan_setting){.key = "recompute", .word = clv_recompute_name(c->recompute)};
    if (c->reshard_after_forward)
        out[n++] = (clv_plan_setting){.key = "reshard_after_forward",
                                      .word = clv_reshard_after_forward_name(c->reshard_after_forward)};
    if (c->overlap)
        out[n++] = (clv_plan_setting){.key = "overlap"};
    return n;
}

static void add_settings(clv_table *t, const clv_plan_option *option)
{
    clv_plan_setting set[CLV_PLAN_SETTINGS];
    int n = clv_plan_settings_list(set, option);
    for (int i = 0; i < n; i++)
        if (set[i].word)
            clv_table_text(t, set[i].key, set[i].word);
        else if (set[i].number)
            clv_table_int(t, set[i].key, set[i].number);
        else
            clv_table_bool(t, set[i].key, true);
}

void clv_plan_summary_add(clv_table *t, const clv_plan_report *r)
{
    const clv_plan_options *o = &r->option->plan;
    const clv_model_info *info = &r->model;
    const char *rules = r->option->mesh.axis_rules.name;
    char mesh[CLV_MESH_TEXT];
    clv_table_begin_header(t, "plan");
    clv_table_text(t, "step", clv_plan_step_name(o));
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
    add_settings(t, r->option);
    clv_mesh_print(mesh, sizeof mesh, &r->option->mesh.mesh);
    clv_table_text(t, "mesh", mesh);
    clv_table_text(t, "rules", rules[0] ? rules : "none");
    clv_table_text(t, "hardware", r->machine.name);
}
