/* op_registry.c - op registry: built-in and user-registered op definitions by name; clv_emit.
 *
 * Registered definitions are kept for the life of the process, because programs refer to them. The list only grows, at
 * its head, and its entries never change, so it is read without a lock.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "ops/builtin_ops.h"

#define BUILTIN(name) &clv_op_##name,
static const clv_op_def *const builtins[] = {CLV_BUILTIN_OPS(BUILTIN)};
#undef BUILTIN

enum { N_BUILTINS = sizeof builtins / sizeof *builtins, MAX_ATTR_BYTES = 1 << 20 };

typedef struct custom_op {
    struct custom_op *next;
    clv_op_def def;
} custom_op;

static _Atomic(custom_op *) first_custom;
static pthread_mutex_t register_lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- lookup ---- */

const clv_op_def *clv_op_next(const clv_op_def *after)
{
    const custom_op *first = atomic_load_explicit(&first_custom, memory_order_acquire);
    if (!after)
        return builtins[0];
    for (int i = 0; i < N_BUILTINS; i++)
        if (builtins[i] == after)
            return i + 1 < N_BUILTINS ? builtins[i + 1] : first ? &first->def : NULL;
    for (const custom_op *c = first; c; c = c->next)
        if (&c->def == after)
            return c->next ? &c->next->def : NULL;
    return NULL;
}

static const clv_op_def *find_builtin(const char *name)
{
    for (int i = 0; i < N_BUILTINS; i++)
        if (strcmp(builtins[i]->name, name) == 0)
            return builtins[i];
    return NULL;
}

const clv_op_def *clv_op_find(const char *name)
{
    const clv_op_def *found = name ? find_builtin(name) : NULL;
    const custom_op *c = name ? atomic_load_explicit(&first_custom, memory_order_acquire) : NULL;
    for (; !found && c; c = c->next)
        found = strcmp(c->def.name, name) == 0 ? &c->def : NULL;
    return found;
}

const char *clv_op_display_name(const clv_op_def *def)
{
    if (!def)
        return "";
    return def->display_name ? def->display_name : def->name;
}

/* ---- registration ---- */

static bool is_name(const char *name)
{
    size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-");
    return n > 0 && name[n] == '\0' && n < CLV_OP_NAME;
}

/* Checks that the fields of the table of attributes have valid names and kinds and lie within attrs_size. */
static clv_status check_attrs(const clv_op_def *def, clv_error *err)
{
    for (const clv_attr *a = def->attrs; a && a->name; a++) {
        if (!is_name(a->name))
            return clv_fail(err, CLV_EINVAL,
                            "op '%s': attribute %d has no valid name: 1 to %d letters, digits and \"_.-\"", def->name,
                            (int)(a - def->attrs), CLV_OP_NAME - 1);
        for (const clv_attr *before = def->attrs; before < a; before++)
            if (strcmp(before->name, a->name) == 0)
                return clv_fail(err, CLV_EINVAL, "op '%s': two attributes are called '%s'", def->name, a->name);
        if (a->count < 0)
            return clv_fail(err, CLV_EINVAL, "op '%s': attribute '%s' counts %d; valid: 0 and above", def->name,
                            a->name, a->count);
        size_t size = clv_attr_size(a->kind);
        if (size == 0)
            return clv_fail(err, CLV_EINVAL, "op '%s': attribute '%s' has an unknown kind (%d)", def->name, a->name,
                            (int)a->kind);
        size_t count = a->count > 0 ? (size_t)a->count : 1;
        if (a->offset > def->attrs_size || count > (def->attrs_size - a->offset) / size)
            return clv_fail(err, CLV_EINVAL, "op '%s': attribute '%s' lies outside attrs_size, %zu bytes", def->name,
                            a->name, def->attrs_size);
    }
    return CLV_OK;
}

