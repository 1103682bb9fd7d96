/* torch_program.c - the JSON of an exported program as a module: a function of its inputs and state, an op a node. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text/c_locale.h"
#include "interop/torch/torch.h"

enum { SCHEMA_MAJOR = 8, NESTING = 4 /* of lists in arguments */ };

typedef struct reader {
    mlir_module *module;
    clv_arena *arena;
    const json_t *graph, *types;
    json_t *ids; /* name of a tensor -> id */
} reader;

static clv_status malformed(const reader *r, clv_error *err, const char *what)
{
    return clv_fail(err, CLV_EFORMAT, "%s: not a program of torch.export: %s", r->module->file, what);
}

static clv_status no_memory(clv_error *err)
{
    return clv_fail_memory(err, "a program", 0);
}

/* ---- values ---- */

/* Gives a name an id, if it has none. */
static int new_id(reader *r, const char *name)
{
    int id = ++r->module->n_values;
    if (name)
        json_object_set_new_nocheck(r->ids, name, json_integer(id));
    return id;
}

static clv_status type_of(mlir_type *out, reader *r, const char *name, mlir_place at, clv_error *err)
{
    const mlir_type *type = torch_type(r->arena, name ? json_object_get(r->types, name) : NULL, at);
    if (!type)
        return no_memory(err);
    *out = *type;
    return CLV_OK;
}

/* ---- where a node was made ---- */

/* The innermost frame of a stack trace, 'File "/a/model.py", line 12, in forward', that is none of PyTorch's own. */
static const mlir_loc *read_location(reader *r, const char *trace)
{
    mlir_loc *loc = clv_arena_alloc(r->arena, 1, sizeof *loc);
    for (const char *p = trace; loc && p && (p = strstr(p, "File \"")) != NULL;) {
        const char *file = p + 6, *end = strstr(file, "\", line ");
        if (!end)
            break;
        size_t n = (size_t)(end - file);
        char *copy = clv_arena_alloc(r->arena, n + 1, 1);
        if (!copy)
            return NULL;
        memcpy(copy, file, n);
        bool own = strstr(copy, "/torch/") != NULL || copy[0] == '<';
        if (!own) {
            loc->file = copy;
            loc->line = (int)strtol(end + 8, NULL, 10);
        }
        p = end;
    }
    return loc && loc->file ? loc : NULL;
}

/* The path of the innermost module of "L__self__,,A;L__self__h,h.0,B", with a dot behind; NULL: there is none. */
static const char *read_scope(reader *r, const char *stack)
{
    const char *last = stack ? strrchr(stack, ';') : NULL, *path = stack ? strchr(last ? last : stack, ',') : NULL;
    size_t n = path ? strcspn(path + 1, ",") : 0;
    if (!path || n == 0 || n > 400)
        return path && n == 0 ? "" : NULL;
    return clv_arena_format(r->arena, "%.*s.", (int)n, path + 1);
}

/* ---- arguments of a node ---- */

static clv_status read_argument(mlir_attr *out, reader *r, mlir_op *op, const json_t *argument, int depth,
                                clv_error *err);

static clv_status add_operand(mlir_attr *out, reader *r, mlir_op *op, const json_t *tensor, clv_error *err)
{
    const char *name = torch_string(tensor, "name");
    const json_t *id = name ? json_object_get(r->ids, name) : NULL;
    out->kind = MLIR_VALUE;
    if (!id)
        return mlir_fail(r->module, op->at, err, CLV_ESYNTAX, "there is no tensor %.200s",
                         name ? name : "of that name");
    out->number = op->n_operands;
    op->operands[op->n_operands++] = (int)json_integer_value(id);
    return CLV_OK;
}

static clv_status read_list(mlir_attr *out, reader *r, mlir_op *op, const json_t *list, const char *kind, int depth,
                            clv_error *err)
{
    size_t n = json_array_size(list);
    *out = (mlir_attr){.kind = MLIR_LIST, .key = out->key, .at = out->at};
    out->items = clv_arena_alloc(r->arena, n, sizeof *out->items);
    if (!out->items)
        return no_memory(err);
    for (out->n = 0; out->n < (int)n; out->n++) {
        mlir_attr *item = &out->items[out->n];
        const json_t *element = json_array_get(list, (size_t)out->n);
        *item = (mlir_attr){.key = "", .at = out->at};
        if (strcmp(kind, "as_tensors") == 0)
            CLV_TRY(add_operand(item, r, op, element, err));
        else
            CLV_TRY(read_argument(item, r, op, element, depth + 1, err));
    }
    return CLV_OK;
}

