/* axis_rules.c - logical axis rules: validation, presets, and layouts from dimension names. */
#include <stdio.h>

#include "base/error.h"
#include "graph/graph.h"
#include "nn/axis_rules.h"
#include "tensor/parse_print.h"

/* ---- names ---- */

bool clv_logical_axis_is_builtin(clv_logical_axis name)
{
    static const clv_logical_axis known[] = {CLV_BATCH, CLV_SEQ,    CLV_EMBED,    CLV_EMBED_KERNEL,
                                             CLV_MLP,   CLV_HEADS,  CLV_KV_HEADS, CLV_HEAD_DIM,
                                             CLV_VOCAB, CLV_LAYERS, CLV_CACHE_SEQ};
    bool is = false;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        is = is || clv_logical_axis_equal(name, known[i]);
    return is;
}

/* CLV_EINVAL unless the name is valid or CLV_UNNAMED. */
static clv_status check_name(clv_logical_axis name, clv_error *err)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", more[] = "0123456789_-.";
    const char *at = name;
    while (at && (strchr(letters, *at) || (at > name && strchr(more, *at))) && *at)
        at++;
    if (!at || (at > name && *at == '\0' && at - name < CLV_LOGICAL_AXIS_SIZE))
        return CLV_OK;
    return clv_fail(err, CLV_EINVAL,
                    "'%.80s' is not a valid logical axis name; valid: 1 to %d letters, digits, '_', '-' and '.', a "
                    "letter first",
                    name, CLV_LOGICAL_AXIS_SIZE - 1);
}

/* ---- validation ---- */

static bool counts_in_range(const clv_axis_rules *rules)
{
    return rules->n >= 0 && rules->n <= CLV_MAX_RULES && rules->n_optimizer >= 0 &&
           rules->n_optimizer <= CLV_MAX_RULE_AXES;
}

static clv_status check_axes(const int *axis, int n, const char *name, const clv_mesh *mesh, clv_error *err)
{
    if (n < 0 || n > CLV_MAX_RULE_AXES)
        return clv_fail(err, CLV_EINVAL, "rules: %d axes of '%s'; valid: 0 to %d", n, name, CLV_MAX_RULE_AXES);
    for (int i = 0; i < n; i++)
        if (axis[i] < 0 || axis[i] >= mesh->n_axes)
            return clv_fail(err, CLV_EAXIS, "rules: axis index %d of '%s'; the mesh has %d axes", axis[i], name,
                            mesh->n_axes);
    return CLV_OK;
}

int clv_axis_rules_stage_axis(const clv_axis_rules *rules)
{
    for (int r = 0; rules && r < rules->n; r++)
        if (clv_logical_axis_equal(rules->rule[r].name, CLV_LAYERS))
            return rules->rule[r].n_axes > 0 ? rules->rule[r].axis[0] : -1;
    return -1;
}

/* Checks virtual_stages, of which 0 is one, and stage_layers. */
static clv_status check_stages(const clv_axis_rules *rules, const clv_mesh *mesh, clv_error *err)
{
    const int axis = clv_axis_rules_stage_axis(rules), n = rules->n_stage_layers;
    if (axis < 0)
        return clv_fail(err, CLV_EAXIS,
                        "layers of stages, or virtual stages, without an axis of stages; valid: a mesh with an axis "
                        "pipe, or rules with [\"layers\", AXIS]");
    if (rules->virtual_stages < 0)
        return clv_fail(err, CLV_EINVAL, "%d virtual stages; valid: 1 or more", rules->virtual_stages);
    const int64_t stages = mesh->axis[axis].size,
                  runs = stages * (rules->virtual_stages > 1 ? rules->virtual_stages : 1);
    if (runs > CLV_MAX_VIRTUAL_STAGES)
        return clv_fail(err, CLV_ELIMIT, "%lld stages of %d virtual ones; valid: at most %d of all", (long long)stages,
                        rules->virtual_stages, CLV_MAX_VIRTUAL_STAGES);
    if (n != 0 && n != runs)
        return clv_fail(err, CLV_EINVAL, "layers of %d stages for %lld of axis '%s'%s; valid: a number for each%s", n,
                        (long long)stages, mesh->axis[axis].name,
                        rules->virtual_stages > 1 ? " and their virtual stages" : "",
                        n > 0 && n % stages == 0 ? ", or as many virtual stages (--virtual-stages)" : "");
    for (int i = 0; i < n; i++)
        if (rules->stage_layers[i] < 1)
            return clv_fail(err, CLV_EINVAL, "stage %d of %d layers; valid: 1 or more", i, rules->stage_layers[i]);
    return CLV_OK;
}

