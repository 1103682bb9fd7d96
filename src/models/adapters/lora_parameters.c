/* lora_parameters.c - LoRA A and B parameters of a model: target modules, shapes, names in PEFT checkpoints. */
#include "models/adapters/lora_parameters.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "tensor/parse_print.h"

static const char weight_ending[] = ".weight", everything[] = "all-linear";
const char clv_adapters_peft_base[] = "base_model.model.";

/* What a row of the base's table has; all NULL: nothing. */
typedef struct row_adapter {
    const clv_parameter_row *a, *b;
    int parts, part;
    bool a_has_parts;
} row_adapter;

struct clv_adapters {
    clv_model_family family; /* of the adapters */
    clv_model_config config; /* of that family */
    const clv_model_config *base;
    bool is_bare; /* in files their names lack the family's base, as the bare model's do */
    double alpha, scale, dropout;
    int n, n_base;
    clv_parameter_row *rows;
    row_adapter *of; /* [n_base] */
    char **texts;    /* names that rows point to */
    int n_texts;
    const char **targets; /* [n_targets] */
    int n_targets;
};

/* ---- modules ---- */

/* Where the name without ".weight" ends; NULL: it has no such ending. */
static const char *end_of_module(const char *name)
{
    size_t length = strlen(name), ending = strlen(weight_ending);
    const char *end = name + length - ending;
    return length > ending && strcmp(end, weight_ending) == 0 ? end : NULL;
}

/* The last part of the module's name: "q_proj". */
static const char *last_part(const char *module, const char *end)
{
    const char *p = end;
    while (p > module && p[-1] != '.')
        p--;
    return p;
}

/* What PEFT has adapters for: linear layers. */
static bool is_linear(const clv_parameter_row *row)
{
    return row->form != CLV_PARAMETER_AS_IS && row->in[0] && end_of_module(row->name) && end_of_module(row->tensors[0]);
}

static int tensors_of(const clv_parameter_row *row)
{
    return row->tensors[1] ? 2 : 1;
}

/* Whether a list "q_proj,v_proj" has the module: by its name, or by how that ends behind a dot. */
static bool lists(const char *targets, const char *module)
{
    const char *end = end_of_module(module);
    for (const char *at = targets; *at;) {
        size_t n = strcspn(at, ",");
        size_t length = (size_t)(end - module);
        bool ends = n > 0 && n <= length && strncmp(end - n, at, n) == 0;
        if (ends && (n == length || end[-(ptrdiff_t)n - 1] == '.'))
            return true;
        at += n + (at[n] == ',');
    }
    return false;
}

/* All but the output layer, as PEFT's. */
static bool is_wanted(const clv_parameter_row *row, int tensor, const char *targets)
{
    if (!targets || strcmp(targets, everything) == 0)
        return strcmp(row->out, "V") != 0;
    return lists(targets, row->tensors[tensor]);
}

/* ---- rows ---- */

static const char *bare_name(const clv_model_config *base, const char *name)
{
    size_t n = strlen(base->family->base);
    return strncmp(name, base->family->base, n) == 0 ? name + n : name;
}

/* "<prefix><name without .weight><ending>"; kept. */
static const char *respelled(clv_adapters *s, const char *prefix, const char *name, const char *ending)
{
    char *text;
    if (asprintf(&text, "%s%.*s%s", prefix, (int)(end_of_module(name) - name), name, ending) < 0)
        return NULL;
    s->texts[s->n_texts++] = text;
    return text;
}

