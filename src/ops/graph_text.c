/* graph_text.c - prints a graph as text, one value a line, and parses that text.
 *
 *   graph on model=4
 *   %1 f32[64,256] {_,_} = input "x"
 *   %2 f32[256,1024] {_,model} = state "up" parameter normal 0.02
 *   %3 f32[64,1024] = dot_general "mlp.dot_general" (%1, %2) : a=bm b=mh c=bh
 *   %4 f32[64,1024] <primal=%3> = map_gradient "mlp.map_gradient" (%3, %3) backward of=%3 block=1 : kind=2
 *   assign %2 = %9
 *   output "y" = %3 {_,_}
 *
 * Values are numbered in the order in which they were made; "_" is an absent operand. In "<...>" stands what passes and
 * explanations know of a value beyond its type. Attributes are those of the op's table (clv_op_def.attrs).
 */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text/c_locale.h"
#include "graph/graph.h"

static const char *const inits[] = {"zeros", "ones", "normal", "lecun_normal", "uniform"};
static const char *const roles[] = {"parameter", "optimizer", "cache", "buffer"};
enum { N_INITS = sizeof inits / sizeof *inits, N_ROLES = sizeof roles / sizeof *roles };

/* ---- printing ---- */

static void put_quoted(clv_text *t, const char *name)
{
    clv_text_add(t, "\"");
    for (size_t n; *name; name += n) {
        n = strcspn(name, "\"\\");
        clv_text_add(t, "%.*s", (int)n, name);
        if (name[n])
            clv_text_add(t, "\\%c", name[n++]);
    }
    clv_text_add(t, "\"");
}

static void put_layout(clv_text *t, const clv_layout *layout, const clv_mesh *mesh)
{
    char text[CLV_LAYOUT_TEXT];
    clv_layout_print(text, sizeof text, layout, mesh);
    clv_text_add(t, " {%s}", text);
}

static void put_annotation(clv_text *t, const clv_value_annotation *a, int rank)
{
    if (a->what) {
        clv_text_add(t, " what=");
        put_quoted(t, a->what);
    }
    if (a->rules) {
        clv_text_add(t, " rules=");
        put_quoted(t, a->rules);
    }
    for (int d = 0; d < rank; d++)
        if (a->dim[d]) {
            clv_text_add(t, " dim%d=", d);
            put_quoted(t, a->dim[d]);
        }
}

static void put_value(clv_text *t, const clv_graph *graph, int id)
{
    const clv_value_info *v = &graph->values[id];
    char type[CLV_TYPE_TEXT];
    clv_type_print(type, sizeof type, &v->type);
    clv_text_add(t, "%%%d %s", id, type);
    if (v->stated)
        put_layout(t, &v->layout, &graph->mesh);
    if (!v->primal && !v->stationary_axes && !v->many_partial_sums && !v->annotation)
        return;
    clv_text_add(t, " <");
    if (v->primal)
        clv_text_add(t, " primal=%%%d", v->primal);
    if (v->stationary_axes)
        clv_text_add(t, " stationary=%u", v->stationary_axes);
    if (v->many_partial_sums)
        clv_text_add(t, " accumulates");
    if (v->annotation)
        put_annotation(t, v->annotation, v->type.rank);
    clv_text_add(t, " >");
}

static void put_state(clv_text *t, const clv_value_info *v)
{
    clv_text_add(t, " %s %s ", roles[v->role], inits[v->init.kind]);
    clv_text_add_double(t, v->init.scale);
    if (v->init_name) {
        clv_text_add(t, " keyed_by ");
        put_quoted(t, v->init_name);
    }
}

static void put_op(clv_text *t, const clv_graph *graph, const clv_op *op)
{
    char attrs[4096];
    clv_text_add(t, " = %s ", op->def->name);
    put_quoted(t, op->name);
    clv_text_add(t, " (");
    for (int i = 0; i < op->n_in; i++)
        op->in[i] > 0 ? clv_text_add(t, "%s%%%d", i ? ", " : "", op->in[i]) : clv_text_add(t, "%s_", i ? ", " : "");
    clv_text_add(t, ")%s%s", op->backward ? " backward" : "", op->update ? " update" : "");
    if (op->gradient_of >= 0)
        clv_text_add(t, " of=%%%d", graph->ops[op->gradient_of].out[0]);
    if (op->block > 0)
        clv_text_add(t, " block=%d", op->block);
    if (op->stage > 0)
        clv_text_add(t, " stage=%d on=%s", op->stage - 1, graph->mesh.axis[graph->stage_axis - 1].name);
    if (clv_op_print_attrs(attrs, sizeof attrs, op, &graph->mesh) > 0)
        clv_text_add(t, " : %s", attrs);
}