clv_status clv_axis_rules_check(const clv_axis_rules *rules, const clv_mesh *mesh, clv_error *err)
{
    CLV_TRY(clv_mesh_check(mesh, err));
    if (rules && !counts_in_range(rules))
        return clv_fail(err, CLV_EINVAL, "rules: %d rules and %d optimizer axes; valid: 0 to %d, and 0 to %d", rules->n,
                        rules->n_optimizer, CLV_MAX_RULES, CLV_MAX_RULE_AXES);
    if (rules && !memchr(rules->name, '\0', sizeof rules->name))
        return clv_fail(err, CLV_EINVAL, "rules: the name is not terminated");
    for (int r = 0; rules && r < rules->n; r++) {
        const clv_axis_rule *rule = &rules->rule[r];
        if (!memchr(rule->name, '\0', sizeof rule->name))
            return clv_fail(err, CLV_EINVAL, "rules: the name of rule %d is not terminated", r);
        CLV_TRY(check_axes(rule->axis, rule->n_axes, rule->name, mesh, err));
    }
    if (!rules)
        return CLV_OK;
    CLV_TRY(check_axes(rules->optimizer, rules->n_optimizer, "optimizer", mesh, err));
    if (rules->virtual_stages == 0 && rules->n_stage_layers == 0)
        return CLV_OK;
    return check_stages(rules, mesh, err);
}

clv_status clv_axis_rules_append(clv_axis_rules *rules, clv_logical_axis name, const int *axis, int n, clv_error *err)
{
    CLV_TRY(check_name(name, err));
    if (clv_logical_axis_equal(name, CLV_LAYERS) && n > 1)
        return clv_fail(err, CLV_EUNSUPPORTED, "'layers' over %d axes; valid: one axis, of pipeline stages, or null",
                        n);
    if (rules->n >= CLV_MAX_RULES)
        return clv_fail(err, CLV_ELIMIT, "there are %d rules already; valid: at most %d", rules->n, CLV_MAX_RULES);
    clv_axis_rule *rule = &rules->rule[rules->n++];
    *rule = (clv_axis_rule){.n_axes = n};
    snprintf(rule->name, sizeof rule->name, "%s", name);
    for (int i = 0; i < n; i++)
        rule->axis[i] = axis[i];
    return CLV_OK;
}

clv_status clv_axis_rules_append_axis(int *axes, int *n, const clv_mesh *mesh, const char *name, int length,
                                      clv_error *err)
{
    char names[CLV_MESH_TEXT];
    int axis = clv_mesh_find_axis_or_negative(mesh, name, length);
    if (axis < 0) {
        clv_mesh_names(names, sizeof names, mesh);
        return clv_fail(err, CLV_EAXIS, "the mesh has no axis '%.*s'; valid: %s", length, name, names);
    }
    for (int i = 0; i < *n; i++)
        if (axes[i] == axis)
            return clv_fail(err, CLV_EAXIS, "axis '%s' twice; each splits a tensor once", mesh->axis[axis].name);
    axes[(*n)++] = axis;
    return CLV_OK;
}

clv_status clv_axis_rules_add(clv_axis_rules *rules, clv_logical_axis name, const char *axes, const clv_mesh *mesh,
                              clv_error *err)
{
    int axis[CLV_MAX_RULE_AXES], n = 0;
    CLV_TRY(clv_require(rules && name && mesh, __func__, "rules, a name and a mesh", err));
    CLV_TRY(clv_axis_rules_check(rules, mesh, err));
    while (axes && *axes) {
        int length = (int)strcspn(axes, ",");
        CLV_TRY(clv_axis_rules_append_axis(axis, &n, mesh, axes, length, err));
        axes += length + (axes[length] == ',');
    }
    return clv_axis_rules_append(rules, name, axis, n, err);
}

/* ---- presets ---- */

enum { MAX_PRESET_RULES = 14, MAX_PRESET_AXES = 3, MAX_PRESET_NEEDS = 2 };

