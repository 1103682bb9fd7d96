/* custom_family.c - clv_model_register_family: validates a user-defined family and adapts its callbacks to
 * model_family.h.
 */
#include "cleave/family.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "graph/graph.h"
#include "models/config/config_readers.h"
#include "models/families/family_registry.h"

enum { LAYER_DIGITS = 20 };

/* `family` must come first: a pointer to it is one to the struct. */
typedef struct custom_family {
    clv_model_family family;
    clv_family stated;
    clv_parameter_row rows[]; /* ended by one without a name */
} custom_family;

static const clv_family *custom_family_of(const clv_model_config *c)
{
    return &((const custom_family *)c->family)->stated;
}

/* ---- config.json ---- */

/* Copies the family's view into the config; sizes that are 0 get their defaults. */
static clv_status set_config(clv_model_config *c, const clv_family_model *m, const char *where, clv_error *err)
{
    c->hidden = m->hidden;
    c->layers = m->layers;
    c->heads = m->heads ? m->heads : 1;
    c->kv_heads = m->kv_heads ? m->kv_heads : c->heads;
    c->head_dim = m->head_dim;
    c->ffn = m->ffn ? m->ffn : 4 * m->hidden;
    c->vocab = m->vocab;
    c->max_positions = m->max_positions ? m->max_positions : 2048;
    c->norm_eps = m->norm_eps;
    c->rope.theta = m->rope_theta;
    c->activation = m->activation ? m->activation : CLV_SILU;
    c->bidirectional = m->bidirectional != 0;
    c->tie_word_embeddings = m->tied_embeddings != 0;
    memcpy(c->number, m->number, sizeof c->number);
    memcpy(c->real, m->real, sizeof c->real);
    return c->head_dim ? CLV_OK : clv_config_set_head_dim(c, "hidden", "heads", where, err);
}

static bool is_own(const clv_family_key *key)
{
    size_t at = offsetof(clv_family_model, number);
    return key->offset >= at && key->offset < at + sizeof((clv_family_model *)0)->number;
}

static clv_status read_key(clv_family_model *m, const clv_family_key *key, const json_t *o, const char *where,
                           clv_error *err)
{
    char *at = (char *)m + key->offset;
    clv_json_need need = key->required ? CLV_JSON_REQUIRED : CLV_JSON_OPTIONAL;
    int64_t number = (int64_t)key->default_value, most = is_own(key) ? INT64_C(1) << 53 : CLV_MAX_POSITIONS;
    double real = key->default_value;
    bool flag = key->default_value != 0;
    clv_unary_kind activation = (clv_unary_kind)number;
    switch (key->type) {
    case CLV_KEY_INT:
        CLV_TRY(clv_json_get_int(&number, o, key->key, need, is_own(key) ? -most : 0, most, where, err));
        memcpy(at, &number, sizeof number);
        return CLV_OK;
    case CLV_KEY_REAL:
        CLV_TRY(clv_json_get_real(&real, o, key->key, need, -DBL_MAX, DBL_MAX, where, err));
        memcpy(at, &real, sizeof real);
        return CLV_OK;
    case CLV_KEY_FLAG:
        CLV_TRY(clv_json_get_bool(&flag, o, key->key, need, where, err));
        memcpy(at, &(int){flag}, sizeof(int));
        return CLV_OK;
    case CLV_KEY_ACTIVATION:
        CLV_TRY(clv_config_read_activation(&activation, o, key->key, where, err));
        memcpy(at, &activation, sizeof activation);
        return CLV_OK;
    }
    return CLV_OK;
}

/* Calls the family's complete(), and checks the result. An activation of config.json must have a name. */
static clv_status complete(clv_family_model *m, const clv_family *f, const char *where, clv_error *err)
{
    clv_error why = {0};
    clv_status status = f->complete ? clv_check_callback_status(&why, f->complete(m, &why), "its complete()") : CLV_OK;
    if (status != CLV_OK)
        return clv_fail(err, status, "%s: family %s: %s", where, f->model_type,
                        why.message[0] ? why.message : clv_status_text(status));
    if (!isfinite(m->norm_eps) || !isfinite(m->rope_theta))
        return clv_fail(err, CLV_EFORMAT, "%s: family %s: norm_eps is %g, rope_theta %g; valid: finite", where,
                        f->model_type, m->norm_eps, m->rope_theta);
    for (int i = 0; i < f->n_keys && m->activation; i++)
        if (f->keys[i].type == CLV_KEY_ACTIVATION && !clv_config_activation_name(m->activation))
            return clv_fail(err, CLV_EFORMAT, "%s: family %s: \"%s\" has no name for the activation %d", where,
                            f->model_type, f->keys[i].key, (int)m->activation);
    return CLV_OK;
}