static clv_status check_counts(const clv_op_def *def, clv_error *err)
{
    if (def->min_in < 0 || def->max_in < def->min_in || def->max_in > CLV_MAX_IN)
        return clv_fail(err, CLV_EINVAL, "op '%s' takes %d to %d operands; valid: 0 <= min_in <= max_in <= %d",
                        def->name, def->min_in, def->max_in, CLV_MAX_IN);
    if (def->n_out < 1 || def->n_out > CLV_MAX_OUT)
        return clv_fail(err, CLV_EINVAL, "op '%s' has %d results; valid: n_out from 1 to %d", def->name, def->n_out,
                        CLV_MAX_OUT);
    uint32_t taken = 0;
    for (int o = 0; o < CLV_MAX_OUT; o++) {
        if (def->in_place[o] < 0 || def->in_place[o] > (o < def->n_out ? def->max_in : 0))
            return clv_fail(err, CLV_EINVAL, "op '%s': in_place[%d] is %d; valid: 0, or 1 + an operand, of a result",
                            def->name, o, def->in_place[o]);
        if (def->in_place[o] > 0 && (taken >> def->in_place[o] & 1))
            return clv_fail(err, CLV_EINVAL, "op '%s': in_place gives operand %d to two results; valid: one", def->name,
                            def->in_place[o] - 1);
        taken |= 1u << def->in_place[o];
    }
    if (def->attrs_size > MAX_ATTR_BYTES)
        return clv_fail(err, CLV_ELIMIT, "op '%s': attributes of %zu bytes; valid: at most %d", def->name,
                        def->attrs_size, MAX_ATTR_BYTES);
    return CLV_OK;
}

static clv_status check_def(const clv_op_def *def, clv_error *err)
{
    if (!def->name || !is_name(def->name))
        return clv_fail(err, CLV_EINVAL, "%s%.80s%s is not a valid op name; valid: 1 to %d letters, digits and \"_.-\"",
                        def->name ? "'" : "", def->name ? def->name : "NULL", def->name ? "'" : "", CLV_OP_NAME - 1);
    const char *missing = !def->shape  ? "shape, the types of its results"
                          : !def->rule ? "rule, how it may be split (an empty function: not at all)"
                          : !def->run  ? "run, its kernel"
                                       : NULL;
    if (missing)
        return clv_fail(err, CLV_EINVAL, "op '%s' has no %s", def->name, missing);
    if (def->traits)
        return clv_fail(err, CLV_EINVAL, "op '%s': `traits` is for built-in ops; valid: NULL", def->name);
    if (def->counts_flops && !def->cost)
        return clv_fail(err, CLV_EINVAL, "op '%s' counts_flops, but has no cost function", def->name);
    CLV_TRY(check_counts(def, err));
    return check_attrs(def, err);
}

static bool same_attrs(const clv_attr *a, const clv_attr *b)
{
    while (a != b && a && b && a->name && b->name && strcmp(a->name, b->name) == 0 && a->kind == b->kind &&
           a->offset == b->offset && a->count == b->count)
        a++, b++;
    return a == b || (a && b && !a->name && !b->name);
}

/* Compares field by field: padding may hold anything. */
static bool equal_definitions(const clv_op_def *a, const clv_op_def *b)
{
    return a->min_in == b->min_in && a->max_in == b->max_in && a->n_out == b->n_out &&
           memcmp(a->in_place, b->in_place, sizeof a->in_place) == 0 && a->may_be_lowest == b->may_be_lowest &&
           a->attrs_size == b->attrs_size && same_attrs(a->attrs, b->attrs) && a->shape == b->shape &&
           a->rule == b->rule && a->gradient == b->gradient && a->cost == b->cost && a->workspace == b->workspace &&
           a->run == b->run && a->counts_flops == b->counts_flops && a->statistics == b->statistics &&
           strcmp(clv_op_display_name(a), clv_op_display_name(b)) == 0;
}

static bool is_builtin(const clv_op_def *def)
{
    bool is = false;
    for (int i = 0; i < N_BUILTINS; i++)
        is = is || builtins[i] == def;
    return is;
}

/* Returns the registered definition that equals the caller's; registers it first if there is none of its name. */
static clv_status find_or_register(const clv_op_def **out, const clv_op_def *given, clv_error *err)
{
    clv_op_def def;
    if (is_builtin(given)) {
        *out = given;
        return CLV_OK;
    }
    CLV_TRY(clv_options_copy_in(&def, sizeof def, sizeof def, given, "an op's definition", err));
    CLV_TRY(check_def(&def, err));
    pthread_mutex_lock(&register_lock);
    *out = clv_op_find(def.name);
    custom_op *custom = *out ? NULL : malloc(sizeof *custom);
    if (custom) {
        *custom = (custom_op){.next = atomic_load_explicit(&first_custom, memory_order_relaxed), .def = def};
        atomic_store_explicit(&first_custom, custom, memory_order_release);
        *out = &custom->def;
    }
    pthread_mutex_unlock(&register_lock);
    if (!*out)
        return clv_fail_memory(err, "an op's definition", sizeof *custom);
    if (!equal_definitions(*out, &def)) {
        *out = NULL;
        return clv_fail(err, CLV_EEXIST, "another op is called '%s'%s; give yours a prefix of its own", def.name,
                        find_builtin(def.name) ? ", a built-in op" : "");
    }
    return CLV_OK;
}