typedef struct preset {
    const char *name;
    const char *needs[MAX_PRESET_NEEDS]; /* required mesh axes; the axes of its rules are otherwise optional */
    struct {
        clv_logical_axis name;
        const char *axes[MAX_PRESET_AXES];
    } rule[MAX_PRESET_RULES];
    bool splits_optimizer; /* optimizer state is split over "data", "expert" and "context" */
} preset;

/* A rule, and where experts have the axis, the same over what is left. */
#define ROWS                                                                                                           \
    {CLV_LAYERS, {"pipe"}}, {CLV_EXPERT, {"expert"}}, {CLV_BATCH, {"data", "expert"}},                                 \
    {                                                                                                                  \
        CLV_BATCH,                                                                                                     \
        {                                                                                                              \
            "data"                                                                                                     \
        }                                                                                                              \
    }
#define FSDP                                                                                                           \
    {CLV_EMBED_KERNEL, {"data", "expert", "context"}},                                                                 \
    {                                                                                                                  \
        CLV_EMBED_KERNEL,                                                                                              \
        {                                                                                                              \
            "data", "context"                                                                                          \
        }                                                                                                              \
    }

/* Heads, MLP and vocabulary come before the sequence: where a tensor has one of them, it takes the model axis. */
#define MEGATRON                                                                                                       \
    ROWS, {CLV_HEADS, {"model"}}, {CLV_KV_HEADS, {"model"}}, {CLV_MLP, {"model"}},                                     \
    {                                                                                                                  \
        CLV_VOCAB,                                                                                                     \
        {                                                                                                              \
            "model"                                                                                                    \
        }                                                                                                              \
    }
#define CONTEXT                                                                                                        \
    {CLV_CACHE_SEQ, {"context"}},                                                                                      \
    {                                                                                                                  \
        CLV_SEQ,                                                                                                       \
        {                                                                                                              \
            "context"                                                                                                  \
        }                                                                                                              \
    }
#define SP {CLV_SEQ, {"context", "model"}}, CONTEXT

static const preset default_preset = {.name = "megatron", .rule = {MEGATRON, CONTEXT}};

static const preset presets[] = {
    {.name = "dp", .needs = {"data"}, .rule = {ROWS, CONTEXT}},
    {.name = "fsdp", .needs = {"data"}, .rule = {ROWS, CONTEXT, FSDP}},
    {.name = "megatron", .needs = {"model"}, .rule = {MEGATRON, CONTEXT}},
    {.name = "megatron-sp", .needs = {"model"}, .rule = {MEGATRON, SP}},
    {.name = "fsdp+megatron-sp", .needs = {"data", "model"}, .rule = {MEGATRON, SP, FSDP}},
    {.name = "gspmd-2d",
     .needs = {"X", "Y"},
     .rule = {{CLV_BATCH, {"X"}},
              {CLV_MLP, {"Y"}},
              {CLV_HEADS, {"Y"}},
              {CLV_KV_HEADS, {"Y"}},
              {CLV_VOCAB, {"Y"}},
              {CLV_EMBED_KERNEL, {"X"}},
              {CLV_EMBED, {"Y"}}}},
    {.name = "zero1", .needs = {"data"}, .rule = {MEGATRON, CONTEXT}, .splits_optimizer = true},
    {.name = "zero1+megatron-sp", .needs = {"data", "model"}, .rule = {MEGATRON, SP}, .splits_optimizer = true},
};
enum { N_PRESETS = sizeof presets / sizeof *presets };

/* The mesh axis with this name; -1: none. */
static int find_axis(const clv_mesh *mesh, const char *name)
{
    return clv_mesh_find_axis_or_negative(mesh, name, (int)strlen(name));
}

/* The mesh's axes among n names. */
static int find_axes(int *axis, const clv_mesh *mesh, const char *const *names, int n)
{
    int found = 0;
    for (int i = 0; i < n && names[i]; i++) {
        axis[found] = find_axis(mesh, names[i]);
        found += axis[found] >= 0;
    }
    return found;
}

/* Whether a rule says the same already. */
static bool has_rule(const clv_axis_rules *rules, clv_logical_axis name, const int *axis, int n)
{
    bool has = false;
    for (int r = 0; r < rules->n; r++)
        has = has || (strcmp(rules->rule[r].name, name) == 0 && rules->rule[r].n_axes == n &&
                      memcmp(rules->rule[r].axis, axis, (size_t)n * sizeof *axis) == 0);
    return has;
}

