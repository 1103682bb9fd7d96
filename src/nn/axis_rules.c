/* axis_rules.c - logical axis rules: validation, preset selection, and layouts from dimension names. */
#include "cleave/rules.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "nn/axis_rules_presets.h"
#include "nn/logical_axis.h"
#include "tensor/parse_print.h"

/* ---- names ---- */

bool clv_logical_axis_is_builtin(clv_logical_axis name)
{
    static const clv_logical_axis known[] = {CLV_BATCH, CLV_SEQ,      CLV_EMBED,    CLV_EMBED_KERNEL, CLV_HIDDEN,
                                             CLV_HEADS, CLV_KV_HEADS, CLV_HEAD_DIM, CLV_VOCAB,        CLV_LAYERS};
    bool is = false;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        is = is || clv_logical_axis_equal(name, known[i]);
    return is;
}

/* CLV_EINVAL unless it is a name, or unnamed. */
static clv_status check_axis(clv_logical_axis name, clv_error *err)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", more[] = "0123456789_-.";
    const char *at = name;
    while (at && (strchr(letters, *at) || (at > name && strchr(more, *at))) && *at)
        at++;
    if (!at || (at > name && *at == '\0' && at - name < CLV_LOGICAL_AXIS_SIZE))
        return CLV_OK;
    return clv_fail(err, CLV_EINVAL,
                    "'%.80s' is no name of a logical axis; valid: 1 to %d letters, digits, '_', '-' and '.', a letter "
                    "first",
                    name, CLV_LOGICAL_AXIS_SIZE - 1);
}

/* ---- rules one by one ---- */

static bool counts_in_range(const clv_axis_rules *rules)
{
    return rules->n >= 0 && rules->n <= CLV_MAX_RULES && rules->n_optimizer >= 0 &&
           rules->n_optimizer <= CLV_MAX_RULE_AXES;
}

static clv_status check_axes(const int *axis, int n, const char *of, const clv_mesh *mesh, clv_error *err)
{
    if (n < 0 || n > CLV_MAX_RULE_AXES)
        return clv_fail(err, CLV_EINVAL, "rules: %d axes of '%s'; valid: 0 to %d", n, of, CLV_MAX_RULE_AXES);
    for (int i = 0; i < n; i++)
        if (axis[i] < 0 || axis[i] >= mesh->n_axes)
            return clv_fail(err, CLV_EAXIS, "rules: axis index %d of '%s'; the mesh has %d axes", axis[i], of,
                            mesh->n_axes);
    return CLV_OK;
}

/* Rules are a struct that anyone may write into. NULL: none. */
static clv_status check_rules(const clv_axis_rules *rules, const clv_mesh *mesh, clv_error *err)
{
    CLV_TRY(clv_mesh_check(mesh, err));
    if (rules && !counts_in_range(rules))
        return clv_fail(err, CLV_EINVAL, "rules: %d of them, and %d optimizer axes; valid: 0 to %d, and to %d",
                        rules->n, rules->n_optimizer, CLV_MAX_RULES, CLV_MAX_RULE_AXES);
    if (rules && !memchr(rules->name, '\0', sizeof rules->name))
        return clv_fail(err, CLV_EINVAL, "rules: their name has no end");
    for (int r = 0; rules && r < rules->n; r++) {
        const clv_axis_rule *rule = &rules->rule[r];
        if (!memchr(rule->name, '\0', sizeof rule->name))
            return clv_fail(err, CLV_EINVAL, "rules: the name of rule %d has no end", r);
        CLV_TRY(check_axes(rule->axis, rule->n_axes, rule->name, mesh, err));
    }
    return rules ? check_axes(rules->optimizer, rules->n_optimizer, "optimizer", mesh, err) : CLV_OK;
}

clv_status clv_axis_rules_append(clv_axis_rules *rules, clv_logical_axis name, const int *axis, int n, clv_error *err)
{
    CLV_TRY(check_axis(name, err));
    if (clv_logical_axis_equal(name, CLV_LAYERS) && n > 0)
        return clv_fail(err, CLV_EUNSUPPORTED, "layers are not stacked, so 'layers' takes no axis; valid: null");
    if (rules->n >= CLV_MAX_RULES)
        return clv_fail(err, CLV_ELIMIT, "there are %d rules already; valid: at most %d", rules->n, CLV_MAX_RULES);
    clv_axis_rule *rule = &rules->rule[rules->n++];
    *rule = (clv_axis_rule){.n_axes = n};
    snprintf(rule->name, sizeof rule->name, "%s", name);
    for (int i = 0; i < n; i++)
        rule->axis[i] = axis[i];
    return CLV_OK;
}