size_t clv_graph_print(char *out, size_t size, const clv_graph *graph)
{
    clv_text t = {.out = out, .size = size};
    char mesh[CLV_MESH_TEXT];
    if (!graph)
        return (size_t)clv_text_finish(&t);
    clv_mesh_print(mesh, sizeof mesh, &graph->mesh);
    clv_text_add(&t, "graph on %s\n", mesh);
    for (int id = 1, n; id < graph->n_values; id += n) {
        const clv_value_info *v = &graph->values[id];
        const clv_op *op = v->source == CLV_FROM_OP ? &graph->ops[v->op] : NULL;
        n = op ? op->n_out : 1;
        for (int o = 0; o < n; o++) {
            clv_text_add(&t, o ? ", " : "");
            put_value(&t, graph, id + o);
        }
        if (op) {
            put_op(&t, graph, op);
        } else {
            clv_text_add(&t, v->source == CLV_FROM_STATE ? " = state " : " = input ");
            put_quoted(&t, v->name);
            if (v->source == CLV_FROM_STATE)
                put_state(&t, v);
        }
        clv_text_add(&t, "\n");
    }
    for (int id = 1; id < graph->n_values; id++)
        if (graph->values[id].assigned > 0)
            clv_text_add(&t, "assign %%%d = %%%d\n", id, graph->values[id].assigned);
    for (int o = 0; o < graph->n_outputs; o++) {
        clv_text_add(&t, "output ");
        put_quoted(&t, graph->outputs[o].name);
        clv_text_add(&t, " = %%%d", graph->outputs[o].value);
        if (graph->outputs[o].stated)
            put_layout(&t, &graph->outputs[o].layout, &graph->mesh);
        clv_text_add(&t, "\n");
    }
    return t.length;
}

/* ---- parsing ---- */

enum { WORD = 256 };

/* A value as its line defines it, before the graph has it. */
typedef struct definition {
    int id;
    clv_type type;
    bool stated, accumulates;
    clv_layout layout;
    int primal;
    uint32_t stationary;
    bool annotated;
    clv_value_annotation annotation;
} definition;

static bool accept_word(clv_scanner *scan, const char *word)
{
    clv_scan_skip_spaces(scan);
    size_t n = strlen(word);
    if (strncmp(scan->text + scan->at, word, n) != 0)
        return false;
    scan->at += (int)n;
    return true;
}

static clv_status expect(clv_scanner *scan, const char *word, clv_error *err)
{
    return accept_word(scan, word) ? CLV_OK : clv_scan_fail(scan, scan->at, CLV_ESYNTAX, err, "'%s' is expected", word);
}

/* Up to a space or one of `ends`. */
static clv_status read_word(char out[WORD], clv_scanner *scan, const char *ends, clv_error *err)
{
    char stops[16];
    clv_scan_skip_spaces(scan);
    clv_snprintf(stops, sizeof stops, " %s", ends);
    size_t n = strcspn(scan->text + scan->at, stops);
    if (n == 0 || n >= WORD)
        return clv_scan_fail(scan, scan->at, CLV_ESYNTAX, err, "a word is expected");
    memcpy(out, scan->text + scan->at, n);
    out[n] = '\0';
    scan->at += (int)n;
    return CLV_OK;
}

static clv_status read_number(int64_t *out, clv_scanner *scan, int64_t most, clv_error *err)
{
    int at = scan->at;
    if (!clv_scan_number(scan, out) || *out > most)
        return clv_scan_fail(scan, at, CLV_ESYNTAX, err, "a number is expected; valid: 0 to %lld", (long long)most);
    return CLV_OK;
}

/* "%7": a value that is there. */
static clv_status read_value(int *out, clv_scanner *scan, const clv_graph *graph, clv_error *err)
{
    int64_t id;
    CLV_TRY(expect(scan, "%", err));
    CLV_TRY(read_number(&id, scan, graph->n_values - 1, err));
    if (id == 0)
        return clv_scan_fail(scan, scan->at, CLV_ESYNTAX, err, "values are numbered from 1");
    *out = (int)id;
    return CLV_OK;
}

/* A quoted name, in the graph's memory. */
static clv_status read_quoted(const char **out, clv_scanner *scan, clv_graph *graph, clv_error *err)
{
    CLV_TRY(expect(scan, "\"", err));
    char *name = clv_arena_string(graph->arena, scan->text + scan->at), *end = name;
    if (!name)
        return clv_fail_memory(err, "a name", strlen(scan->text));
    for (; scan->text[scan->at] != '"'; scan->at++) {
        scan->at += scan->text[scan->at] == '\\';
        if (scan->text[scan->at] == '\0')
            return clv_scan_fail(scan, scan->at, CLV_ESYNTAX, err, "a name ends with '\"'");
        *end++ = scan->text[scan->at];
    }
    scan->at++;
    *end = '\0';
    *out = name;
    return CLV_OK;
}

