/* format_tensors.c - a model's checkpoint tensors with their names of dimensions and layouts; specs of them. */
#include <ctype.h>
#include <stdio.h>

#include "models/formats/formats.h"

/* ---- names ---- */

/* The logical axis of a letter of a parameter's row; matrix: a weight, not a gain or bias. */
static clv_logical_axis name_of(char letter, bool is_input, bool matrix)
{
    switch (letter) {
    case 'V':
        return CLV_VOCAB;
    case 'H':
        return CLV_HEADS;
    case 'K':
        return CLV_KV_HEADS;
    case 'D':
        return CLV_HEAD_DIM;
    case 'F':
    case 'X':
    case 'S':
        return CLV_MLP;
    case 'E':
        return CLV_EXPERT;
    case 'M':
        return matrix && !is_input ? CLV_EMBED : matrix ? CLV_EMBED_KERNEL : CLV_EMBED;
    default:
        return CLV_UNNAMED;
    }
}

/* Names of a parameter's dimensions [in..., (parts,) out...]. */
static void name_parameter(clv_logical_axis *names, const clv_parameter *p)
{
    const clv_parameter_row *row = p->row;
    const bool table = row->form == CLV_PARAMETER_AS_IS && strlen(row->out) > 1;
    const bool matrix = p->rank > 1 && (row->in[0] || table), square = row->in[0] == 'M' && strcmp(row->out, "M") == 0;
    const int n_in = (int)strlen(row->in), n_out = (int)strlen(row->out), extra = p->rank - n_in - n_out;
    int d = 0;
    for (int i = 0; i < n_in; i++)
        names[d++] = name_of(row->in[i], true, matrix);
    for (int i = 0; i < extra; i++)
        names[d++] = CLV_UNNAMED;
    for (int i = 0; i < n_out; i++)
        names[d++] = name_of(row->out[i], !square, matrix);
}

/* Groups of the view's dimensions whose product is a stored dimension. */
static void find_parts(clv_format_tensor *t)
{
    int64_t left = t->stored[0];
    for (int d = 0, s = 0; d < t->rank; d++) {
        if (left == 1 && s + 1 < t->stored_rank && t->shape[d] > 1)
            left = t->stored[++s];
        t->part[d] = s;
        left /= t->shape[d] > 0 ? t->shape[d] : 1;
    }
}

static void take_tensor(clv_format_tensor *t, const clv_model_config *config, const clv_model_tensor *tensor, int k)
{
    clv_logical_axis names[CLV_MAX_RANK] = {CLV_UNNAMED};
    int ours[CLV_MAX_RANK];
    t->row = tensor->parameter.row;
    char *to = t->name;
    for (const char *p = clv_parameter_row_tensor(t->row, k); *p && to + 1 < t->name + sizeof t->name; p++)
        *to++ = *p == '%' || *p == '#' ? '*' : *p;
    *to = '\0';
    t->stored_rank = tensor->rank;
    memcpy(t->stored, tensor->shape, sizeof t->stored);
    t->rank = clv_model_tensor_view(t->shape, ours, config, tensor);
    name_parameter(names, &tensor->parameter);
    for (int d = 0; d < t->rank; d++)
        t->names[d] = ours[d] < 0 ? CLV_UNNAMED : names[ours[d]];
    find_parts(t);
}

/* ---- a model ---- */

static clv_status add_tensors(clv_format_model *m, const clv_weight_layouts *layouts, const clv_parameter *p,
                              clv_error *err)
{
    const clv_model_config *config = &m->model->config;
    const int stored = clv_parameter_tensor_count(config, p);
    if (p->row->by_expert)
        return clv_fail(err, CLV_EUNSUPPORTED,
                        "%s: experts of a mixture have no form here yet; valid: models without them, and megatron",
                        p->row->tensor);
    for (int k = 0; k < stored; k++) {
        const clv_model_tensor tensor = clv_parameter_tensor(config, p, k);
        clv_format_tensor *t = &m->tensors[m->n];
        clv_tensor_placement placed;
        take_tensor(t, config, &tensor, k);
        CLV_TRY(clv_weight_layouts_of_tensor(&placed, layouts, &tensor, err));
        t->layout = placed.layout;
        CLV_TRY(clv_axis_rules_optimizer_layout(&t->optimizer, &m->model->rules, &m->model->mesh, &t->layout, t->shape,
                                                err));
        m->n++;
    }
    return CLV_OK;
}

static clv_status list_tensors(clv_format_model *m, const clv_weight_layouts *layouts, clv_error *err)
{
    const clv_model_config *config = &m->model->config;
    const int64_t n = clv_model_parameter_count(config);
    m->tensors = calloc((size_t)(2 * n) + 1, sizeof *m->tensors);
    if (!m->tensors)
        return clv_fail_memory(err, "the model's tensors", (size_t)(2 * n) * sizeof *m->tensors);
    for (int64_t i = 0; i < n; i++) {
        const clv_parameter p = clv_model_parameter_at(config, i);
        if (p.layer <= 0)
            CLV_TRY(add_tensors(m, layouts, &p, err));
    }
    return CLV_OK;
}

clv_status clv_format_model_open(clv_format_model *out, const char *path, const clv_mesh *mesh,
                                 const clv_axis_rules *rules, clv_error *err)
{
    const clv_model_options options = {.size = sizeof options, .mesh = mesh, .rules = rules, .config_only = true};
    clv_weight_layouts *layouts;
    *out = (clv_format_model){0};
    CLV_TRY(clv_model_open(&out->model, path, &options, err));
    CLV_TRY(clv_weight_layouts_new(&layouts, &out->model->config, mesh, rules, CLV_QUANT_NONE, err));
    clv_status status = list_tensors(out, layouts, err);
    clv_weight_layouts_free(layouts);
    return status;
}

