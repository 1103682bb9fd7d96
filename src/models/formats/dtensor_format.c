/* dtensor_format.c - layouts as a plan of torch's parallelize_module with fully_shard or DDP, and rules from one.
 *
 *   {"mesh": {"data": 2, "model": 4},
 *    "tensor_parallel": "model",
 *    "plan": {"model.layers.*.self_attn.q_proj": "ColwiseParallel()", ...}
 *    "fully_shard": {"axis": "data", "reshard_after_forward": true},
 *    "replicate": "pod"}
 *
 * A row-parallel module is split by what it contracts, a column-parallel one by its features. Styles of transformers'
 * tp_plan ("colwise", "rowwise") are read, too.
 */
#include <stdio.h>

#include "models/formats/formats.h"

static const char before[] =
    "# A layout as cleave exports it, for the modules of transformers: apply(model, make_mesh()) before a step.\n"
    "import json\n"
    "import torch\n"
    "from torch.distributed.device_mesh import init_device_mesh\n"
    "from torch.distributed.fsdp import fully_shard\n"
    "from torch.distributed.tensor import Replicate, Shard\n"
    "from torch.distributed.tensor.parallel import (\n"
    "    ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel, parallelize_module)\n"
    "\n";
static const char behind[] =
    "\n"
    "def make_mesh(device=\"cpu\"):\n"
    "    return init_device_mesh(device, tuple(LAYOUT[\"mesh\"].values()), mesh_dim_names=tuple(LAYOUT[\"mesh\"]))\n"
    "\n"
    "def apply(model, mesh):\n"
    "    if \"tensor_parallel\" in LAYOUT:\n"
    "        plan = {name: eval(style) for name, style in LAYOUT[\"plan\"].items()}\n"
    "        parallelize_module(model, mesh[LAYOUT[\"tensor_parallel\"]], plan)\n"
    "    shard, replicate = LAYOUT.get(\"fully_shard\"), LAYOUT.get(\"replicate\")\n"
    "    if shard:\n"
    "        of = mesh[(replicate, shard[\"axis\"])] if replicate else mesh[shard[\"axis\"]]\n"
    "        for layers in (m for m in model.modules() if isinstance(m, torch.nn.ModuleList)):\n"
    "            for layer in layers:\n"
    "                fully_shard(layer, mesh=of, reshard_after_forward=shard[\"reshard_after_forward\"])\n"
    "        fully_shard(model, mesh=of, reshard_after_forward=shard[\"reshard_after_forward\"])\n"
    "    elif replicate:\n"
    "        from torch.distributed._composable.replicate import replicate as replicated\n"
    "        replicated(model, device_mesh=mesh[replicate])\n"
    "    return model\n";

/* ---- writing ---- */

static bool is_table(const clv_format_tensor *t)
{
    return t->row->form == CLV_PARAMETER_AS_IS && strcmp(t->row->out, "VM") == 0;
}

static bool is_norm(const clv_format_tensor *t)
{
    return strstr(t->row->name, "norm.weight") != NULL && strcmp(t->row->out, "M") == 0;
}

/* The module of a weight: its name without ".weight". False: it is no weight of a module. */
static bool module_of(char out[CLV_TENSOR_NAME_SIZE], const clv_format_tensor *t)
{
    const size_t length = strlen(t->name), ending = strlen(".weight");
    if (length <= ending || strcmp(t->name + length - ending, ".weight") != 0)
        return false;
    memcpy(out, t->name, length - ending);
    out[length - ending] = '\0';
    return true;
}

/* Whether a dimension of these of the row is split over tensor parallelism's axis. */
static bool is_split(const clv_format_roles *roles, const char *letters)
{
    return strpbrk(letters, "HKF") != NULL || (roles->vocab && strchr(letters, 'V') != NULL);
}