static clv_status read_type(clv_type *out, clv_scanner *scan, clv_error *err)
{
    char word[WORD];
    int64_t size;
    CLV_TRY(read_word(word, scan, "[", err));
    CLV_TRY(clv_dtype_parse(&out->dtype, word, err));
    CLV_TRY(expect(scan, "[", err));
    for (out->rank = 0; !clv_scan_accept(scan, ']'); out->shape[out->rank++] = size) {
        if (out->rank == CLV_MAX_RANK)
            return clv_scan_fail(scan, scan->at, CLV_ELIMIT, err, "at most %d dimensions", CLV_MAX_RANK);
        if (out->rank > 0)
            CLV_TRY(expect(scan, ",", err));
        CLV_TRY(read_number(&size, scan, (int64_t)1 << 53, err));
    }
    return CLV_OK;
}

/* "{_,model}", where one is next. */
static clv_status read_layout(bool *stated, clv_layout *out, clv_scanner *scan, const clv_mesh *mesh, int rank,
                              clv_error *err)
{
    clv_scan_skip_spaces(scan);
    *stated = scan->text[scan->at] == '{';
    return *stated ? clv_scan_layout(out, scan, mesh, rank, err) : CLV_OK;
}

static clv_status read_extras(definition *d, clv_scanner *scan, clv_graph *graph, clv_error *err)
{
    int64_t n;
    while (!clv_scan_accept(scan, '>')) {
        if (accept_word(scan, "primal=")) {
            CLV_TRY(read_value(&d->primal, scan, graph, err));
        } else if (accept_word(scan, "stationary=")) {
            CLV_TRY(read_number(&n, scan, UINT32_MAX, err));
            d->stationary = (uint32_t)n;
        } else if (accept_word(scan, "accumulates")) {
            d->accumulates = true;
        } else {
            d->annotated = true;
            if (accept_word(scan, "what=")) {
                CLV_TRY(read_quoted(&d->annotation.what, scan, graph, err));
            } else if (accept_word(scan, "rules=")) {
                CLV_TRY(read_quoted(&d->annotation.rules, scan, graph, err));
            } else {
                CLV_TRY(expect(scan, "dim", err));
                CLV_TRY(read_number(&n, scan, CLV_MAX_RANK - 1, err));
                CLV_TRY(expect(scan, "=", err));
                CLV_TRY(read_quoted(&d->annotation.dim[n], scan, graph, err));
            }
        }
    }
    return CLV_OK;
}

static clv_status read_definition(definition *d, clv_scanner *scan, clv_graph *graph, int id, clv_error *err)
{
    int64_t n;
    int at = scan->at;
    CLV_TRY(expect(scan, "%", err));
    CLV_TRY(read_number(&n, scan, INT32_MAX, err));
    if (n != id)
        return clv_scan_fail(scan, at, CLV_ESYNTAX, err, "%%%d is expected: values are numbered in order", id);
    *d = (definition){.id = id};
    CLV_TRY(read_type(&d->type, scan, err));
    CLV_TRY(read_layout(&d->stated, &d->layout, scan, &graph->mesh, d->type.rank, err));
    return accept_word(scan, "<") ? read_extras(d, scan, graph, err) : CLV_OK;
}

static clv_status find_word(int *out, const char *const *words, int n, clv_scanner *scan, clv_error *err)
{
    char word[WORD];
    int at = scan->at;
    CLV_TRY(read_word(word, scan, "", err));
    for (*out = 0; *out < n; ++*out)
        if (strcmp(word, words[*out]) == 0)
            return CLV_OK;
    return clv_scan_fail(scan, at, CLV_ESYNTAX, err, "'%s' is unknown", word);
}

static clv_status make_state(clv_value *out, const definition *d, const char *name, clv_scanner *scan, clv_graph *graph,
                             clv_error *err)
{
    int role, kind;
    char scale[WORD];
    const char *key = NULL;
    CLV_TRY(find_word(&role, roles, N_ROLES, scan, err));
    CLV_TRY(find_word(&kind, inits, N_INITS, scan, err));
    CLV_TRY(read_word(scale, scan, "", err));
    if (accept_word(scan, "keyed_by"))
        CLV_TRY(read_quoted(&key, scan, graph, err));
    clv_init init = {(clv_init_kind)kind, clv_strtod(scale)};
    *out = clv_state_with_role(graph, (clv_state_role)role, name, d->type.dtype, d->type.rank, d->type.shape,
                               d->stated ? &d->layout : NULL, init);
    if (clv_valid(*out))
        graph->values[out->id].init_name = key;
    return clv_graph_status(graph, err);
}