/* A number, a text, a list, a tensor, or a union of one of them. What has no meaning for us (devices, memory formats)
 * is MLIR_UNIT; what is symbolic is a word, which no op takes for a number. */
static clv_status read_argument(mlir_attr *out, reader *r, mlir_op *op, const json_t *j, int depth, clv_error *err)
{
    const char *kind = "";
    if (depth > NESTING)
        return mlir_fail(r->module, op->at, err, CLV_EUNSUPPORTED, "%s: lists of lists", out->key);
    out->kind = MLIR_UNIT;
    if (json_is_integer(j) || json_is_boolean(j)) {
        out->kind = MLIR_INT;
        out->number = json_is_boolean(j) ? json_is_true(j) : json_integer_value(j);
        out->real = (double)out->number;
    } else if (json_is_real(j)) {
        out->kind = MLIR_REAL;
        out->real = json_real_value(j);
    } else if (json_is_string(j)) {
        out->kind = MLIR_STRING;
        out->text = json_string_value(j);
    } else if (json_is_array(j))
        return read_list(out, r, op, j, "", depth, err);
    else if (json_is_object(j)) {
        const json_t *value = torch_union(j, &kind);
        if (strcmp(kind, "as_tensor") == 0)
            return add_operand(out, r, op, value, err);
        if (strcmp(kind, "as_tensors") == 0)
            return read_list(out, r, op, value, kind, depth, err);
        if (strcmp(kind, "as_none") == 0 || strcmp(kind, "as_device") == 0 || strcmp(kind, "as_layout") == 0 ||
            strcmp(kind, "as_memory_format") == 0 || strcmp(kind, "as_scalar_type") == 0)
            return CLV_OK;
        if (strcmp(kind, "as_float") == 0 && json_is_string(value)) { /* "Infinity", "-Infinity", "NaN" */
            out->kind = MLIR_REAL;
            out->real = strtod(json_string_value(value), NULL);
            return CLV_OK;
        }
        if (strncmp(kind, "as_", 3) == 0 && strcmp(kind, "as_name") != 0 && !strstr(kind, "graph") &&
            !strstr(kind, "obj") && !strstr(kind, "operator") && !strstr(kind, "complex"))
            return read_argument(out, r, op, value, depth + 1, err);
        out->kind = MLIR_WORD;
        out->text = json_is_string(value) ? json_string_value(value) : kind;
    }
    return CLV_OK;
}

/* Most operands that the arguments can have. */
static size_t count_elements(const json_t *j, int depth)
{
    size_t n = 1, i;
    const char *key;
    const json_t *value;
    json_t *item;
    if (depth > 2 * NESTING)
        return n;
    if (json_is_array(j))
        json_array_foreach(j, i, value) n += count_elements(value, depth + 1);
    else if (json_is_object(j))
        json_object_foreach((json_t *)j, key, item) n += count_elements(item, depth + 1);
    return n;
}

static clv_status read_arguments(mlir_op *op, reader *r, const json_t *inputs, clv_error *err)
{
    size_t n = json_array_size(inputs);
    op->attrs = clv_arena_alloc(r->arena, n, sizeof *op->attrs);
    op->operands = clv_arena_alloc(r->arena, count_elements(inputs, 0), sizeof *op->operands);
    if (!op->attrs || !op->operands)
        return no_memory(err);
    for (size_t i = 0; i < n; i++) {
        const json_t *input = json_array_get(inputs, i);
        mlir_attr *attr = &op->attrs[op->n_attrs++];
        const char *name = torch_string(input, "name");
        *attr = (mlir_attr){.key = name ? name : "", .at = op->at};
        CLV_TRY(read_argument(attr, r, op, json_object_get(input, "arg"), 0, err));
    }
    return CLV_OK;
}

/* ---- results of a node ---- */

static clv_status add_result(mlir_op *op, reader *r, const char *name, clv_error *err)
{
    int id = new_id(r, name);
    op->first_result = op->n_results == 0 ? id : op->first_result;
    return type_of(&op->result_types[op->n_results++], r, name, op->at, err);
}