static const char *style_of(const clv_format_tensor *t, const clv_format_roles *roles)
{
    const bool sp = roles->sequence;
    if (is_norm(t))
        return sp ? "SequenceParallel()" : NULL;
    if (is_table(t) && roles->vocab)
        return sp ? "RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1))"
                  : "RowwiseParallel(input_layouts=Replicate())";
    if (t->row->form != CLV_PARAMETER_LINEAR || !t->row->in[0])
        return NULL;
    if (is_split(roles, t->row->in))
        return sp ? "RowwiseParallel(output_layouts=Shard(1))" : "RowwiseParallel()";
    if (!is_split(roles, t->row->out))
        return NULL;
    if (strchr(t->row->out, 'V'))
        return sp ? "ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate())"
                  : "ColwiseParallel(output_layouts=Replicate())";
    return "ColwiseParallel()";
}

/* With sequence parallelism, the module around column-parallel ones gathers its input, once for all of them. */
static void put_gathering(json_t *plan, const char *module)
{
    char parent[CLV_TENSOR_NAME_SIZE];
    const char *dot = strrchr(module, '.');
    snprintf(parent, sizeof parent, "%.*s", dot ? (int)(dot - module) : 0, module);
    const bool attention = strstr(parent, "attn") != NULL;
    if (dot && !json_object_get(plan, parent))
        json_object_set_new(plan, parent,
                            json_string(attention
                                            ? "PrepareModuleInput(input_kwarg_layouts={'hidden_states': Shard(1)}, "
                                              "desired_input_kwarg_layouts={'hidden_states': Replicate()})"
                                            : "PrepareModuleInput(input_layouts=(Shard(1),), "
                                              "desired_input_layouts=(Replicate(),))"));
}

static clv_status check_model(const clv_format_model *m, const clv_format_roles *roles, const clv_mesh *mesh,
                              clv_error *err)
{
    const clv_model_config *c = &m->model->config;
    const int64_t ranks = roles->tensor < 0 ? 1 : mesh->axis[roles->tensor].size;
    for (int i = 0; roles->tensor >= 0 && i < m->n; i++)
        if (m->tensors[i].row->form == CLV_PARAMETER_CONV1D)
            return clv_fail(err, CLV_EUNSUPPORTED,
                            "%s is of a Conv1D, which parallelize_module cannot split; valid for this model: rules "
                            "without tensor parallelism, or --as jax, shardy",
                            m->tensors[i].name);
    if (roles->sequence && !strstr(m->tensors[0].name, "model.embed_tokens"))
        return clv_fail(
            err, CLV_EUNSUPPORTED,
            "DTensor: the sequence is split for decoders of Llama's form alone; valid for this model: rules "
            "without seq");
    if (roles->sequence && !roles->vocab)
        return clv_fail(err, CLV_EUNSUPPORTED,
                        "DTensor: a split sequence begins at a split embedding; add a rule for "
                        "vocab, or leave out that for seq");
    if (c->heads % ranks != 0 || c->kv_heads % ranks != 0)
        return clv_fail(err, CLV_EUNSUPPORTED,
                        "DTensor: %lld heads and %lld KV heads over %lld ranks; valid: a number that divides both",
                        (long long)c->heads, (long long)c->kv_heads, (long long)ranks);
    return CLV_OK;
}

static void put_plan(json_t *plan, const clv_format_model *m, const clv_format_roles *roles)
{
    char module[CLV_TENSOR_NAME_SIZE];
    for (int i = 0; i < m->n; i++) {
        const clv_format_tensor *t = &m->tensors[i];
        const char *style = module_of(module, t) ? style_of(t, roles) : NULL;
        if (!style)
            continue;
        if (roles->sequence && strcmp(style, "ColwiseParallel()") == 0)
            put_gathering(plan, module);
        json_object_set_new(plan, module, json_string(style));
    }
    /* a tied output projection is the embedding's table, as torch splits it */
    if (roles->vocab && m->model->config.tie_word_embeddings && strstr(m->tensors[0].name, "model.embed_tokens"))
        json_object_set_new(plan, "lm_head",
                            json_string(roles->sequence
                                            ? "ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate())"
                                            : "ColwiseParallel(output_layouts=Replicate())"));
}

