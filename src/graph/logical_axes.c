/* logical_axes.c - records logical axis names of dimensions, and reports rules that match none of them. */
#include <string.h>

#include "base/error.h"
#include "tensor/parse_print.h"
#include "graph/graph.h"

static bool has_axis(const clv_graph *graph, const char *name)
{
    bool has = false;
    for (int i = 0; i < graph->n_logical_axes; i++)
        has = has || strcmp(graph->logical_axes[i], name) == 0;
    return has;
}

void clv_graph_record_logical_axis(clv_graph *graph, const char *name)
{
    if (!clv_graph_ok(graph) || has_axis(graph, name))
        return;
    const char *kept = clv_arena_string(graph->arena, name);
    if (!kept || clv_arena_grow(graph->arena, &graph->logical_axes, &graph->logical_axis_capacity,
                                graph->n_logical_axes, sizeof *graph->logical_axes) != 0)
        clv_graph_fail(graph, CLV_ENOMEM, "out of memory for the logical axis '%s'", name);
    else
        graph->logical_axes[graph->n_logical_axes++] = kept;
}

void clv_graph_record_axis_rule(clv_graph *graph, const char *rules, int index, const char *name)
{
    for (int i = 0; clv_graph_ok(graph) && i < graph->n_axis_rules; i++)
        if (strcmp(graph->axis_rules[i].name, name) == 0)
            return;
    if (!clv_graph_ok(graph))
        return;
    clv_used_axis_rule noted = {clv_arena_string(graph->arena, name), clv_arena_string(graph->arena, rules), index};
    if (!noted.name || !noted.rules ||
        clv_arena_grow(graph->arena, &graph->axis_rules, &graph->axis_rule_capacity, graph->n_axis_rules,
                       sizeof noted) != 0)
        clv_graph_fail(graph, CLV_ENOMEM, "out of memory for the rule of '%s'", name);
    else
        graph->axis_rules[graph->n_axis_rules++] = noted;
}

clv_status clv_graph_check_rules(const clv_graph *graph, clv_error *err)
{
    char names[256];
    for (int r = 0; r < graph->n_axis_rules; r++) {
        const clv_used_axis_rule *rule = &graph->axis_rules[r];
        if (has_axis(graph, rule->name))
            continue;
        clv_text list = {.out = names, .size = sizeof names};
        for (int i = 0; i < graph->n_logical_axes; i++)
            clv_text_add(&list, "%s%s", i ? ", " : "", graph->logical_axes[i]);
        clv_text_finish(&list);
        if (strcmp(rule->name, "expert") == 0)
            return clv_fail(
                err, CLV_EINVAL,
                "%s%srule %d splits the experts of a mixture, and this model has none; valid: a mesh without "
                "an axis of experts",
                rule->rules, rule->rules[0] ? ": " : "", rule->index + 1);
        return clv_fail(err, CLV_EINVAL, "%s%srule %d: no tensor has the logical axis '%s'; valid: %s", rule->rules,
                        rule->rules[0] ? ": " : "", rule->index + 1, rule->name, names);
    }
    return CLV_OK;
}