void clv_format_model_free(clv_format_model *m)
{
    clv_model_close(m->model);
    free(m->tensors);
    *m = (clv_format_model){0};
}

/* Whether `name` is `pattern` with a number, or *, for each of its *. */
static bool matches(const char *pattern, const char *name)
{
    for (; *pattern; pattern++) {
        if (*pattern != '*') {
            if (*pattern != *name++)
                return false;
            continue;
        }
        if (*name == '*')
            name++;
        else if (isdigit((unsigned char)*name))
            name += strspn(name, "0123456789");
        else
            return false;
    }
    return *name == '\0';
}

const clv_format_tensor *clv_format_find(const clv_format_model *m, const char *name)
{
    for (int i = 0; i < m->n; i++)
        if (matches(m->tensors[i].name, name))
            return &m->tensors[i];
    return NULL;
}

/* ---- specs ---- */

clv_status clv_format_spec(json_t **out, const char *name, int rank, const int64_t *shape, const clv_layout *layout,
                           const clv_mesh *mesh, clv_error *err)
{
    json_t *spec = json_array();
    for (int d = 0; d < rank; d++) {
        const clv_subaxis *subs;
        const int n = clv_layout_axes(&subs, layout, d);
        const int64_t blocks = clv_layout_block_count(layout, d);
        const char *fault = shape[d] % blocks != 0 ? "unevenly" : NULL;
        json_t *axes = n ? json_array() : json_null();
        for (int i = 0; i < n; i++) {
            if (subs[i].size != mesh->axis[subs[i].axis].size)
                fault = "by part of an axis";
            json_array_append_new(axes, json_string(mesh->axis[subs[i].axis].name));
        }
        if (n == 1) {
            json_t *one = json_incref(json_array_get(axes, 0));
            json_decref(axes);
            axes = one;
        }
        json_array_append_new(spec, axes);
        if (fault) {
            json_decref(spec);
            return clv_fail(err, CLV_EUNSUPPORTED,
                            "%s: dimension %d of %lld is split %s over %lld ranks, which a PartitionSpec cannot say; "
                            "valid: a mesh whose axes divide it, or --as shardy",
                            name, d, (long long)shape[d], fault, (long long)blocks);
        }
    }
    *out = spec;
    return CLV_OK;
}

json_t *clv_format_mesh(const clv_mesh *mesh)
{
    json_t *sizes = json_object();
    for (int a = 0; a < mesh->n_axes; a++)
        json_object_set_new(sizes, mesh->axis[a].name, json_integer(mesh->axis[a].size));
    return sizes;
}

clv_status clv_format_check_keys(const json_t *object, const char *name, const char *valid, const char *where,
                                 clv_error *err)
{
    const char *key;
    const json_t *value;
    json_object_foreach((json_t *)object, key, value)
    {
        const char *at = strstr(valid, key);
        const size_t n = strlen(key);
        while (at && ((at > valid && at[-1] != ' ') || (at[n] && at[n] != ',')))
            at = strstr(at + 1, key);
        if (!at || n == 0)
            return clv_fail(err, CLV_EFORMAT, "%s: %s has no \"%.60s\"; valid: %s", where, name, key, valid);
    }
    return CLV_OK;
}

clv_status clv_format_read_mesh(clv_mesh *out, const json_t *document, const char *where, clv_error *err)
{
    char text[CLV_MESH_TEXT] = "";
    const json_t *mesh = json_object_get(document, "mesh");
    const char *axis;
    const json_t *size;
    size_t used = 0;
    clv_error why = {0};
    if (!json_is_object(mesh) || json_object_size(mesh) == 0)
        return clv_fail(err, CLV_EFORMAT, "%s: \"mesh\" must be sizes by axis, {\"data\": 2, \"model\": 4}", where);
    json_object_foreach((json_t *)mesh, axis, size)
    {
        if (!json_is_integer(size))
            return clv_fail(err, CLV_EFORMAT, "%s: \"mesh\": the size of '%.64s' is no whole number", where, axis);
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%.64s=%lld", used ? "," : "", axis,
                                 (long long)json_integer_value(size));
        if (used >= sizeof text)
            return clv_fail(err, CLV_EFORMAT, "%s: \"mesh\" has too many axes", where);
    }
    if (clv_mesh_parse(out, text, &why) != CLV_OK)
        return clv_fail(err, CLV_EFORMAT, "%s: \"mesh\": %s", where, why.message);
    return CLV_OK;
}

/* A member a line, of the document and of its members. */
static void put_object(FILE *to, const json_t *object, int depth)
{
    const char *key, *before = "{\n";
    const json_t *value;
    json_object_foreach((json_t *)object, key, value)
    {
        json_t *name = json_string(key);
        fprintf(to, "%s%*s", before, depth + 1, "");
        json_dumpf(name, to, JSON_ENCODE_ANY);
        fputs(": ", to);
        json_decref(name);
        if (depth == 0 && json_object_size(value) > 2)
            put_object(to, value, depth + 1);
        else
            json_dumpf(value, to, JSON_ENCODE_ANY);
        before = ",\n";
    }
    fputs("}", to);
}

clv_status clv_format_python(char **out, const char *before, json_t *document, const char *behind, clv_error *err)
{
    char *text = NULL;
    size_t size = 0;
    FILE *to = document ? open_memstream(&text, &size) : NULL;
    if (to) {
        fprintf(to, "%sLAYOUT = json.loads(r\"\"\"\n", before);
        put_object(to, document, 0);
        fprintf(to, "\n\"\"\")\n%s", behind);
    }
    json_decref(document);
    if (!to || fclose(to) != 0)
        return clv_fail_memory(err, "a layout's text", size);
    *out = text;
    return CLV_OK;
}