static void add_preset_rules(clv_axis_rules *rules, const preset *p, const clv_mesh *mesh)
{
    static const char *const of_optimizer[] = {"data", "expert", "context"};
    int axis[MAX_PRESET_AXES];
    for (int i = 0; i < MAX_PRESET_RULES && p->rule[i].name; i++) {
        const int n = find_axes(axis, mesh, p->rule[i].axes, MAX_PRESET_AXES);
        if (n > 0 && !has_rule(rules, p->rule[i].name, axis, n))
            clv_axis_rules_append(rules, p->rule[i].name, axis, n, NULL);
    }
    if (p->splits_optimizer)
        rules->n_optimizer = find_axes(rules->optimizer, mesh, of_optimizer, 3);
}

/* Whether a rule uses the mesh axis. */
static bool uses_axis(const clv_axis_rules *rules, int axis)
{
    for (int r = 0; r < rules->n; r++)
        for (int i = 0; i < rules->rule[r].n_axes; i++)
            if (rules->rule[r].axis[i] == axis)
                return true;
    return false;
}

/* Whether the mesh has the axes that the preset needs, and the preset uses every axis of the mesh. */
static bool fits(const preset *p, const clv_mesh *mesh)
{
    clv_axis_rules rules = {0};
    add_preset_rules(&rules, p, mesh);
    for (int a = 0; a < mesh->n_axes; a++)
        if (!uses_axis(&rules, a))
            return false;
    for (int i = 0; i < MAX_PRESET_NEEDS && p->needs[i]; i++) {
        const bool data = strcmp(p->needs[i], "data") == 0; /* ranks of expert and context are data ranks, too */
        if (find_axis(mesh, p->needs[i]) < 0 &&
            !(data && (find_axis(mesh, "expert") >= 0 || find_axis(mesh, "context") >= 0)))
            return false;
    }
    return true;
}

/* All axes that presets use, each once: "data, model, X, Y". */
static void list_preset_axes(clv_text *list)
{
    const char *seen[CLV_MAX_AXES];
    int n = 0;
    for (int p = 0; p < N_PRESETS; p++)
        for (int i = 0; i < MAX_PRESET_RULES * MAX_PRESET_AXES; i++) {
            const char *axis = presets[p].rule[i / MAX_PRESET_AXES].axes[i % MAX_PRESET_AXES];
            int k = 0;
            while (k < n && axis && strcmp(seen[k], axis) != 0)
                k++;
            if (!axis || k < n || n == CLV_MAX_AXES)
                continue;
            seen[n++] = axis;
            clv_text_add(list, "%s%s", n > 1 ? ", " : "", axis);
        }
}

static clv_status fail_unfit(const char *name, const clv_mesh *mesh, clv_error *err)
{
    char text[CLV_MESH_TEXT], axes[CLV_MESH_TEXT], fitting[256];
    clv_text list = {.out = fitting, .size = sizeof fitting};
    for (int p = 0; p < N_PRESETS; p++)
        if (fits(&presets[p], mesh))
            clv_text_add(&list, "%s%s", list.length ? ", " : "", presets[p].name);
    bool any = list.length > 0;
    if (!any)
        list_preset_axes(&list);
    clv_text_finish(&list);
    clv_mesh_print(text, sizeof text, mesh);
    clv_mesh_names(axes, sizeof axes, mesh);
    return clv_fail(err, CLV_EAXIS, "%s%s%s not fit the mesh '%s' (axes %s); %s%s", name ? "the rules '" : "",
                    name ? name : "the default rules", name ? "' do" : " do", text, axes,
                    any ? "presets that fit: "
                    : fits(&default_preset, mesh)
                        ? "no preset fits: leave the rules out, or use the axis names of presets: "
                        : "no preset fits: write a rules file, or use the axis names of presets: ",
                    fitting);
}

static clv_status find_preset(const preset **out, const char *name, clv_error *err)
{
    char names[256];
    clv_text list = {.out = names, .size = sizeof names};
    for (int p = 0; p < N_PRESETS; p++) {
        if (strcmp(presets[p].name, name) == 0) {
            *out = &presets[p];
            return CLV_OK;
        }
        clv_text_add(&list, "%s%s", p ? ", " : "", presets[p].name);
    }
    clv_text_finish(&list);
    return clv_fail(err, CLV_EINVAL, "no preset is called '%s'; valid: %s, or a rules file", name, names);
}