clv_status clv_op_register(const clv_op_def *def, clv_error *err)
{
    const clv_op_def *found;
    CLV_TRY(clv_require(def != NULL, __func__, "a definition", err));
    return find_or_register(&found, def, err);
}

/* ---- clv_emit ---- */

static bool is_valid_cost(double x)
{
    return x >= 0 && x <= 1e300;
}

clv_status clv_op_cost_check(clv_op_cost *cost, const clv_op *op, const clv_type *in, const clv_type *out,
                             clv_error *err)
{
    clv_op_cost reported = op->def->cost ? op->def->cost(op, in, out) : (clv_op_cost){0};
    if (!is_valid_cost(reported.flops) || !is_valid_cost(reported.bytes))
        return clv_fail(err, CLV_EINVAL, "it costs %g flops and %g bytes; valid: finite, not negative", reported.flops,
                        reported.bytes);
    if (cost)
        *cost = reported;
    return CLV_OK;
}

/* Calls the op's rule and cost with the whole tensors, and checks what they return. */
static clv_status try_op(const clv_graph *graph, const clv_op *op, clv_error *err)
{
    clv_type in[CLV_MAX_IN] = {0}, out[CLV_MAX_OUT] = {0};
    for (int i = 0; i < op->n_in; i++)
        in[i] = clv_graph_type(graph, clv_op_operand(op, i));
    for (int o = 0; o < op->n_out; o++)
        out[o] = clv_graph_type(graph, clv_op_result(op, o));
    CLV_TRY(clv_rule_check(op, in, out, err));
    return clv_op_cost_check(NULL, op, in, out, err);
}

static clv_status check_emit(const clv_op_def **out, const clv_op_def *given, const void *attrs, const clv_value *in,
                             int n_in, bool builtins_allowed, clv_error *err)
{
    CLV_TRY(find_or_register(out, given, err));
    const clv_op_def *def = *out;
    if (!builtins_allowed && is_builtin(def))
        return clv_fail(err, CLV_EINVAL, "op '%s' is built in: call its builder (graph.h)", def->name);
    if ((def->attrs_size > 0) != (attrs != NULL))
        return clv_fail(err, CLV_EINVAL, "op '%s' has %zu bytes of attributes; %s", def->name, def->attrs_size,
                        attrs ? "some are given: NULL is needed" : "none are given");
    if (n_in < 0 || (n_in > 0 && !in))
        return clv_fail(err, CLV_EINVAL, "op '%s': %d operands, %s", def->name, n_in, in ? "a list" : "and no list");
    return CLV_OK;
}

static void emit(clv_graph *graph, const clv_op_def *def, const void *attrs, const clv_value *in, int n_in,
                 clv_value *out, bool builtins_allowed)
{
    clv_value made[CLV_MAX_OUT];
    clv_error why = {0};
    if (!clv_graph_require(graph, def && out, "clv_emit", "an op's definition, and room for its results"))
        return;
    const clv_op_def *full = NULL;
    out[0] = CLV_NONE;
    if (check_emit(&full, def, attrs, in, n_in, builtins_allowed, &why) != CLV_OK) {
        clv_graph_fail(graph, why.code, "%s%s", graph->scope, why.message);
        for (int o = 0; full && o < full->n_out; o++)
            out[o] = CLV_NONE;
        return;
    }
    clv_graph_emit(graph, full, attrs, in, n_in, made);
    if (clv_graph_ok(graph)) {
        const clv_op *op = &graph->ops[graph->n_ops - 1];
        if (try_op(graph, op, &why) != CLV_OK) { /* remove the op, which is the last one */
            clv_graph_fail(graph, why.code, "%s: %s", op->name, why.message);
            graph->n_values -= full->n_out;
            graph->n_ops--;
        }
    }
    for (int o = 0; o < full->n_out; o++)
        out[o] = clv_graph_ok(graph) ? made[o] : CLV_NONE;
}

void clv_emit(clv_graph *graph, const clv_op_def *def, const void *attrs, const clv_value *in, int n_in, clv_value *out)
{
    emit(graph, def, attrs, in, n_in, out, false);
}

void clv_emit_custom_or_builtin(clv_graph *graph, const clv_op_def *def, const void *attrs, const clv_value *in,
                                int n_in, clv_value *out)
{
    emit(graph, def, attrs, in, n_in, out, true);
}