/* What stands between an op's operands and its attributes. */
static clv_status read_pass(clv_op *op, clv_scanner *scan, clv_graph *graph, clv_error *err)
{
    int value;
    int64_t n;
    op->backward = accept_word(scan, "backward");
    op->update = accept_word(scan, "update");
    op->gradient_of = -1;
    if (accept_word(scan, "of=")) {
        CLV_TRY(read_value(&value, scan, graph, err));
        op->gradient_of = graph->values[value].op;
    }
    if (accept_word(scan, "block=")) {
        CLV_TRY(read_number(&n, scan, INT32_MAX, err));
        op->block = (int)n;
        graph->n_blocks = op->block > graph->n_blocks ? op->block : graph->n_blocks;
    }
    if (accept_word(scan, "stage=")) {
        char axis[WORD];
        CLV_TRY(read_number(&n, scan, CLV_MAX_STAGES - 1, err));
        CLV_TRY(expect(scan, "on=", err));
        CLV_TRY(read_word(axis, scan, "", err));
        clv_graph_set_stage(graph, axis, (int)n);
        CLV_TRY(clv_graph_status(graph, err));
        op->stage = graph->stage;
    }
    return CLV_OK;
}

static clv_status read_attrs(void **out, const clv_op_def *def, int rank, clv_scanner *scan, clv_graph *graph,
                             clv_error *err)
{
    *out = NULL;
    if (def->attrs_size == 0)
        return CLV_OK;
    if (!def->attrs)
        return clv_scan_fail(scan, scan->at, CLV_EUNSUPPORTED, err, "op '%s' states no table of its attributes",
                             def->name);
    *out = clv_arena_alloc(graph->arena, 1, def->attrs_size);
    if (!*out)
        return clv_fail_memory(err, "attributes", def->attrs_size);
    CLV_TRY(expect(scan, ":", err));
    return clv_op_parse_attrs(*out, def, scan, &graph->mesh, rank, err);
}

static clv_status make_op(const definition *d, int n, const char *kind, clv_scanner *scan, clv_graph *graph,
                          clv_error *err)
{
    const clv_op_def *def = clv_op_find(kind);
    clv_value in[CLV_MAX_IN] = {0}, out[CLV_MAX_OUT];
    clv_op told = {0};
    void *attrs;
    int n_in = 0;
    if (!def || def->n_out != n)
        return clv_scan_fail(scan, scan->at, CLV_ENOTFOUND, err, "there is no op '%s' of %d results", kind, n);
    CLV_TRY(read_quoted(&told.name, scan, graph, err));
    CLV_TRY(expect(scan, "(", err));
    for (; !clv_scan_accept(scan, ')'); n_in++) {
        if (n_in == CLV_MAX_IN)
            return clv_scan_fail(scan, scan->at, CLV_ELIMIT, err, "at most %d operands", CLV_MAX_IN);
        if (n_in > 0)
            CLV_TRY(expect(scan, ",", err));
        if (!accept_word(scan, "_"))
            CLV_TRY(read_value(&in[n_in].id, scan, graph, err));
    }
    CLV_TRY(read_pass(&told, scan, graph, err));
    CLV_TRY(read_attrs(&attrs, def, d[0].type.rank, scan, graph, err));
    clv_graph_emit(graph, def, attrs, in, n_in, out);
    CLV_TRY(clv_graph_status(graph, err));
    clv_op *op = &graph->ops[graph->n_ops - 1];
    op->name = told.name;
    op->backward = told.backward;
    op->update = told.update;
    op->gradient_of = told.gradient_of;
    op->block = told.block;
    op->stage = told.stage;
    return CLV_OK;
}

/* What a definition says of its value beyond what made it. */
static clv_status finish_value(const definition *d, const clv_scanner *scan, clv_graph *graph, clv_error *err)
{
    clv_value_info *v = &graph->values[d->id];
    if (!clv_type_equal(&v->type, &d->type)) {
        char type[CLV_TYPE_TEXT];
        clv_type_print(type, sizeof type, &v->type);
        return clv_scan_fail(scan, 0, CLV_ESHAPE, err, "%%%d is %s", d->id, type);
    }
    v->stated = d->stated;
    if (d->stated)
        v->layout = d->layout;
    v->primal = d->primal;
    v->stationary_axes = d->stationary;
    v->many_partial_sums = d->accumulates;
    if (d->annotated)
        clv_graph_annotate(graph, (clv_value){d->id}, &d->annotation);
    return clv_graph_status(graph, err);
}