clv_status clv_axis_rules_preset(clv_axis_rules *out, const char *name, const clv_mesh *mesh, clv_error *err)
{
    CLV_TRY(clv_require(out && mesh, __func__, "out and a mesh", err));
    CLV_TRY(clv_mesh_check(mesh, err));
    const preset *p = &default_preset;
    if (name)
        CLV_TRY(find_preset(&p, name, err));
    if (!fits(p, mesh))
        return fail_unfit(name, mesh, err);
    *out = (clv_axis_rules){0};
    snprintf(out->name, sizeof out->name, "%s", p->name);
    add_preset_rules(out, p, mesh);
    return CLV_OK;
}

const char *clv_axis_rules_preset_name(int i)
{
    return i >= 0 && i < N_PRESETS ? presets[i].name : NULL;
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

/* Bit a: mesh axis a. */
static uint32_t axes_mask(const clv_axis_rule *rule)
{
    uint32_t mask = 0;
    for (int i = 0; i < rule->n_axes; i++)
        mask |= 1u << rule->axis[i];
    return mask;
}

uint32_t clv_axis_rules_fsdp_or_zero_axes(const clv_axis_rules *rules)
{
    uint32_t rows = 0, weights = 0;
    for (int r = 0; r < rules->n; r++) {
        const clv_axis_rule *rule = &rules->rule[r];
        if (clv_logical_axis_equal(rule->name, CLV_BATCH) || clv_logical_axis_equal(rule->name, CLV_SEQ))
            rows |= axes_mask(rule);
        else if (clv_logical_axis_equal(rule->name, CLV_EMBED_KERNEL))
            weights |= axes_mask(rule);
    }
    for (int i = 0; i < rules->n_optimizer; i++)
        weights |= 1u << rules->optimizer[i];
    return rows & weights;
}

clv_status clv_axis_rules_set_stages(clv_axis_rules *rules, const clv_mesh *mesh, int virtual_stages, const int *layers,
                                     int n, clv_error *err)
{
    CLV_TRY(clv_require(rules && mesh && (layers || n == 0), __func__, "rules, a mesh, and layers if n is not 0", err));
    CLV_TRY(clv_axis_rules_check(rules, mesh, err));
    clv_axis_rules changed = *rules;
    if (virtual_stages < 1)
        return clv_fail(err, CLV_EINVAL, "%d virtual stages; valid: 1 or more", virtual_stages);
    changed.virtual_stages = virtual_stages;
    changed.n_stage_layers = n;
    for (int i = 0; i < n && i < CLV_MAX_VIRTUAL_STAGES; i++)
        changed.stage_layers[i] = layers[i];
    CLV_TRY(check_stages(&changed, mesh, err));
    *rules = changed;
    return CLV_OK;
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
    CLV_TRY(clv_require(out && mesh && (names || rank <= 0 || !rules), __func__, "out, a mesh and names", err));
    CLV_TRY(clv_axis_rules_check(rules, mesh, err));
    bool assigned[CLV_MAX_RANK] = {false};
    uint32_t used = 0;
    *out = clv_layout_replicated(rank);
    for (int d = 0; names && d < rank; d++)
        CLV_TRY(check_name(names[d], err));
    for (int r = 0; rules && r < rules->n; r++) {
        const clv_axis_rule *rule = &rules->rule[r];
        int d = 0;
        while (d < rank && (assigned[d] || !clv_logical_axis_equal(names[d], rule->name)))
            d++;
        if (d == rank || (axes_mask(rule) & used))
            continue;
        assigned[d] = true;
        used |= axes_mask(rule);
        CLV_TRY(split_dim(out, mesh, d, rule->axis, rule->n_axes, err));
    }
    return CLV_OK;
}

clv_status clv_axis_rules_optimizer_layout(clv_layout *out, const clv_axis_rules *rules, const clv_mesh *mesh,
                                           const clv_layout *parameter, const int64_t *shape, clv_error *err)
{
    CLV_TRY(clv_require(out && mesh && parameter && shape, __func__, "out, a mesh, a layout and a shape", err));
    CLV_TRY(clv_axis_rules_check(rules, mesh, err));
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
