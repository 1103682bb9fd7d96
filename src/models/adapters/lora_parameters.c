/* lora_parameters.c - LoRA A and B parameters of a model: target modules, shapes, names in PEFT checkpoints. */
#include "models/adapters/lora_parameters.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory/arena.h"
#include "tensor/parse_print.h"

static const char weight_ending[] = ".weight", all_linear[] = "all-linear";
const char clv_adapters_peft_base[] = "base_model.model.";

/* ---- modules ---- */

/* Where ".weight" begins; NULL: the name has another ending. */
static const char *end_of_module(const char *name)
{
    size_t length = strlen(name), ending = strlen(weight_ending);
    const char *end = name + length - ending;
    return length > ending && strcmp(end, weight_ending) == 0 ? end : NULL;
}

bool clv_lora_next_module(clv_lora_module *m, const clv_model_config *base)
{
    const clv_parameter_row *row = m->row ? m->row : base->family->parameters;
    int k = m->row ? m->k + 1 : 0;
    for (; row->name; row++, k = 0) {
        const char *tensor = k < 2 ? clv_parameter_row_tensor(row, k) : NULL;
        if (!tensor || row->form == CLV_PARAMETER_AS_IS || !row->in[0] || clv_parameter_row_is_of_experts(row) ||
            !end_of_module(row->name) || !end_of_module(tensor) || !clv_parameter_row_is_present(row, base))
            continue;
        *m = (clv_lora_module){.row = row, .k = k, .tensor = tensor, .end = end_of_module(tensor)};
        for (m->last = m->end; m->last > tensor && m->last[-1] != '.';)
            m->last--;
        return true;
    }
    return false;
}

/* Whether a list "q_proj,v_proj" has the module: its whole name, or an ending of it after a dot. */
static bool lists(const char *targets, const clv_lora_module *m)
{
    for (const char *at = targets; *at;) {
        const size_t n = strcspn(at, ","), length = (size_t)(m->end - m->tensor);
        if (n > 0 && n <= length && strncmp(m->end - n, at, n) == 0 &&
            (n == length || m->end[-(ptrdiff_t)n - 1] == '.'))
            return true;
        at += n + (at[n] == ',');
    }
    return false;
}

static bool is_all_linear(const char *targets)
{
    return !targets || strcmp(targets, all_linear) == 0;
}

/* "all-linear" excludes the output layer, as in PEFT. */
static bool is_target(const clv_lora_module *m, const char *targets)
{
    return is_all_linear(targets) ? strcmp(m->row->out, "V") != 0 : lists(targets, m);
}

/* ---- rows ---- */

static const char *bare_name(const clv_model_config *base, const char *name)
{
    size_t n = strlen(base->family->base);
    return strncmp(name, base->family->base, n) == 0 ? name + n : name;
}

/* "<prefix><name without .weight><ending>". */
static const char *derived_name(const clv_adapters *s, const char *prefix, const char *name, const char *ending)
{
    return clv_arena_format(s->arena, "%s%.*s%s", prefix, (int)(end_of_module(name) - name), name, ending);
}

/* Adds the row of A or B for tensors `first` to `last` of the base's row. */
static clv_status add_row(clv_adapters *s, const clv_parameter_row *base, int first, int last, bool is_b,
                          clv_error *err)
{
    clv_parameter_row *row = &s->rows[s->n_rows++];
    const char *tensors[2] = {NULL, NULL};
    for (int i = first; i <= last; i++) {
        const char *name = clv_parameter_row_tensor(base, i);
        tensors[i - first] = derived_name(s, clv_adapters_peft_base, s->is_bare ? bare_name(s->base, name) : name,
                                          is_b ? ".lora_B.weight" : ".lora_A.weight");
        if (!tensors[i - first])
            return clv_fail_memory(err, "a table of adapters", sizeof *row);
        if (strlen(tensors[i - first]) + 8 > CLV_TENSOR_NAME_SIZE)
            return clv_fail(err, CLV_ELIMIT, "%s: too long a name for the tensor of an adapter", name);
    }
    *row = (clv_parameter_row){.name = derived_name(s, "", base->name, is_b ? ".lora_b" : ".lora_a"),
                               .tensor = tensors[0],
                               .form = CLV_PARAMETER_LINEAR,
                               .in = is_b ? "R" : base->in,
                               .out = is_b ? base->out : "R",
                               .second_tensor = tensors[1],
                               .first = is_b ? base->first : 0,
                               .of = is_b ? base->of : 0,
                               .take = is_b ? base->take : 0,
                               .when = base->when,
                               .layers = base->layers,
                               .stated = base->stated};
    return row->name ? CLV_OK : clv_fail_memory(err, "a table of adapters", sizeof *row);
}