static clv_status parse_values(clv_scanner *scan, clv_graph *graph, clv_error *err)
{
    definition d[CLV_MAX_OUT];
    char kind[WORD];
    const char *name;
    int n = 0;
    do {
        if (n == CLV_MAX_OUT)
            return clv_scan_fail(scan, scan->at, CLV_ELIMIT, err, "at most %d results", CLV_MAX_OUT);
        CLV_TRY(read_definition(&d[n], scan, graph, graph->n_values + n, err));
    } while (++n, clv_scan_accept(scan, ','));
    CLV_TRY(expect(scan, "=", err));
    CLV_TRY(read_word(kind, scan, "", err));
    bool is_state = strcmp(kind, "state") == 0;
    if (is_state || strcmp(kind, "input") == 0) {
        clv_value made;
        CLV_TRY(read_quoted(&name, scan, graph, err));
        if (is_state)
            CLV_TRY(make_state(&made, d, name, scan, graph, err));
        else
            clv_input(graph, name, d->type.dtype, d->type.rank, d->type.shape, d->stated ? &d->layout : NULL);
        CLV_TRY(clv_graph_status(graph, err));
    } else {
        CLV_TRY(make_op(d, n, kind, scan, graph, err));
    }
    for (int i = 0; i < n; i++)
        CLV_TRY(finish_value(&d[i], scan, graph, err));
    return CLV_OK;
}

static clv_status parse_line(clv_scanner *scan, clv_graph *graph, clv_error *err)
{
    int state, value;
    bool stated;
    clv_layout layout;
    const char *name;
    if (accept_word(scan, "assign ")) {
        CLV_TRY(read_value(&state, scan, graph, err));
        CLV_TRY(expect(scan, "=", err));
        CLV_TRY(read_value(&value, scan, graph, err));
        clv_assign(graph, (clv_value){state}, (clv_value){value});
    } else if (accept_word(scan, "output ")) {
        CLV_TRY(read_quoted(&name, scan, graph, err));
        CLV_TRY(expect(scan, "=", err));
        CLV_TRY(read_value(&value, scan, graph, err));
        CLV_TRY(read_layout(&stated, &layout, scan, &graph->mesh, graph->values[value].type.rank, err));
        clv_output(graph, name, (clv_value){value}, stated ? &layout : NULL);
    } else {
        CLV_TRY(parse_values(scan, graph, err));
    }
    CLV_TRY(clv_graph_status(graph, err));
    clv_scan_skip_spaces(scan);
    return scan->text[scan->at] == '\0'
               ? CLV_OK
               : clv_scan_fail(scan, scan->at, CLV_ESYNTAX, err, "the end of the line is expected");
}

/* The lines of a copy of the text; blank ones and those that begin with '#' are skipped. */
static clv_status parse_lines(clv_graph **graph, char *text, clv_error *err)
{
    char what[32], *rest = NULL;
    int number = 1;
    for (char *line = text; line; line = rest, number++) {
        rest = strchr(line, '\n');
        if (rest)
            *rest++ = '\0';
        clv_scanner scan = {.what = what, .text = line};
        clv_snprintf(what, sizeof what, "graph, line %d:", number);
        clv_scan_skip_spaces(&scan);
        if (line[scan.at] == '\0' || line[scan.at] == '#')
            continue;
        if (*graph) {
            CLV_TRY(parse_line(&scan, *graph, err));
            continue;
        }
        clv_mesh mesh;
        CLV_TRY(expect(&scan, "graph on ", err));
        CLV_TRY(clv_mesh_parse(&mesh, line + scan.at, err));
        CLV_TRY(clv_graph_new(graph, &mesh, err));
    }
    return *graph ? CLV_OK : clv_fail(err, CLV_ESYNTAX, "a graph begins with 'graph on MESH'");
}

clv_status clv_graph_parse(clv_graph **out, const char *text, clv_error *err)
{
    clv_graph *graph = NULL;
    CLV_TRY(clv_require(out && text, __func__, "out and a text", err));
    char *copy = strdup(text);
    if (!copy)
        return clv_fail_memory(err, "a graph's text", strlen(text));
    clv_status status = parse_lines(&graph, copy, err);
    free(copy);
    if (status == CLV_OK)
        *out = graph;
    else
        clv_graph_free(graph);
    return status;
}
