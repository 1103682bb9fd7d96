/* saved_plan.c - writes and reads clv_saved_plan: a mesh with rules and options, in a rules file. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "cleave/plan_search.h"
#include "io/files/file.h"
#include "io/json/json.h"

enum { FILE_LIMIT = 1 << 20, MOST_MICROBATCHES = 1 << 20 };

/* ---- writing ---- */

/* "data", or ["data", "model"]; a new reference. */
static json_t *axes_json(const int *axis, int n, const clv_mesh *mesh)
{
    json_t *list = json_array();
    if (n == 1) {
        json_decref(list);
        return json_string(mesh->axis[axis[0]].name);
    }
    for (int k = 0; k < n; k++)
        json_array_append_new(list, json_string(mesh->axis[axis[k]].name));
    return list;
}

static json_t *rules_json(const clv_saved_plan *plan)
{
    json_t *list = json_array();
    for (int r = 0; r < plan->rules.n; r++) {
        const clv_axis_rule *rule = &plan->rules.rule[r];
        json_array_append_new(list,
                              json_pack("[s, o]", rule->name,
                                        rule->n_axes ? axes_json(rule->axis, rule->n_axes, &plan->mesh) : json_null()));
    }
    return list;
}

static json_t *stages_json(const clv_axis_rules *rules)
{
    json_t *list = json_array();
    for (int i = 0; i < rules->n_stage_layers; i++)
        json_array_append_new(list, json_integer(rules->stage_layers[i]));
    return list;
}

clv_status clv_saved_plan_write(const clv_saved_plan *plan, const char *path, clv_error *err)
{
    static const char call[] = "clv_saved_plan_write";
    clv_saved_plan p;
    clv_layout unused;
    char mesh[CLV_MESH_TEXT];
    CLV_TRY(clv_require(plan && path, call, "a plan and a path", err));
    CLV_TRY(clv_options_copy_in(&p, sizeof p, sizeof p, plan, call, err));
    CLV_TRY(clv_axis_rules_layout(&unused, &p.rules, &p.mesh, 0, NULL, err)); /* checks them */
    clv_mesh_print(mesh, sizeof mesh, &p.mesh);
    json_t *document =
        json_pack("{s:s, s:o, s:I, s:s, s:s}", "mesh", mesh, "rules", rules_json(&p), "accumulate",
                  (json_int_t)(p.accumulate > 1 ? p.accumulate : 1), "recompute", clv_recompute_name(p.recompute),
                  "reshard_after_forward", clv_reshard_after_forward_name(p.reshard_after_forward));
    if (document && p.hosts > 0)
        json_object_set_new(document, "hosts", json_integer(p.hosts));
    if (document && p.ranks_per_host > 0)
        json_object_set_new(document, "ranks_per_host", json_integer(p.ranks_per_host));
    if (document && p.schedule)
        json_object_set_new(document, "schedule", json_string(clv_plan_schedule_name(p.schedule)));
    if (document && p.no_sync)
        json_object_set_new(document, "no_sync", json_true());
    if (document && p.rules.n_optimizer > 0)
        json_object_set_new(document, "optimizer", axes_json(p.rules.optimizer, p.rules.n_optimizer, &p.mesh));
    if (document && p.rules.virtual_stages > 1)
        json_object_set_new(document, "virtual_stages", json_integer(p.rules.virtual_stages));
    if (document && p.rules.n_stage_layers > 0)
        json_object_set_new(document, "stages", stages_json(&p.rules));
    char *text = document ? json_dumps(document, JSON_INDENT(1)) : NULL;
    json_decref(document);
    if (!text)
        return clv_fail_memory(err, path, sizeof p);
    clv_status status = clv_file_write(path, text, strlen(text), err);
    free(text);
    return status;
}

/* ---- reading ---- */