/* Adds a module to the targets: by the last part of its name if all modules that match this are targets. */
static clv_status add_target(clv_adapters *s, const clv_lora_module *m, const char *targets, clv_error *err)
{
    const char *part = m->last, *layer = strchr(m->tensor, '%');
    char name[CLV_TENSOR_NAME_SIZE];
    snprintf(name, sizeof name, "%.*s", (int)(m->end - part), part);
    for (clv_lora_module other = {0}; clv_lora_next_module(&other, s->base);)
        if (lists(name, &other) && !is_target(&other, targets))
            part = layer ? layer + 2 : m->tensor;
    const char *text = clv_arena_format(s->arena, "%.*s", (int)(m->end - part), part);
    if (!text)
        return clv_fail_memory(err, "a table of adapters", CLV_TENSOR_NAME_SIZE);
    for (int i = 0; i < s->n_targets; i++)
        if (strcmp(s->targets[i], text) == 0)
            return CLV_OK;
    s->targets[s->n_targets++] = text;
    return CLV_OK;
}

/* Adds the adapter of tensors `first` to `last` of a row of the base. */
static clv_status add_adapter(clv_adapters *s, const clv_parameter_row *base, int first, int last, clv_error *err)
{
    clv_lora_rows *its = &s->of[base - s->base->family->parameters];
    const bool two = base->second_tensor != NULL;
    *its = (clv_lora_rows){.parts = two              ? 2
                                    : base->take > 1 ? base->take
                                                     : 0,
                           .part = two && first == last ? first : -1,
                           .a_has_parts = two && first < last};
    if (base->first > 0) { /* a later part of a fused tensor shares the A of the first part, which is before it */
        const clv_parameter_row *owner = base - 1;
        while (strcmp(owner->tensor, base->tensor) != 0)
            owner--;
        its->a = s->of[owner - s->base->family->parameters].a;
    } else {
        CLV_TRY(add_row(s, base, first, last, false, err));
        its->a = &s->rows[s->n_rows - 1];
    }
    CLV_TRY(add_row(s, base, first, last, true, err));
    its->b = &s->rows[s->n_rows - 1];
    return CLV_OK;
}

static clv_status add_rows(clv_adapters *s, const char *targets, clv_error *err)
{
    clv_lora_module m = {0};
    for (bool more = clv_lora_next_module(&m, s->base); more;) {
        const clv_parameter_row *row = m.row;
        int first = -1, last = -1;
        for (; more && m.row == row; more = clv_lora_next_module(&m, s->base)) {
            if (!is_target(&m, targets))
                continue;
            first = first < 0 ? m.k : first;
            last = m.k;
            CLV_TRY(add_target(s, &m, targets, err));
        }
        if (first >= 0)
            CLV_TRY(add_adapter(s, row, first, last, err));
    }
    return CLV_OK;
}

/* ---- options ---- */

static clv_status check_target(const char *target, size_t n, const clv_model_config *base, clv_error *err)
{
    char one[CLV_TENSOR_NAME_SIZE], name[CLV_TENSOR_NAME_SIZE], valid[512] = "";
    clv_text text = {.out = valid, .size = sizeof valid};
    snprintf(one, sizeof one, "%.*s", (int)n, target);
    clv_text_add(&text, "%s", all_linear);
    for (clv_lora_module m = {0}; clv_lora_next_module(&m, base);) {
        if (n > 0 && lists(one, &m))
            return CLV_OK;
        snprintf(name, sizeof name, ", %.*s", (int)(m.end - m.last), m.last);
        if (!strstr(valid, name))
            clv_text_add(&text, "%s", name);
    }
    clv_text_finish(&text);
    return clv_fail(err, CLV_EINVAL, "LoRA target '%.64s'; valid: %s", one, valid);
}

