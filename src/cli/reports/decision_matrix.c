/* decision_matrix.c - `cleave plan --matrix`: TP degree x sequence parallelism x data parallelism, with prices and
 * reasons.
 *
 * Each cell is a preset, planned with its fastest options; the second list has the textbook's equations: 16 bytes of
 * state for each 16-bit parameter (Rajbhandari et al. 2020, arXiv:1910.02054), activations of a layer (Korthikanti et
 * al. 2022, arXiv:2205.05198, without the attention matrices), and the forward all-reduces of a layer.
 */
#include "cli/reports/decision_matrix.h"

#include <stdio.h>
#include <string.h>

#include "cleave/model.h"
#include "cli/reports/plan_search_table.h"

/* What is beside tensor parallelism, with and without sequence parallelism. */
static const struct cell {
    const char *rules, *data;
    bool tp, sp;
} cells[] = {
    {"dp", "DP", false, false},
    {"zero1", "ZeRO-1", false, false},
    {"fsdp", "FSDP", false, false},
    {"megatron", "DP", true, false},
    {"zero1", "ZeRO-1", true, false},
    {"megatron-sp", "DP", true, true},
    {"zero1+megatron-sp", "ZeRO-1", true, true},
    {"fsdp+megatron-sp", "FSDP", true, true},
};

enum { CELLS = sizeof cells / sizeof cells[0] };

static int64_t axis_size(const clv_mesh *mesh, const char *name)
{
    for (int a = 0; a < mesh->n_axes; a++)
        if (strcmp(mesh->axis[a].name, name) == 0)
            return mesh->axis[a].size;
    return 1;
}

/* The candidate of a cell; false: there is none. */
static bool find_cell(clv_plan_candidate *c, const clv_plan_search *found, const struct cell *cell, int64_t tp)
{
    for (int i = 0; i < clv_plan_search_count(found); i++) {
        clv_plan_search_at(found, i, c, NULL);
        if (strcmp(c->rules->name, cell->rules) == 0 && axis_size(c->mesh, "model") == tp && cell->tp == (tp > 1))
            return true;
    }
    return false;
}

/* The planner's reason, after what the degree means by itself. */
static void add_reason(clv_table *t, const clv_plan_candidate *c, int64_t tp, const clv_model_info *model,
                       const clv_machine_info *machine)
{
    char text[192];
    snprintf(text, sizeof text, "%s%s%s", tp > machine->ranks_per_host ? "TP spans hosts; " : "",
             tp > model->kv_heads ? "KV heads replicated; " : "", c->why[0] ? c->why : "fastest");
    clv_table_text(t, "why", text);
}

static void add_cell(clv_table *t, const clv_plan_candidate *c, const struct cell *cell, int64_t tp,
                     const clv_model_info *model, const clv_machine_info *machine, bool json)
{
    clv_table_begin_row(t);
    clv_table_int(t, "tp", tp);
    clv_table_text(t, "sp", cell->sp ? "SP" : "");
    clv_table_text(t, "data", cell->data);
    clv_table_bool(t, "fits", c->fits);
    clv_table_bytes(t, "memory", c->memory);
    if (c->fits) {
        clv_table_seconds(t, "seconds", c->seconds);
        clv_table_fraction(t, "mfu", c->mfu);
        clv_table_fraction(t, "comm_share", c->comm_share);
    } else {
        clv_table_null(t, "seconds");
        clv_table_null(t, "mfu");
        clv_table_null(t, "comm_share");
    }
    clv_plan_candidate_add_options(t, c, false, json);
    add_reason(t, c, tp, model, machine);
}

/* Bytes for a microbatch of one sequence, in 16 bits. */
static void add_equations(clv_table *t, int64_t tp, int64_t devices, int64_t seq, const clv_model_info *model,
                          const clv_machine_info *machine)
{
    const double p = (double)model->parameters, n = (double)devices, k = (double)tp;
    const double sbh = (double)seq * (double)model->hidden;
    const clv_machine_link *link = tp > machine->ranks_per_host ? &machine->network : &machine->host;
    clv_table_begin_row(t);
    clv_table_int(t, "tp", tp);
    clv_table_bytes(t, "state_dp", 16 * p / k);
    clv_table_bytes(t, "state_zero1", 4 * p / k + 12 * p / n);
    clv_table_bytes(t, "state_fsdp", 16 * p / n);
    clv_table_bytes(t, "layer_tp", sbh * (8 + 24 / k));
    clv_table_bytes(t, "layer_sp", 32 * sbh / k);
    clv_table_seconds(t, "all_reduces",
                      tp == 1 ? 0 : 2 * (link->alpha_s + 2 * (k - 1) / k * 2 * sbh / link->bytes_per_s));
}

clv_status clv_decision_matrix_new(clv_table **out, const clv_plan_search *found, const clv_plan_options *base,
                                   const clv_machine_info *machine, bool json, clv_error *err)
{
    clv_model *opened;
    clv_model_info model = {.size = sizeof model};
    clv_plan_candidate c = {.size = sizeof c};
    const clv_model_options options = {.size = sizeof options, .config_only = true};
    CLV_TRY(clv_model_open(&opened, base->model, &options, err));
    clv_status status = clv_model_get_info(opened, &model, err);
    clv_model_close(opened);
    if (status != CLV_OK)
        return status;
    clv_plan_search_at(found, 0, &c, NULL);
    const int64_t devices = clv_mesh_rank_count(c.mesh);
    clv_table *t = clv_table_new("cells");
    for (int64_t tp = 1; tp <= devices; tp++)
        for (int i = 0; i < CELLS; i++)
            if (find_cell(&c, found, &cells[i], tp))
                add_cell(t, &c, &cells[i], tp, &model, machine, json);
    clv_table_begin_list(t, "equations");
    clv_table_set_list_title(
        t, "the textbook's equations, in 16 bits: state of a rank with DP, ZeRO-1 and FSDP; activations of a "
           "layer and sequence with TP, and with SP; seconds of a layer's forward all-reduces");
    for (int64_t tp = 1; tp <= devices && tp <= model.heads; tp++)
        if (devices % tp == 0)
            add_equations(t, tp, devices, base->seq, &model, machine);
    *out = t;
    return CLV_OK;
}