static clv_status read_custom(clv_model_config *c, const json_t *o, const char *where, clv_error *err)
{
    const clv_family *f = custom_family_of(c);
    clv_family_model m = {.headless = c->headless};
    for (int i = 0; i < f->n_keys; i++)
        CLV_TRY(read_key(&m, &f->keys[i], o, where, err));
    CLV_TRY(complete(&m, f, where, err));
    return set_config(c, &m, where, err);
}

static json_t *value_of(const clv_family_model *m, const clv_family_key *key)
{
    const char *at = (const char *)m + key->offset;
    int64_t number;
    double real;
    int flag;
    clv_unary_kind activation;
    switch (key->type) {
    case CLV_KEY_INT:
        return json_integer(memcpy(&number, at, sizeof number) ? number : 0);
    case CLV_KEY_REAL:
        return json_real(memcpy(&real, at, sizeof real) ? real : 0);
    case CLV_KEY_FLAG:
        return json_boolean(memcpy(&flag, at, sizeof flag) && flag);
    case CLV_KEY_ACTIVATION:
        memcpy(&activation, at, sizeof activation);
        return json_string(clv_config_activation_name(activation));
    }
    return NULL;
}

static json_t *write_custom(const clv_model_config *c)
{
    const clv_family *f = custom_family_of(c);
    const clv_family_model m = clv_family_model_from_config(c);
    json_t *o = json_object();
    for (int i = 0; o && i < f->n_keys; i++)
        if (json_object_set_new(o, f->keys[i].key, value_of(&m, &f->keys[i])) != 0) {
            json_decref(o);
            o = NULL;
        }
    return o;
}

/* ---- graphs ---- */

static clv_family_graph_options build_of(const clv_model_build_options *b, const clv_model_inputs *in)
{
    clv_family_graph_options build = {.size = sizeof build,
                                      .batch = b->batch,
                                      .seq = b->seq,
                                      .rules = &b->rules,
                                      .dtype = b->dtype,
                                      .context = b->context};
    if (in) {
        build.ids = in->ids;
        build.mask = in->mask;
        build.offset = in->offset;
    }
    return build;
}

static clv_value hidden_custom(clv_graph *graph, const clv_model_config *c, const clv_model_build_options *b,
                               const clv_model_inputs *in)
{
    const clv_family_model m = clv_family_model_from_config(c);
    const clv_family_graph_options build = build_of(b, in);
    if (b->dropout != 0 || b->attention_dropout != 0)
        return clv_graph_fail(graph, CLV_EUNSUPPORTED, "dropout for the registered family %s; valid: 0",
                              c->family->model_type);
    return custom_family_of(c)->hidden(graph, &m, &build);
}

static clv_value head_custom(clv_graph *graph, const clv_model_config *c, const clv_model_build_options *b,
                             clv_value hidden, clv_value table)
{
    const clv_family_model m = clv_family_model_from_config(c);
    const clv_family_graph_options build = build_of(b, NULL);
    return custom_family_of(c)->head ? custom_family_of(c)->head(graph, &m, &build, hidden, table)
                                     : clv_model_logits(graph, c, b, hidden, table);
}

/* ---- checking a family ---- */

static bool is_text(const char *text, size_t most)
{
    return text && text[0] && strlen(text) < most;
}

static bool has_letters(const char *letters)
{
    return letters && strspn(letters, "VMHKDFP") == strlen(letters);
}

/* Number of layer marks. */
static int marks(const char *name)
{
    int n = 0;
    for (; *name; name++)
        n += *name == '%';
    return n;
}

static const char *fault_of_key(const clv_family_key *key)
{
    size_t size = key->type == CLV_KEY_INT || key->type == CLV_KEY_REAL ? 8 : sizeof(int);
    if (!is_text(key->key, CLV_PARAMETER_NAME_SIZE))
        return "no text";
    if ((unsigned)key->type > CLV_KEY_ACTIVATION)
        return "of an unknown type";
    if (key->offset % size != 0 || key->offset + size > offsetof(clv_family_model, reserved))
        return "no field of clv_family_model";
    return NULL;
}