clv_status clv_dtensor_write(char **out, const clv_format_input *in, clv_error *err)
{
    const clv_mesh *mesh = in->plan->mesh;
    clv_format_roles roles;
    CLV_TRY(clv_format_roles_of(&roles, in->plan->rules, mesh, "DTensor", err));
    CLV_TRY(check_model(in->model, &roles, mesh, err));
    json_t *document = json_pack("{s:o}", "mesh", clv_format_mesh(mesh)), *plan = json_object();
    if (roles.tensor >= 0) {
        put_plan(plan, in->model, &roles);
        json_object_set_new(document, "tensor_parallel", json_string(mesh->axis[roles.tensor].name));
    }
    json_object_set_new(document, "plan", plan);
    if (roles.shard >= 0)
        json_object_set_new(
            document, "fully_shard",
            json_pack("{s:s, s:b}", "axis", mesh->axis[roles.shard].name, "reshard_after_forward", (int)roles.gathers));
    if (roles.replicate >= 0)
        json_object_set_new(document, "replicate", json_string(mesh->axis[roles.replicate].name));
    return clv_format_python(out, before, document, behind, err);
}

/* ---- reading ---- */

/* The axis that a key of the document names; -1: none. */
static clv_status read_axis(int *out, const json_t *object, const char *key, const clv_mesh *mesh, const char *where,
                            clv_error *err)
{
    const char *name = NULL;
    *out = -1;
    if (!object)
        return CLV_OK;
    CLV_TRY(clv_json_get_string(&name, object, key, CLV_JSON_OPTIONAL, where, err));
    return name ? clv_mesh_find(out, mesh, name, err) : CLV_OK;
}

typedef enum style { COLUMNS, ROWS, SEQUENCE, OTHER } style;

static style read_style(const char *text)
{
    if (strncmp(text, "ColwiseParallel", 15) == 0 || strncmp(text, "colwise", 7) == 0)
        return COLUMNS;
    if (strncmp(text, "RowwiseParallel", 15) == 0 || strncmp(text, "rowwise", 7) == 0 ||
        strcmp(text, "embedding_rowwise") == 0)
        return ROWS;
    if (strncmp(text, "SequenceParallel", 16) == 0 || strcmp(text, "sequence_parallel") == 0)
        return SEQUENCE;
    return OTHER;
}

/* The split dimension of the module's weight, in its view. */
static int split_dim(const clv_format_tensor *t, style how)
{
    /* [out..., in...] of a linear layer; [V, M] of a table, whose rows are what a lookup contracts */
    const int stored = (how == ROWS) != is_table(t) ? 1 : 0;
    for (int d = 0; d < t->rank; d++)
        if (t->part[d] == stored)
            return d;
    return 0;
}

static clv_status note_style(clv_axis_rules *rules, bool *split, const char *module, const char *text, int axis,
                             const clv_format_model *m, const clv_mesh *mesh, const char *where, clv_error *err)
{
    char name[CLV_TENSOR_NAME_SIZE];
    const style how = read_style(text);
    if (how == OTHER && strncmp(text, "PrepareModule", 13) != 0 && strncmp(text, "replicate", 9) != 0)
        return clv_fail(err, CLV_EINVAL,
                        "%s: '%.80s' has the style '%.80s'; valid: ColwiseParallel(), RowwiseParallel(), "
                        "SequenceParallel(), PrepareModuleInput(), PrepareModuleOutput(), replicate",
                        where, module, text);
    if (how == SEQUENCE || strstr(text, "Shard(1)"))
        CLV_TRY(clv_format_note(rules, CLV_SEQ, &axis, 1, module, mesh, err));
    if (how == SEQUENCE || how == OTHER)
        return CLV_OK;
    snprintf(name, sizeof name, "%s.weight", module);
    const clv_format_tensor *t = clv_format_find(m, name);
    if (!t && m->model->config.tie_word_embeddings && strcmp(module, "lm_head") == 0)
        return CLV_OK;
    if (!t || t->stored_rank != 2)
        return clv_fail(err, CLV_EINVAL, "%s: the model has no linear module '%.80s'; one is '%s'", where, module,
                        m->tensors[0].name);
    split[t - m->tensors] = true;
    return clv_format_note(rules, t->names[split_dim(t, how)], &axis, 1, t->name, mesh, err);
}