static clv_status read_results(mlir_op *op, reader *r, const json_t *outputs, clv_error *err)
{
    size_t i, k;
    const json_t *output, *tensor;
    const char *kind;
    op->result_types = clv_arena_alloc(r->arena, count_elements(outputs, 0), sizeof *op->result_types);
    if (!op->result_types)
        return no_memory(err);
    json_array_foreach(outputs, i, output)
    {
        const json_t *value = torch_union(output, &kind);
        if (strcmp(kind, "as_tensors") == 0)
            json_array_foreach(value, k, tensor) CLV_TRY(add_result(op, r, torch_string(tensor, "name"), err));
        else if (strcmp(kind, "as_none") != 0) /* a symbolic number is a result whose type has a fault */
            CLV_TRY(add_result(op, r, torch_string(value, "name"), err));
    }
    return CLV_OK;
}

static clv_status read_node(mlir_op *op, reader *r, const json_t *node, int number, clv_error *err)
{
    const json_t *metadata = json_object_get(node, "metadata");
    const char *target = torch_string(node, "target"), *name = torch_string(node, "name");
    if (!target)
        return malformed(r, err, "a node without a target");
    *op = (mlir_op){.name = strncmp(target, "torch.ops.", 10) == 0 ? target + 10 : target,
                    .at = {number, 1, name ? name : target}};
    op->loc = read_location(r, torch_string(metadata, "stack_trace"));
    op->scope = read_scope(r, torch_string(metadata, "nn_module_stack"));
    CLV_TRY(read_arguments(op, r, json_object_get(node, "inputs"), err));
    return read_results(op, r, json_object_get(node, "outputs"), err);
}

/* ---- the signature: inputs and state ---- */

/* A tensor of state whose bytes are those of one before is the same parameter under two names. */
static int same_state(const mlir_function *f, const torch_weight *w)
{
    for (int i = 0; i < f->n_args; i++) {
        const torch_weight *other = f->args[i].weight;
        if (other && !f->args[i].constant && other->entry && other->entry == w->entry && other->offset == w->offset &&
            clv_type_equal(&other->type.tensor, &w->type.tensor) &&
            memcmp(other->strides, w->strides, sizeof w->strides) == 0)
            return 1 + i;
    }
    return 0;
}

/* What a spec says: the tensor of the graph, and the state it is. */
static clv_status read_state(mlir_port *port, reader *r, const mlir_function *f, const char *kind, const json_t *spec,
                             clv_error *err)
{
    static const struct {
        const char *kind, *name;
        clv_state_role role;
    } rows[] = {{"parameter", "parameter_name", CLV_ROLE_PARAMETER},
                {"buffer", "buffer_name", CLV_ROLE_BUFFER},
                {"tensor_constant", "tensor_constant_name", CLV_ROLE_BUFFER}};
    torch_weight *weight;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *name = strcmp(rows[i].kind, kind) == 0 ? torch_string(spec, rows[i].name) : NULL;
        if (!name)
            continue;
        port->name = name;
        port->role = rows[i].role;
        port->constant = i == 2;
        if (port->role == CLV_ROLE_PARAMETER && !clv_dtype_is_float(port->type.tensor.dtype))
            port->role = CLV_ROLE_BUFFER;
        CLV_TRY(torch_find_weight(&weight, r->module->archive, r->arena, port->constant, name, &port->type, err));
        port->same = port->constant ? 0 : same_state(f, weight);
        port->weight = weight;
        return CLV_OK;
    }
    return clv_fail(err, CLV_EUNSUPPORTED,
                    "%s: an input of kind %.60s; parameters, buffers, constants and tensors are "
                    "read",
                    r->module->file, kind);
}

static clv_status read_input(mlir_function *f, reader *r, const json_t *spec, clv_error *err)
{
    const char *kind, *which;
    const json_t *value = torch_union(spec, &kind), *argument = json_object_get(value, "arg");
    bool is_user = strcmp(kind, "user_input") == 0;
    if (strcmp(kind, "constant_input") == 0) /* a number or None, which is in the nodes */
        return CLV_OK;
    if (is_user) {
        argument = torch_union(argument, &which);
        if (strcmp(which, "as_tensor") != 0)
            return clv_fail(err, CLV_EUNSUPPORTED, "%s: an input that is no tensor (%.60s)", r->module->file, which);
    }
    const char *name = torch_string(argument, "name");
    if (!name)
        return malformed(r, err, "an input without a name");
    mlir_port *port = &f->args[f->n_args];
    const mlir_place at = {1 + f->n_args, 1, name};
    *port = (mlir_port){.name = name};
    CLV_TRY(type_of(&port->type, r, name, at, err));
    if (!is_user)
        CLV_TRY(read_state(port, r, f, kind, value, err));
    f->body.args[f->n_args++] = new_id(r, name);
    return CLV_OK;
}