/* The axes that a text names, [CLV_MAX_RULE_AXES]. */
static clv_status parse_axes(int *out, int *n, const char *axes, const clv_mesh *mesh, clv_error *err)
{
    char names[CLV_MESH_TEXT];
    *n = 0;
    while (axes && *axes) {
        int length = (int)strcspn(axes, ","), axis = clv_mesh_find_name(mesh, axes, length);
        if (axis < 0) {
            clv_mesh_names(names, sizeof names, mesh);
            return clv_fail(err, CLV_EAXIS, "the mesh has no axis '%.*s'; valid: %s", length, axes, names);
        }
        for (int i = 0; i < *n; i++)
            if (out[i] == axis)
                return clv_fail(err, CLV_EAXIS, "axis '%s' twice; each splits a tensor once", mesh->axis[axis].name);
        out[(*n)++] = axis;
        axes += length + (axes[length] == ',');
    }
    return CLV_OK;
}

clv_status clv_axis_rules_add(clv_axis_rules *rules, clv_logical_axis name, const char *axes, const clv_mesh *mesh,
                              clv_error *err)
{
    int axis[CLV_MAX_RULE_AXES], n;
    CLV_TRY(clv_require(rules && name && mesh, "clv_axis_rules_add", "rules, a name and a mesh", err));
    CLV_TRY(check_rules(rules, mesh, err));
    CLV_TRY(parse_axes(axis, &n, axes, mesh, err));
    return clv_axis_rules_append(rules, name, axis, n, err);
}

/* ---- presets ---- */

static void add_preset_rules(clv_axis_rules *rules, const clv_preset *preset, const clv_mesh *mesh)
{
    for (int i = 0; i < CLV_PRESET_RULES && preset->rule[i].axis; i++) {
        int axis = clv_mesh_find_name(mesh, preset->rule[i].axis, (int)strlen(preset->rule[i].axis));
        if (axis >= 0)
            clv_axis_rules_append(rules, preset->rule[i].name, &axis, 1, NULL);
    }
    int data = preset->splits_optimizer ? clv_mesh_find_name(mesh, "data", 4) : -1;
    if (data >= 0)
        rules->optimizer[rules->n_optimizer++] = data;
}

static bool uses(const clv_axis_rules *rules, int axis)
{
    for (int r = 0; r < rules->n; r++)
        for (int i = 0; i < rules->rule[r].n_axes; i++)
            if (rules->rule[r].axis[i] == axis)
                return true;
    return false;
}

/* Whether the mesh has what the preset needs, and the preset uses every axis of the mesh. */
static bool fits(const clv_preset *preset, const clv_mesh *mesh)
{
    clv_axis_rules rules = {0};
    add_preset_rules(&rules, preset, mesh);
    for (int a = 0; a < mesh->n_axes; a++)
        if (!uses(&rules, a))
            return false;
    for (int i = 0; i < CLV_PRESET_NEEDS && preset->needs[i]; i++)
        if (clv_mesh_find_name(mesh, preset->needs[i], (int)strlen(preset->needs[i])) < 0)
            return false;
    return true;
}

/* Axes that presets know, each once: "data, model, X, Y". */
static void list_preset_axes(clv_text *list)
{
    const char *seen[CLV_MAX_AXES];
    int n = 0;
    for (int p = 0; p < clv_n_presets; p++)
        for (int i = 0; i < CLV_PRESET_RULES && clv_presets[p].rule[i].axis; i++) {
            const char *axis = clv_presets[p].rule[i].axis;
            int k = 0;
            while (k < n && strcmp(seen[k], axis) != 0)
                k++;
            if (k < n || n == CLV_MAX_AXES)
                continue;
            seen[n++] = axis;
            clv_text_add(list, "%s%s", n > 1 ? ", " : "", axis);
        }
}

static clv_status refuse(const char *name, const clv_mesh *mesh, clv_error *err)
{
    char text[CLV_MESH_TEXT], axes[CLV_MESH_TEXT], fitting[256];
    clv_text list = {.out = fitting, .size = sizeof fitting};
    for (int p = 0; p < clv_n_presets; p++)
        if (fits(&clv_presets[p], mesh))
            clv_text_add(&list, "%s%s", list.length ? ", " : "", clv_presets[p].name);
    bool any = list.length > 0;
    if (!any)
        list_preset_axes(&list);
    clv_text_finish(&list);
    clv_mesh_print(text, sizeof text, mesh);
    clv_mesh_names(axes, sizeof axes, mesh);
    return clv_fail(
        err, CLV_EAXIS, "%s%s%s not fit the mesh '%s' (axes %s); %s%s", name ? "the rules '" : "",
        name ? name : "the default rules", name ? "' do" : " do", text, axes,
        any ? "presets that fit: " : "no preset fits: write a file of rules, or name axes as presets do: ", fitting);
}