/* No weight is whole that these rules split. */
static clv_status check_whole(const clv_axis_rules *rules, const bool *split, int axis, const clv_format_model *m,
                              const clv_mesh *mesh, clv_error *err)
{
    for (int i = 0; axis >= 0 && i < m->n; i++) {
        const clv_format_tensor *t = &m->tensors[i];
        clv_layout layout;
        CLV_TRY(clv_axis_rules_layout(&layout, rules, mesh, t->rank, t->names, err));
        if (t->stored_rank == 2 && !split[i] && clv_layout_uses_subaxis(&layout, clv_mesh_whole_axis(mesh, axis)))
            return clv_fail(err, CLV_EUNSUPPORTED,
                            "%s: the plan leaves it whole, and splits other weights of its kind; no rules give this "
                            "layout",
                            t->name);
    }
    return CLV_OK;
}

static clv_status note_data_parallel(clv_axis_rules *rules, const clv_mesh *mesh, const json_t *document,
                                     const char *where, clv_error *err)
{
    const json_t *shard = json_object_get(document, "fully_shard");
    int sharded, replicated, batch[2], n = 0;
    bool gathers = true;
    CLV_TRY(read_axis(&sharded, shard, "axis", mesh, where, err));
    CLV_TRY(read_axis(&replicated, document, "replicate", mesh, where, err));
    CLV_TRY(clv_format_check_keys(shard, "\"fully_shard\"", "axis, reshard_after_forward", where, err));
    if (shard)
        CLV_TRY(clv_json_get_bool(&gathers, shard, "reshard_after_forward", CLV_JSON_OPTIONAL, where, err));
    for (int a = 0; a < mesh->n_axes; a++)
        if (a == sharded || a == replicated)
            batch[n++] = a;
    if (n > 0)
        CLV_TRY(clv_format_note(rules, CLV_BATCH, batch, n, "the batch", mesh, err));
    if (sharded >= 0 && gathers)
        return clv_format_note(rules, CLV_EMBED_KERNEL, &sharded, 1, "fully_shard", mesh, err);
    if (sharded >= 0)
        rules->optimizer[rules->n_optimizer++] = sharded;
    return CLV_OK;
}

clv_status clv_dtensor_read(clv_axis_rules *out, const clv_mesh *mesh, const json_t *document,
                            const clv_format_model *m, const char *where, clv_error *err)
{
    const json_t *plan = json_object_get(document, "plan"), *how;
    const char *module;
    int axis;
    clv_axis_rules rules = {0};
    CLV_FREED bool *split = calloc((size_t)m->n + 1, sizeof *split);
    if (!split)
        return clv_fail_memory(err, "a plan", (size_t)m->n);
    CLV_TRY(clv_json_check_object(plan, where, err));
    CLV_TRY(read_axis(&axis, document, "tensor_parallel", mesh, where, err));
    json_object_foreach((json_t *)plan, module, how)
    {
        if (!json_is_string(how))
            return clv_fail(err, CLV_EFORMAT, "%s: \"plan\": the style of '%.80s' must be text, \"ColwiseParallel()\"",
                            where, module);
        if (axis < 0)
            return clv_fail(err, CLV_EFORMAT, "%s: \"plan\" needs \"tensor_parallel\", the axis that it splits over",
                            where);
        CLV_TRY(note_style(&rules, split, module, json_string_value(how), axis, m, mesh, where, err));
    }
    CLV_TRY(check_whole(&rules, split, axis, m, mesh, err));
    CLV_TRY(note_data_parallel(&rules, mesh, document, where, err));
    clv_format_settle(&rules, mesh);
    *out = rules;
    return CLV_OK;
}