/* One factor of the tensors `first` to `last` of the base's row. */
static clv_status add_row(clv_adapters *s, const clv_parameter_row *base, int first, int last, bool is_b,
                          clv_error *err)
{
    clv_parameter_row *row = &s->rows[s->n++];
    *row = (clv_parameter_row){.name = respelled(s, "", base->name, is_b ? ".lora_b" : ".lora_a"),
                               .form = CLV_PARAMETER_LINEAR,
                               .in = is_b ? "R" : base->in,
                               .out = is_b ? base->out : "R",
                               .when = base->when,
                               .stated = base->stated};
    if (is_b) {
        row->first = base->first;
        row->of = base->of;
        row->take = base->take;
    }
    for (int i = first; i <= last; i++) {
        const char *name = s->is_bare ? bare_name(s->base, base->tensors[i]) : base->tensors[i];
        row->tensors[i - first] =
            respelled(s, clv_adapters_peft_base, name, is_b ? ".lora_B.weight" : ".lora_A.weight");
        if (!row->tensors[i - first])
            row->name = NULL;
        else if (strlen(row->tensors[i - first]) + 8 > CLV_TENSOR_NAME_SIZE)
            return clv_fail(err, CLV_ELIMIT, "%s: too long a name for the tensor of an adapter", base->tensors[i]);
    }
    return row->name ? CLV_OK : clv_fail_memory(err, "a table of adapters", sizeof *row);
}

/* Whether all modules whose names end as this one's does have adapters. */
static bool has_namesakes(const clv_adapters *s, const char *module, const char *targets)
{
    const char *end = end_of_module(module), *part = last_part(module, end);
    char name[CLV_TENSOR_NAME_SIZE];
    snprintf(name, sizeof name, "%.*s", (int)(end - part), part);
    for (const clv_parameter_row *row = s->base->family->parameters; row->name; row++)
        for (int k = 0; is_linear(row) && clv_parameter_row_is_present(row, s->base) && k < tensors_of(row); k++)
            if (lists(name, row->tensors[k]) && !is_wanted(row, k, targets))
                return false;
    return true;
}

static void add_target(clv_adapters *s, const char *module, const char *targets)
{
    const char *end = end_of_module(module), *part = last_part(module, end), *layer = strchr(module, '%');
    if (!has_namesakes(s, module, targets))
        part = layer ? layer + 2 : module;
    size_t n = (size_t)(end - part);
    for (int i = 0; i < s->n_targets; i++)
        if (strncmp(s->targets[i], part, n) == 0 && s->targets[i][n] == '\0')
            return;
    char *text = strndup(part, n);
    if (!text)
        return; /* the rows of it are missing memory, too */
    s->texts[s->n_texts++] = text;
    s->targets[s->n_targets++] = text;
}

static clv_status add_adapter(clv_adapters *s, int i, int first, int last, const char *targets, clv_error *err)
{
    const clv_parameter_row *base = &s->base->family->parameters[i];
    row_adapter *its = &s->of[i];
    bool shares = base->first > 0;
    its->parts = base->tensors[1] ? 2 : base->take > 1 ? base->take : 0;
    its->part = base->tensors[1] && first == last ? first : -1;
    its->a_has_parts = base->tensors[1] && first < last;
    if (shares) { /* the rows of a fused tensor stand behind its first */
        int k = i - 1;
        while (strcmp(s->base->family->parameters[k].tensors[0], base->tensors[0]) != 0)
            k--;
        its->a = s->of[k].a;
    } else {
        CLV_TRY(add_row(s, base, first, last, false, err));
        its->a = &s->rows[s->n - 1];
    }
    CLV_TRY(add_row(s, base, first, last, true, err));
    its->b = &s->rows[s->n - 1];
    for (int k = first; k <= last; k++)
        add_target(s, base->tensors[k], targets);
    return CLV_OK;
}

static clv_status add_rows(clv_adapters *s, const char *targets, clv_error *err)
{
    for (int i = 0; i < s->n_base; i++) {
        const clv_parameter_row *row = &s->base->family->parameters[i];
        int first = -1, last = -1;
        if (!is_linear(row) || !clv_parameter_row_is_present(row, s->base))
            continue;
        for (int k = 0; k < tensors_of(row); k++)
            if (is_wanted(row, k, targets)) {
                first = first < 0 ? k : first;
                last = k;
            }
        if (first >= 0)
            CLV_TRY(add_adapter(s, i, first, last, targets, err));
    }
    return CLV_OK;
}

/* ---- what is asked for ---- */