static clv_status find_preset(const clv_preset **out, const char *name, clv_error *err)
{
    char names[256];
    clv_text list = {.out = names, .size = sizeof names};
    for (int p = 0; p < clv_n_presets; p++) {
        if (strcmp(clv_presets[p].name, name) == 0) {
            *out = &clv_presets[p];
            return CLV_OK;
        }
        clv_text_add(&list, "%s%s", p ? ", " : "", clv_presets[p].name);
    }
    clv_text_finish(&list);
    return clv_fail(err, CLV_EINVAL, "no preset is called '%s'; valid: %s, or a file of rules", name, names);
}

clv_status clv_axis_rules_preset(clv_axis_rules *out, const char *name, const clv_mesh *mesh, clv_error *err)
{
    CLV_TRY(clv_require(out && mesh, "clv_axis_rules_preset", "out and a mesh", err));
    CLV_TRY(clv_mesh_check(mesh, err));
    const clv_preset *preset = &clv_default_preset;
    if (name)
        CLV_TRY(find_preset(&preset, name, err));
    if (!fits(preset, mesh))
        return refuse(name, mesh, err);
    *out = (clv_axis_rules){0};
    snprintf(out->name, sizeof out->name, "%s", preset->name);
    add_preset_rules(out, preset, mesh);
    return CLV_OK;
}

const char *clv_axis_rules_preset_name(int i)
{
    return i >= 0 && i < clv_n_presets ? clv_presets[i].name : NULL;
}

clv_axis_rules clv_axis_rules_without(const clv_axis_rules *rules, clv_logical_axis name)
{
    if (!rules || !counts_in_range(rules))
        return (clv_axis_rules){0};
    clv_axis_rules kept = *rules;
    kept.n = 0;
    for (int r = 0; r < rules->n; r++)
        if (!clv_logical_axis_equal(rules->rule[r].name, name))
            kept.rule[kept.n++] = rules->rule[r];
    return kept;
}

/* ---- layouts ---- */

static uint32_t axes_of(const clv_axis_rule *rule)
{
    uint32_t mask = 0;
    for (int i = 0; i < rule->n_axes; i++)
        mask |= 1u << rule->axis[i];
    return mask;
}

static clv_status split_dim(clv_layout *layout, const clv_mesh *mesh, int d, const int *axis, int n, clv_error *err)
{
    clv_subaxis whole[CLV_MAX_RULE_AXES];
    for (int i = 0; i < n; i++)
        whole[i] = clv_mesh_whole_axis(mesh, axis[i]);
    return clv_layout_set_dim(layout, mesh, d, whole, n, 1, err);
}

clv_status clv_axis_rules_layout(clv_layout *out, const clv_axis_rules *rules, const clv_mesh *mesh, int rank,
                                 const clv_logical_axis *names, clv_error *err)
{
    CLV_TRY(clv_require(out && mesh && (names || rank <= 0 || !rules), "clv_axis_rules_layout", "out, a mesh and names",
                        err));
    CLV_TRY(check_rules(rules, mesh, err));
    bool settled[CLV_MAX_RANK] = {false};
    uint32_t used = 0;
    *out = clv_layout_replicated(rank);
    for (int d = 0; names && d < rank; d++)
        CLV_TRY(check_axis(names[d], err));
    for (int r = 0; rules && r < rules->n; r++) {
        const clv_axis_rule *rule = &rules->rule[r];
        int d = 0;
        while (d < rank && (settled[d] || !clv_logical_axis_equal(names[d], rule->name)))
            d++;
        if (d == rank || (axes_of(rule) & used))
            continue;
        settled[d] = true;
        used |= axes_of(rule);
        CLV_TRY(split_dim(out, mesh, d, rule->axis, rule->n_axes, err));
    }
    return CLV_OK;
}

clv_status clv_axis_rules_optimizer_layout(clv_layout *out, const clv_axis_rules *rules, const clv_mesh *mesh,
                                           const clv_layout *parameter, const int64_t *shape, clv_error *err)
{
    CLV_TRY(clv_require(out && mesh && parameter && shape, "clv_axis_rules_optimizer_layout",
                        "out, a mesh, a layout and a shape", err));
    CLV_TRY(check_rules(rules, mesh, err));
    CLV_TRY(clv_layout_check(parameter, mesh, shape, err));
    *out = *parameter;
    for (int i = 0; rules && i < rules->n_optimizer; i++) {
        clv_subaxis axis = clv_mesh_whole_axis(mesh, rules->optimizer[i]);
        int largest = -1;
        int64_t most = 0;
        for (int d = 0; d < out->rank; d++) {
            int64_t units = shape[d] / out->alignment[d] / clv_layout_block_count(out, d);
            if (units > most) {
                most = units;
                largest = d;
            }
        }
        if (largest >= 0 && axis.size > 1 && !clv_layout_uses_subaxis(out, axis))
            CLV_TRY(clv_layout_shard_dim(out, mesh, largest, axis, err));
    }
    return CLV_OK;
}