static clv_status read_inputs(mlir_function *f, reader *r, const json_t *specs, clv_error *err)
{
    size_t n = json_array_size(specs);
    f->args = clv_arena_alloc(r->arena, n, sizeof *f->args);
    f->body.args = clv_arena_alloc(r->arena, n, sizeof *f->body.args);
    if (!f->args || !f->body.args)
        return no_memory(err);
    for (size_t i = 0; i < n; i++)
        CLV_TRY(read_input(f, r, json_array_get(specs, i), err));
    f->body.n_args = f->n_args;
    return CLV_OK;
}

/* ---- the signature: results ---- */

/* Names of results, as JAX has them: the way to each leaf of what forward returns, "result[0]['logits']". */
typedef struct leaves {
    clv_arena *arena;
    const char **names;
    int n, capacity;
    int next; /* of the results: which leaf it is */
} leaves;

/* The keys of a dictionary or a dataclass: its context is a list of them, or holds one. */
static const json_t *keys_of(const json_t *context, size_t children)
{
    const json_t *first = json_array_get(context, 0);
    if (json_is_array(first) && json_array_size(first) == children)
        context = first;
    return json_array_size(context) == children && json_is_string(json_array_get(context, 0)) ? context : NULL;
}

static clv_status walk(leaves *l, const json_t *spec, const char *path, int depth, clv_error *err)
{
    const json_t *children = json_object_get(spec, "children_spec");
    const char *text = torch_string(spec, "context");
    size_t n = json_array_size(children);
    if (json_is_null(json_object_get(spec, "type")) || depth > 32) {
        if (clv_arena_grow(l->arena, &l->names, &l->capacity, l->n, sizeof *l->names) != 0)
            return no_memory(err);
        l->names[l->n++] = path;
        return CLV_OK;
    }
    json_auto_t *context = text ? json_loads(text, JSON_DECODE_ANY, NULL) : NULL;
    const json_t *keys = keys_of(context, n);
    for (size_t i = 0; i < n; i++) {
        const char *key = json_string_value(json_array_get(keys, i));
        const char *next = key ? clv_arena_format(l->arena, "%s['%.200s']", path, key)
                               : clv_arena_format(l->arena, "%s[%d]", path, (int)i);
        if (!next)
            return no_memory(err);
        CLV_TRY(walk(l, json_array_get(children, i), next, depth + 1, err));
    }
    return CLV_OK;
}

static clv_status name_results(leaves *l, const json_t *graph_module, clv_error *err)
{
    const json_t *calls = json_object_get(graph_module, "module_call_graph"),
                 *signature = json_object_get(json_array_get(calls, 0), "signature");
    const char *text = torch_string(signature, "out_spec");
    json_auto_t *spec = text ? json_loads(text, 0, NULL) : NULL;
    return spec ? walk(l, json_array_get(spec, 1), "result", 0, err) : CLV_OK;
}

/* The argument of a parameter, a buffer or an input. */
static int find_argument(const mlir_function *f, const char *name)
{
    for (int i = 0; name && i < f->n_args; i++)
        if (strcmp(f->args[i].name, name) == 0)
            return 1 + (f->args[i].same ? f->args[i].same - 1 : i);
    return 0;
}

static clv_status read_output(mlir_function *f, mlir_op *end, reader *r, const json_t *spec, leaves *l, clv_error *err)
{
    const char *kind, *which = "as_tensor";
    const json_t *value = torch_union(spec, &kind), *argument = json_object_get(value, "arg");
    bool is_user = strcmp(kind, "user_output") == 0, is_result = is_user || strcmp(kind, "loss_output") == 0;
    const char *target = torch_string(value, "parameter_name");
    mlir_port *port = &f->results[f->n_results];
    mlir_attr ignored = {.key = ""};
    target = target ? target : torch_string(value, "buffer_name");
    target = target ? target : torch_string(value, "user_input_name");
    *port = (mlir_port){.name = is_result && l->next < l->n ? l->names[l->next++] : NULL};
    if (is_user)
        argument = torch_union(argument, &which);
    if (strcmp(which, "as_tensor") != 0) /* None or a number: it is in the program, not computed by it */
        return CLV_OK;
    if (strncmp(kind, "gradient_to_", 12) == 0)
        port->name = clv_arena_format(r->arena, "grad.%.200s", target ? target : "");
    else if (strcmp(kind, "buffer_mutation") == 0 || strcmp(kind, "parameter_mutation") == 0) {
        port->assigns = find_argument(f, target);
        port->name = clv_arena_format(r->arena, "new.%.200s", target ? target : "");
        if (!port->assigns)
            return malformed(r, err, "a mutation of no state");
    } else if (!is_result)
        return clv_fail(err, CLV_EUNSUPPORTED, "%s: a result of kind %.60s (%.100s)", r->module->file, kind,
                        target ? target : "-");
    CLV_TRY(add_operand(&ignored, r, end, argument, err));
    CLV_TRY(type_of(&port->type, r, torch_string(argument, "name"), end->at, err));
    f->n_results++;
    return CLV_OK;
}