/* The names that targets may have, each once. */
static void print_valid(char *out, size_t size, const clv_model_config *base)
{
    clv_text text = {.out = out, .size = size};
    clv_text_add(&text, "%s", everything);
    for (const clv_parameter_row *row = base->family->parameters; row->name; row++)
        for (int k = 0; is_linear(row) && clv_parameter_row_is_present(row, base) && k < tensors_of(row); k++) {
            const char *end = end_of_module(row->tensors[k]), *part = last_part(row->tensors[k], end);
            char name[CLV_TENSOR_NAME_SIZE];
            snprintf(name, sizeof name, ", %.*s", (int)(end - part), part);
            if (!strstr(out, name))
                clv_text_add(&text, "%s", name);
        }
    clv_text_finish(&text);
}

static clv_status check_target(const char *target, size_t n, const clv_model_config *base, clv_error *err)
{
    char one[CLV_TENSOR_NAME_SIZE], valid[512] = "";
    snprintf(one, sizeof one, "%.*s", (int)n, target);
    for (const clv_parameter_row *row = base->family->parameters; row->name && n > 0; row++)
        for (int k = 0; is_linear(row) && clv_parameter_row_is_present(row, base) && k < tensors_of(row); k++)
            if (lists(one, row->tensors[k]))
                return CLV_OK;
    print_valid(valid, sizeof valid, base);
    return clv_fail(err, CLV_EINVAL, "LoRA target '%.64s'; valid: %s", one, valid);
}

static clv_status check_targets(const char *targets, const clv_model_config *base, clv_error *err)
{
    if (!targets || strcmp(targets, everything) == 0)
        return CLV_OK;
    for (const char *at = targets;; at++) {
        size_t n = strcspn(at, ",");
        CLV_TRY(check_target(at, n, base, err));
        at += n;
        if (*at == '\0')
            return CLV_OK;
    }
}

/* A rank beyond a weight's own would say nothing more. */
static clv_status check_rank(const clv_adapters *s, int64_t rank, clv_error *err)
{
    int64_t most = INT64_MAX;
    const char *narrowest = weight_ending;
    for (int i = 0; i < s->n_base; i++) {
        const clv_parameter_row *row = &s->base->family->parameters[i];
        int64_t in = clv_model_dims_elems(s->base, row->in), out = clv_model_dims_elems(s->base, row->out);
        int64_t side = out * (row->of > 0 ? row->of : 1) < in ? out * (row->of > 0 ? row->of : 1) : in;
        if (s->of[i].b && side < most) {
            most = side;
            narrowest = row->tensors[s->of[i].part > 0];
        }
    }
    const char *end = end_of_module(narrowest), *part = end ? last_part(narrowest, end) : narrowest;
    if (rank < 1 || rank > most)
        return clv_fail(err, CLV_EINVAL, "a LoRA rank of %lld; valid: 1 to %lld, the narrowest side of %.*s",
                        (long long)rank, (long long)most, end ? (int)(end - part) : 0, part);
    return CLV_OK;
}

static clv_status fill(clv_adapters *s, const clv_lora_options *o, clv_error *err)
{
    if (!isfinite(o->alpha) || o->alpha < 0)
        return clv_fail(err, CLV_EINVAL, "a LoRA alpha of %g; valid: above 0, or 0: the rank", o->alpha);
    if (!(o->dropout >= 0 && o->dropout < 1))
        return clv_fail(err, CLV_EINVAL, "a LoRA dropout of %g; valid: 0 <= dropout < 1", o->dropout);
    CLV_TRY(check_targets(o->targets, s->base, err));
    while (s->base->family->parameters[s->n_base].name)
        s->n_base++;
    size_t n = (size_t)s->n_base + 1;
    s->rows = calloc(2 * n, sizeof *s->rows);
    s->of = calloc(n, sizeof *s->of);
    s->texts = calloc(8 * n, sizeof *s->texts);
    s->targets = calloc(2 * n, sizeof *s->targets);
    if (!s->rows || !s->of || !s->texts || !s->targets)
        return clv_fail_memory(err, "a table of adapters", 2 * n * sizeof *s->rows);
    CLV_TRY(add_rows(s, o->targets, err));
    s->family = *s->base->family;
    s->family.base = "";
    s->family.parameters = s->rows;
    s->config = *s->base;
    s->config.family = &s->family;
    if (!o->folder) /* PEFT's are taken as they are */
        CLV_TRY(check_rank(s, o->rank, err));
    s->config.adapter_rank = o->rank;
    s->alpha = o->alpha > 0 ? o->alpha : (double)o->rank;
    s->scale = s->alpha / (double)o->rank;
    s->dropout = o->dropout;
    return CLV_OK;
}