static clv_status read_reshard(clv_saved_plan *plan, const json_t *document, const char *where, clv_error *err)
{
    const json_t *given = json_object_get(document, "reshard_after_forward");
    const char *name = given ? json_string_value(given) : clv_reshard_after_forward_name(CLV_RESHARD_WEIGHTS);
    if (!name)
        return clv_fail(err, CLV_EFORMAT,
                        "%s: \"reshard_after_forward\" is no text; valid: \"weights\", \"all\", \"none\"", where);
    for (clv_reshard_after_forward r = CLV_RESHARD_WEIGHTS; r <= CLV_RESHARD_NONE; r++)
        if (strcmp(name, clv_reshard_after_forward_name(r)) == 0) {
            plan->reshard_after_forward = r;
            return CLV_OK;
        }
    return clv_fail(err, CLV_EFORMAT, "%s: \"reshard_after_forward\" is \"%.64s\"; valid: weights, all, none", where,
                    name);
}

static clv_status read_schedule(clv_saved_plan *plan, const json_t *document, const char *where, clv_error *err)
{
    const char *name = clv_plan_schedule_name(CLV_SCHEDULE_DEFAULT);
    CLV_TRY(clv_json_get_string(&name, document, "schedule", CLV_JSON_OPTIONAL, where, err));
    for (clv_plan_schedule s = CLV_SCHEDULE_DEFAULT; s <= CLV_SCHEDULE_ZERO_BUBBLE; s++)
        if (strcmp(name, clv_plan_schedule_name(s)) == 0) {
            plan->schedule = s;
            return CLV_OK;
        }
    return clv_fail(err, CLV_EFORMAT, "%s: \"schedule\" is \"%.64s\"; valid: gpipe, 1f1b, interleaved, zero-bubble",
                    where, name);
}

static clv_status read_keys(clv_saved_plan *plan, const json_t *document, const char *where, clv_error *err)
{
    const char *mesh = NULL, *recompute = clv_recompute_name(CLV_RECOMPUTE_NONE);
    clv_error why = {0};
    plan->accumulate = 1;
    CLV_TRY(clv_json_get_string(&mesh, document, "mesh", CLV_JSON_OPTIONAL, where, err));
    CLV_TRY(clv_json_get_int(&plan->accumulate, document, "accumulate", CLV_JSON_OPTIONAL, 1, MOST_MICROBATCHES, where,
                             err));
    CLV_TRY(clv_json_get_string(&recompute, document, "recompute", CLV_JSON_OPTIONAL, where, err));
    CLV_TRY(read_reshard(plan, document, where, err));
    CLV_TRY(read_schedule(plan, document, where, err));
    CLV_TRY(clv_json_get_bool(&plan->no_sync, document, "no_sync", CLV_JSON_OPTIONAL, where, err));
    CLV_TRY(clv_json_get_int(&plan->hosts, document, "hosts", CLV_JSON_OPTIONAL, 0, CLV_PLAN_MAX_RANKS, where, err));
    CLV_TRY(clv_json_get_int(&plan->ranks_per_host, document, "ranks_per_host", CLV_JSON_OPTIONAL, 0,
                             CLV_PLAN_MAX_RANKS, where, err));
    if (clv_recompute_parse(&plan->recompute, recompute, &why) != CLV_OK ||
        (mesh && clv_mesh_parse(&plan->mesh, mesh, &why) != CLV_OK))
        return clv_fail(err, CLV_EFORMAT, "%s: %s", where, why.message);
    plan->has_mesh = mesh != NULL;
    return CLV_OK;
}

clv_status clv_saved_plan_read(clv_saved_plan *out, const char *path, const clv_mesh *mesh, clv_error *err)
{
    static const char call[] = "clv_saved_plan_read";
    clv_saved_plan plan = {0};
    json_t *document;
    char *text;
    size_t size;
    CLV_TRY(clv_require(out && path, call, "out and a path", err));
    CLV_TRY(clv_file_read(&text, &size, path, FILE_LIMIT, err));
    clv_json_blank_comments(text, size);
    clv_status status = clv_json_parse(&document, text, size, CLV_JSON_KEYS_UNIQUE, path, err);
    free(text);
    CLV_TRY(status);
    status = clv_json_check_object(document, path, err);
    if (status == CLV_OK)
        status = read_keys(&plan, document, path, err);
    json_decref(document);
    CLV_TRY(status);
    if (mesh)
        plan.mesh = *mesh;
    CLV_TRY(clv_axis_rules_read(&plan.rules, path, &plan.mesh, err));
    return clv_struct_copy_out(out, sizeof plan, sizeof plan, &plan, call, err);
}