static clv_status read_outputs(mlir_function *f, mlir_op *end, reader *r, const json_t *graph_module, clv_error *err)
{
    const json_t *specs = json_object_get(json_object_get(graph_module, "signature"), "output_specs");
    size_t n = json_array_size(specs);
    leaves l = {.arena = r->arena};
    *end = (mlir_op){.name = "func.return", .at = {1 + f->body.n_ops, 1, "output"}};
    f->results = clv_arena_alloc(r->arena, n, sizeof *f->results);
    end->operands = clv_arena_alloc(r->arena, n, sizeof *end->operands);
    if (!f->results || !end->operands)
        return no_memory(err);
    CLV_TRY(name_results(&l, graph_module, err));
    for (size_t i = 0; i < n; i++)
        CLV_TRY(read_output(f, end, r, json_array_get(specs, i), &l, err));
    return CLV_OK;
}

/* ---- the program ---- */

static clv_status check_version(const reader *r, const json_t *program, clv_error *err)
{
    const json_t *version = json_object_get(program, "schema_version");
    const char *torch = torch_string(program, "torch_version");
    int64_t major = -1;
    if (!json_is_object(program) || !torch_int(&major, json_object_get(version, "major")))
        return malformed(r, err, "no schema_version");
    if (major != SCHEMA_MAJOR)
        return clv_fail(err, CLV_EUNSUPPORTED, "%s: schema %lld of torch.export (PyTorch %.40s); %d is read",
                        r->module->file, (long long)major, torch ? torch : "of no version", SCHEMA_MAJOR);
    return CLV_OK;
}

static clv_status read_program(reader *r, clv_error *err)
{
    const json_t *program = r->module->archive->program;
    CLV_TRY(check_version(r, program, err));
    const json_t *graph_module = json_object_get(program, "graph_module"),
                 *signature = json_object_get(graph_module, "signature"), *nodes, *node;
    r->graph = json_object_get(graph_module, "graph");
    r->types = json_object_get(r->graph, "tensor_values");
    nodes = json_object_get(r->graph, "nodes");
    if (!json_is_array(nodes) || !json_is_array(json_object_get(signature, "input_specs")))
        return malformed(r, err, "no nodes or no signature");
    mlir_function *main = r->module->functions = clv_arena_alloc(r->arena, 1, sizeof *main);
    if (!main)
        return no_memory(err);
    r->module->n_functions = 1;
    main->name = "main";
    CLV_TRY(read_inputs(main, r, json_object_get(signature, "input_specs"), err));
    main->body.ops = clv_arena_alloc(r->arena, json_array_size(nodes) + 1, sizeof *main->body.ops);
    if (!main->body.ops)
        return no_memory(err);
    size_t i;
    json_array_foreach(nodes, i, node)
        CLV_TRY(read_node(&main->body.ops[main->body.n_ops++], r, node, 1 + (int)i, err));
    return read_outputs(main, &main->body.ops[main->body.n_ops++], r, graph_module, err);
}

clv_status torch_parse(mlir_module **out, const void *bytes, size_t size, const char *file, clv_error *err)
{
    clv_arena *arena = clv_arena_new();
    mlir_module *m = arena ? clv_arena_alloc(arena, 1, sizeof *m) : NULL;
    json_auto_t *ids = json_object();
    reader r = {.module = m, .arena = arena, .ids = ids};
    if (!m || !ids) {
        clv_arena_free(arena);
        return no_memory(err);
    }
    m->arena = arena;
    m->file = clv_arena_string(arena, file);
    clv_status status = m->file ? torch_open(&m->archive, arena, bytes, size, m->file, err) : no_memory(err);
    if (status == CLV_OK)
        status = read_program(&r, err);
    if (status == CLV_OK)
        *out = m;
    else
        mlir_free(m);
    return status;
}