clv_status clv_adapters_new(clv_adapters **out, const clv_model_config *base, const clv_lora_options *options,
                            bool is_bare, clv_error *err)
{
    clv_adapters *s = calloc(1, sizeof *s);
    if (!s)
        return clv_fail_memory(err, "adapters", sizeof *s);
    s->base = base;
    s->is_bare = is_bare;
    clv_status status = fill(s, options, err);
    if (status == CLV_OK)
        *out = s;
    else
        clv_adapters_free(s);
    return status;
}

void clv_adapters_free(clv_adapters *s)
{
    if (!s)
        return;
    for (int i = 0; i < s->n_texts; i++)
        free(s->texts[i]);
    free(s->texts);
    free(s->targets);
    free(s->rows);
    free(s->of);
    free(s);
}

const clv_model_config *clv_adapters_config(const clv_adapters *s)
{
    return &s->config;
}

int64_t clv_adapters_rank(const clv_adapters *s)
{
    return s->config.adapter_rank;
}

double clv_adapters_alpha(const clv_adapters *s)
{
    return s->alpha;
}

double clv_adapters_dropout(const clv_adapters *s)
{
    return s->dropout;
}

double clv_adapters_scale(const clv_adapters *s)
{
    return s->scale;
}

const char *clv_adapters_target(const clv_adapters *s, int i)
{
    return i < s->n_targets ? s->targets[i] : NULL;
}

bool clv_adapters_file_name_a(char *out, size_t size, const clv_model_config *base, const clv_parameter_row *row, int i,
                              int64_t layer, bool is_bare)
{
    if (!is_linear(row) || !clv_parameter_row_is_present(row, base) || i >= tensors_of(row))
        return false;
    const char *module = is_bare ? bare_name(base, row->tensors[i]) : row->tensors[i], *at = strchr(module, '%'),
               *end = end_of_module(module);
    if (at)
        snprintf(out, size, "%s%.*s%lld%.*s.lora_A.weight", clv_adapters_peft_base, (int)(at - module), module,
                 (long long)layer, (int)(end - at - 1), at + 1);
    else
        snprintf(out, size, "%s%.*s.lora_A.weight", clv_adapters_peft_base, (int)(end - module), module);
    return true;
}

bool clv_adapters_find(clv_lora_adapter *out, clv_parameter *a, clv_parameter *b, const clv_adapters *s,
                       const char *weight)
{
    clv_parameter p;
    if (clv_model_parameter_find(&p, s->base, weight, NULL) != CLV_OK)
        return false;
    const row_adapter *its = &s->of[p.row - s->base->family->parameters];
    if (!its->b)
        return false;
    *a = clv_parameter_of_row(&s->config, its->a, p.layer);
    *b = clv_parameter_of_row(&s->config, its->b, p.layer);
    *out = (clv_lora_adapter){.a = a->name,
                              .b = b->name,
                              .rank = s->config.adapter_rank,
                              .scale = s->scale,
                              .parts = its->parts,
                              .a_has_parts = its->a_has_parts,
                              .part = its->part};
    return true;
}

bool clv_adapters_has_parameter(const clv_adapters *s, const char *name)
{
    clv_parameter p;
    return s && clv_model_parameter_find(&p, &s->config, name, NULL) == CLV_OK;
}
