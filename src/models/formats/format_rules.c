/* format_rules.c - rules from what tensors say of their names, and the roles of mesh axes that rules give. */
#include <stdio.h>

#include "models/formats/formats.h"

/* In the order of presets: where a tensor has two of them, the first one takes the axis. */
static const clv_logical_axis order[] = {CLV_EXPERT, CLV_BATCH, CLV_HEADS,        CLV_KV_HEADS, CLV_MLP,
                                         CLV_VOCAB,  CLV_SEQ,   CLV_EMBED_KERNEL, CLV_EMBED};
enum { N_ORDER = sizeof order / sizeof *order };

int clv_format_axes(const int **out, const clv_axis_rules *rules, clv_logical_axis name)
{
    for (int r = 0; r < rules->n; r++)
        if (clv_logical_axis_equal(rules->rule[r].name, name)) {
            *out = rules->rule[r].axis;
            return rules->rule[r].n_axes;
        }
    return 0;
}

static bool same_axes(const int *a, int n_a, const int *b, int n_b)
{
    return n_a == n_b && (n_a == 0 || memcmp(a, b, (size_t)n_a * sizeof *a) == 0);
}

static void print_axes(char *out, size_t size, const int *axis, int n, const clv_mesh *mesh)
{
    size_t used = 0;
    out[0] = '\0';
    for (int i = 0; i < n && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%s", i ? "," : "", mesh->axis[axis[i]].name);
}

clv_status clv_format_note(clv_axis_rules *rules, clv_logical_axis name, const int *axis, int n, const char *tensor,
                           const clv_mesh *mesh, clv_error *err)
{
    const int *before;
    const int n_before = clv_format_axes(&before, rules, name);
    char here[CLV_MESH_TEXT], there[CLV_MESH_TEXT];
    if (n_before == 0)
        return clv_axis_rules_append(rules, name, axis, n, err);
    if (same_axes(before, n_before, axis, n))
        return CLV_OK;
    print_axes(here, sizeof here, axis, n, mesh);
    print_axes(there, sizeof there, before, n_before, mesh);
    return clv_fail(err, CLV_EUNSUPPORTED, "%s: '%s' is split over %s here and over %s elsewhere; rules give one",
                    tensor, name, here, there);
}

/* Whether each name is split alike, by its first rule, and the optimizer. */
static bool same_rules(const clv_axis_rules *a, const clv_axis_rules *b)
{
    const int *of_a = NULL, *of_b = NULL;
    for (int i = 0; i < N_ORDER; i++) {
        const int n_a = clv_format_axes(&of_a, a, order[i]), n_b = clv_format_axes(&of_b, b, order[i]);
        if (order[i][0] != 'e' || order[i][1] != 'x') /* models without experts say nothing of them */
            if (!same_axes(of_a, n_a, of_b, n_b))
                return false;
    }
    return same_axes(a->optimizer, a->n_optimizer, b->optimizer, b->n_optimizer);
}

void clv_format_settle(clv_axis_rules *rules, const clv_mesh *mesh)
{
    clv_axis_rules sorted = {.name = "imported", .n_optimizer = rules->n_optimizer}, preset;
    memcpy(sorted.optimizer, rules->optimizer, sizeof sorted.optimizer);
    for (int i = 0; i < N_ORDER; i++)
        for (int r = 0; r < rules->n; r++)
            if (clv_logical_axis_equal(rules->rule[r].name, order[i]))
                sorted.rule[sorted.n++] = rules->rule[r];
    *rules = sorted;
    for (int i = 0; clv_axis_rules_preset_name(i); i++)
        if (clv_axis_rules_preset(&preset, clv_axis_rules_preset_name(i), mesh, NULL) == CLV_OK &&
            same_rules(rules, &preset)) {
            *rules = preset;
            return;
        }
}

/* ---- roles ---- */

static bool is_planned_axis(const char *name)
{
    return strcmp(name, "pipe") == 0 || strcmp(name, "context") == 0 || strcmp(name, "expert") == 0;
}

static bool has_axis(const clv_axis_rules *rules, clv_logical_axis name, int axis)
{
    const int *of;
    const int n = clv_format_axes(&of, rules, name);
    for (int i = 0; i < n; i++)
        if (of[i] == axis)
            return true;
    return false;
}

static bool splits_optimizer(const clv_axis_rules *rules, int axis)
{
    for (int i = 0; i < rules->n_optimizer; i++)
        if (rules->optimizer[i] == axis)
            return true;
    return false;
}

/* Why an axis has no role; NULL: it has one, which is set. */
static const char *give_role(clv_format_roles *roles, const clv_axis_rules *rules, int axis)
{
    const bool heads = has_axis(rules, CLV_HEADS, axis), mlp = has_axis(rules, CLV_MLP, axis),
               kv_heads = has_axis(rules, CLV_KV_HEADS, axis), batch = has_axis(rules, CLV_BATCH, axis),
               kernel = has_axis(rules, CLV_EMBED_KERNEL, axis), zero = splits_optimizer(rules, axis);
    if (has_axis(rules, CLV_EMBED, axis) || (kernel && !batch) || (kernel && mlp))
        return "splits the width of activations or weights in place: 2-D weights";
    if (heads || mlp || kv_heads) {
        if (!heads || !mlp || !kv_heads || batch || zero)
            return "splits some of heads, KV heads and feed-forward width, or the batch beside them; all three alone "
                   "are needed";
        if (roles->tensor >= 0)
            return "is a second axis of tensor parallelism";
        roles->tensor = axis;
        roles->sequence = has_axis(rules, CLV_SEQ, axis);
        roles->vocab = has_axis(rules, CLV_VOCAB, axis);
        return NULL;
    }
    if (!batch || has_axis(rules, CLV_SEQ, axis) || has_axis(rules, CLV_VOCAB, axis))
        return "splits neither the batch alone nor layers";
    if (kernel && zero)
        return "splits weights and, apart from them, optimizer state";
    int *role = kernel || zero ? &roles->shard : &roles->replicate;
    if (*role >= 0)
        return "is a second axis of the same kind of data parallelism";
    *role = axis;
    roles->gathers = roles->gathers || kernel;
    return NULL;
}

clv_status clv_format_roles_of(clv_format_roles *out, const clv_axis_rules *rules, const clv_mesh *mesh,
                               const char *format, clv_error *err)
{
    *out = (clv_format_roles){.tensor = -1, .shard = -1, .replicate = -1};
    for (int a = 0; a < mesh->n_axes; a++) {
        const char *fault =
            mesh->axis[a].size == 1 || is_planned_axis(mesh->axis[a].name) ? NULL : give_role(out, rules, a);
        if (fault)
            return clv_fail(err, CLV_EUNSUPPORTED, "%s has no such layout: axis '%s' %s", format, mesh->axis[a].name,
                            fault);
    }
    return CLV_OK;
}

static void add(clv_axis_rules *rules, clv_logical_axis name, int axis)
{
    clv_axis_rule *rule = rules->rule;
    while (rule < rules->rule + rules->n && strcmp(rule->name, name) != 0)
        rule++;
    if (rule == rules->rule + rules->n) {
        *rule = (clv_axis_rule){0};
        snprintf(rule->name, sizeof rule->name, "%s", name);
        rules->n++;
    }
    rule->axis[rule->n_axes++] = axis;
}

void clv_format_rules_of_roles(clv_axis_rules *out, const clv_format_roles *roles, const clv_mesh *mesh)
{
    *out = (clv_axis_rules){0};
    for (int a = 0; a < mesh->n_axes; a++) /* major to minor */
        if (a == roles->shard || a == roles->replicate)
            add(out, CLV_BATCH, a);
    if (roles->tensor >= 0) {
        add(out, CLV_HEADS, roles->tensor);
        add(out, CLV_KV_HEADS, roles->tensor);
        add(out, CLV_MLP, roles->tensor);
        if (roles->vocab)
            add(out, CLV_VOCAB, roles->tensor);
        if (roles->sequence)
            add(out, CLV_SEQ, roles->tensor);
    }
    if (roles->shard >= 0 && roles->gathers)
        add(out, CLV_EMBED_KERNEL, roles->shard);
    else if (roles->shard >= 0)
        out->optimizer[out->n_optimizer++] = roles->shard;
    clv_format_settle(out, mesh);
}