static clv_status check_targets(const char *targets, const clv_model_config *base, clv_error *err)
{
    if (is_all_linear(targets))
        return CLV_OK;
    for (const char *at = targets;; at++) {
        size_t n = strcspn(at, ",");
        CLV_TRY(check_target(at, n, base, err));
        at += n;
        if (*at == '\0')
            return CLV_OK;
    }
}

/* A rank above the narrowest side of a target would add nothing. */
static clv_status check_rank(const clv_adapters *s, int64_t rank, clv_error *err)
{
    int64_t most = INT64_MAX;
    clv_lora_module narrowest = {.last = "", .end = ""};
    for (clv_lora_module m = {0}; clv_lora_next_module(&m, s->base);) {
        const int64_t in = clv_model_dims_elems(s->base, m.row->in),
                      out = clv_model_dims_elems(s->base, m.row->out) * (m.row->of > 0 ? m.row->of : 1);
        const clv_lora_rows *its = &s->of[m.row - s->base->family->parameters];
        if (its->b && m.k == (its->part > 0) && (out < in ? out : in) < most) {
            most = out < in ? out : in;
            narrowest = m;
        }
    }
    if (rank < 1 || rank > most)
        return clv_fail(err, CLV_EINVAL, "a LoRA rank of %lld; valid: 1 to %lld, the narrowest side of %.*s",
                        (long long)rank, (long long)most, (int)(narrowest.end - narrowest.last), narrowest.last);
    return CLV_OK;
}

static clv_status fill(clv_adapters *s, const clv_lora_options *o, clv_error *err)
{
    size_t n = 1;
    if (!isfinite(o->alpha) || o->alpha < 0)
        return clv_fail(err, CLV_EINVAL, "a LoRA alpha of %g; valid: above 0, or 0: the rank", o->alpha);
    if (!(o->dropout >= 0 && o->dropout < 1))
        return clv_fail(err, CLV_EINVAL, "a LoRA dropout of %g; valid: 0 <= dropout < 1", o->dropout);
    CLV_TRY(check_targets(o->targets, s->base, err));
    while (s->base->family->parameters[n - 1].name)
        n++;
    s->rows = clv_arena_alloc(s->arena, 2 * n, sizeof *s->rows);
    s->of = clv_arena_alloc(s->arena, n, sizeof *s->of);
    s->targets = clv_arena_alloc(s->arena, 2 * n, sizeof *s->targets);
    if (!s->rows || !s->of || !s->targets)
        return clv_fail_memory(err, "a table of adapters", 2 * n * sizeof *s->rows);
    CLV_TRY(add_rows(s, o->targets, err));
    s->family = *s->base->family;
    s->family.base = "";
    s->family.parameters = s->rows;
    s->config = *s->base;
    s->config.family = &s->family;
    if (!o->folder) /* PEFT's ranks are taken as they are */
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
    if (!s || !(s->arena = clv_arena_new())) {
        free(s);
        return clv_fail_memory(err, "adapters", sizeof *s);
    }
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
    clv_arena_free(s->arena);
    free(s);
}

/* ---- access ---- */

void clv_lora_name_a(char *out, size_t size, const clv_lora_module *m, const clv_model_config *base, int64_t layer,
                     bool is_bare)
{
    const char *name = is_bare ? bare_name(base, m->tensor) : m->tensor, *at = strchr(name, '%');
    if (at)
        snprintf(out, size, "%s%.*s%lld%.*s.lora_A.weight", clv_adapters_peft_base, (int)(at - name), name,
                 (long long)layer, (int)(m->end - at - 1), at + 1);
    else
        snprintf(out, size, "%s%.*s.lora_A.weight", clv_adapters_peft_base, (int)(m->end - name), name);
}

bool clv_adapters_find(clv_lora_adapter *out, clv_parameter *a, clv_parameter *b, const clv_adapters *s,
                       const char *weight)
{
    clv_parameter p;
    if (clv_model_parameter_find(&p, s->base, weight, NULL) != CLV_OK)
        return false;
    const clv_lora_rows *its = &s->of[p.row - s->base->family->parameters];
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