static const char *fault_of_row(const clv_family_parameter *row)
{
    if (!is_text(row->name, CLV_PARAMETER_NAME_SIZE - LAYER_DIGITS) ||
        !is_text(row->tensor, CLV_TENSOR_NAME_SIZE - LAYER_DIGITS))
        return "a name that is missing or too long";
    if (marks(row->name) > 1 || marks(row->tensor) != marks(row->name) ||
        (row->second_tensor && (row->form != CLV_PARAMETER_LINEAR || marks(row->second_tensor) != marks(row->name))))
        return "the layer's mark % in one name and not in another, or a second tensor in a form that has none";
    if ((unsigned)row->form > CLV_PARAMETER_CONV1D || !has_letters(row->in) || !has_letters(row->out) || !row->out[0] ||
        strlen(row->in) + strlen(row->out) >= CLV_MAX_RANK)
        return "an unknown form, or dimensions other than V, M, H, K, D, F, P";
    if (row->of != 0 &&
        (row->form != CLV_PARAMETER_CONV1D || row->first < 0 || row->take < 1 || row->first > row->of - row->take))
        return "parts that the fused tensor does not have";
    return row->of == 0 && (row->first != 0 || row->take != 0) ? "parts of a tensor that is not fused" : NULL;
}

/* A later part of a fused tensor must come after the first; rows of layers must be side by side. */
static const char *fault_of_order(const clv_family *f, int i)
{
    bool found = f->parameters[i].first == 0, layered = marks(f->parameters[i].name) == 1;
    for (int k = 0; k < i; k++) {
        found = found || strcmp(f->parameters[k].tensor, f->parameters[i].tensor) == 0;
        if (layered && marks(f->parameters[k].name) == 1 && marks(f->parameters[i - 1].name) == 0)
            return "a layer's, apart from the others of layers";
    }
    return found ? NULL : "a part of a tensor whose first part is not before it";
}

static clv_status check(const clv_family *f, clv_error *err)
{
    static const char call[] = "clv_model_register_family";
    const char *fault = NULL;
    if (!is_text(f->model_type, CLV_PARAMETER_NAME_SIZE) || !is_text(f->architecture, CLV_PARAMETER_NAME_SIZE) ||
        !is_text(f->bare, CLV_PARAMETER_NAME_SIZE) || !f->hidden)
        return clv_fail(err, CLV_EINVAL, "%s: model_type, architecture, bare and hidden are needed", call);
    if (f->n_keys < 1 || !f->keys || f->n_parameters < 1 || !f->parameters)
        return clv_fail(err, CLV_EINVAL, "%s: %s has no keys or no parameters", call, f->model_type);
    for (int i = 0; i < f->n_keys; i++)
        if ((fault = fault_of_key(&f->keys[i])))
            return clv_fail(err, CLV_EINVAL, "%s: %s: key %d is %s", call, f->model_type, i, fault);
    for (int i = 0; i < f->n_parameters; i++)
        if ((fault = fault_of_row(&f->parameters[i])) || (fault = fault_of_order(f, i)))
            return clv_fail(err, CLV_EINVAL, "%s: %s: parameter %d: %s", call, f->model_type, i, fault);
    return CLV_OK;
}

clv_status clv_model_register_family(const clv_family *family, clv_error *err)
{
    clv_family f;
    CLV_TRY(clv_require(family != NULL, __func__, "a family", err));
    CLV_TRY(clv_options_copy_in(&f, sizeof f, sizeof f, family, __func__, err));
    CLV_TRY(check(&f, err));
    size_t bytes = sizeof(custom_family) + ((size_t)f.n_parameters + 1) * sizeof(clv_parameter_row);
    custom_family *own = calloc(1, bytes);
    if (!own)
        return clv_fail_memory(err, "a family", bytes);
    own->stated = f;
    for (int i = 0; i < f.n_parameters; i++) {
        const clv_family_parameter *p = &f.parameters[i];
        own->rows[i] = (clv_parameter_row){.name = p->name,
                                           .tensor = p->tensor,
                                           .second_tensor = p->second_tensor,
                                           .form = p->form,
                                           .in = p->in,
                                           .out = p->out,
                                           .first = p->first,
                                           .of = p->of,
                                           .take = p->take,
                                           .stated = p->when};
    }
    own->family = (clv_model_family){.is_custom = true,
                                     .model_type = f.model_type,
                                     .architecture = f.architecture,
                                     .bare = f.bare,
                                     .base = f.base ? f.base : "",
                                     .read = read_custom,
                                     .write = write_custom,
                                     .hidden = hidden_custom,
                                     .head = head_custom,
                                     .parameters = own->rows};
    clv_status status = clv_families_add(&own->family, err);
    if (status != CLV_OK)
        free(own);
    return status;
}
