/* import_program.c - reads a program of StableHLO text, lists it, and puts its ops into a graph. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text/c_locale.h"
#include "io/files/file.h"
#include "programs/importer.h"
#include "programs/patterns/rewriter.h"
#include "tensor/box_copy.h"

enum { TEXT_LIMIT = 1 << 30 /* bytes of a file */ };

/* An argument or result as it is listed. */
typedef struct port {
    const char *name, *sharding;
    const mlir_port *of;
    bool is_result;
} port;

typedef struct kept_constant {
    int id;
    clv_type type;
    const void *data;
} kept_constant;

struct clv_import {
    mlir_module *module;
    const mlir_function *main;
    int n_ports, n_kinds, kind_capacity;
    port *ports;
    clv_import_op_info *kinds;
    int n_constants, constant_capacity;
    kept_constant *constants; /* by id */
    int n_patterns, pattern_capacity;
    clv_import_pattern_info *patterns;
};

/* ---- reading ---- */

/* A name that no port before has: as it is, or with "#2". */
static const char *unique_name(clv_import *p, const char *name)
{
    char with[32] = "";
    for (int again = 2, i = 0; i < p->n_ports; i++)
        if (strncmp(p->ports[i].name, name, strlen(name)) == 0 && strcmp(p->ports[i].name + strlen(name), with) == 0) {
            clv_snprintf(with, sizeof with, "#%d", again++);
            i = -1;
        }
    return clv_arena_format(p->module->arena, "%s%s", name, with);
}

static clv_status add_port(clv_import *p, const mlir_port *of, int i, bool is_result, clv_error *err)
{
    char text[CLV_LAYOUT_TEXT] = "", number[32];
    const mlir_attr *sharding = mlir_find_attr(of->attrs, of->n_attrs, "sdy.sharding");
    const mlir_attr *info = mlir_find_attr(of->attrs, of->n_attrs, "jax.result_info");
    const char *name = mlir_loc_name(p->module, of->loc);
    clv_snprintf(number, sizeof number, "result%d", i);
    if (is_result)
        name = info && info->text && info->text[0] ? info->text : number;
    else if (!name)
        name = of->name;
    if (sharding && sharding->text && !of->type.fault)
        CLV_TRY(import_sharding_text(text, sharding->text, of->type.tensor.rank, NULL, p->module, sharding->at, err));
    port *to = &p->ports[p->n_ports];
    *to = (port){unique_name(p, name), text[0] ? clv_arena_string(p->module->arena, text) : NULL, of, is_result};
    if (!to->name || (text[0] && !to->sharding))
        return clv_fail_memory(err, "a program", sizeof *to);
    p->n_ports++;
    return CLV_OK;
}

static clv_status add_ports(clv_import *p, clv_error *err)
{
    const mlir_function *f = p->main;
    p->ports = clv_arena_alloc(p->module->arena, (size_t)(f->n_args + f->n_results), sizeof *p->ports);
    if (!p->ports)
        return clv_fail_memory(err, "a program", sizeof *p->ports);
    for (int i = 0; i < f->n_args; i++)
        CLV_TRY(add_port(p, &f->args[i], i, false, err));
    for (int i = 0; i < f->n_results; i++)
        CLV_TRY(add_port(p, &f->results[i], i, true, err));
    return CLV_OK;
}

static bool ends_region(const char *name)
{
    const char *dot = strrchr(name, '.');
    return strcmp(dot ? dot + 1 : name, "return") == 0;
}

/* Counts the ops of a region; those of a reducer belong to the reduction. */
static clv_status count_ops(clv_import *p, const mlir_region *region, clv_error *err)
{
    for (int i = 0; i < region->n_ops; i++) {
        const mlir_op *op = &region->ops[i];
        int at = 0;
        if (ends_region(op->name))
            continue;
        while (at < p->n_kinds && strcmp(p->kinds[at].name, op->name) != 0)
            at++;
        if (at == p->n_kinds) {
            if (clv_arena_grow(p->module->arena, &p->kinds, &p->kind_capacity, p->n_kinds, sizeof *p->kinds) != 0)
                return clv_fail_memory(err, "a program", sizeof *p->kinds);
            p->kinds[p->n_kinds++] = (clv_import_op_info){
                .name = op->name, .supported = importer_find(op->name) != NULL, .line = op->at.line};
        }
        p->kinds[at].count++;
        bool nested = strcmp(op->name, "stablehlo.reduce") != 0 && strcmp(op->name, "stablehlo.scatter") != 0 &&
                      strcmp(op->name, "stablehlo.sort") != 0 && strcmp(op->name, "stablehlo.reduce_window") != 0;
        for (int r = 0; nested && r < op->n_regions; r++)
            CLV_TRY(count_ops(p, &op->regions[r], err));
    }
    return CLV_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const clv_import_op_info *)a)->name, ((const clv_import_op_info *)b)->name);
}

clv_status clv_import_parse(clv_import **out, const char *text, size_t size, const char *name, clv_error *err)
{
    mlir_module *module;
    CLV_TRY(clv_require(out && text && name, __func__, "out, text or name", err));
    CLV_TRY(mlir_parse(&module, text, size, name, err));
    clv_import *p = clv_arena_alloc(module->arena, 1, sizeof *p);
    clv_status status = p ? CLV_OK : clv_fail_memory(err, "a program", sizeof *p);
    if (status == CLV_OK) {
        p->module = module;
        p->main = mlir_find_function(module, "main");
        status = add_ports(p, err);
    }
    for (int i = 0; status == CLV_OK && i < module->n_functions; i++)
        status = count_ops(p, &module->functions[i].body, err);
    if (status != CLV_OK) {
        mlir_free(module);
        return status;
    }
    if (p->n_kinds > 0)
        qsort(p->kinds, (size_t)p->n_kinds, sizeof *p->kinds, by_name);
    *out = p;
    return CLV_OK;
}

clv_status clv_import_read(clv_import **out, const char *path, clv_error *err)
{
    CLV_FREED char *text = NULL;
    size_t size;
    CLV_TRY(clv_require(out && path, __func__, "out or path", err));
    CLV_TRY(clv_file_read(&text, &size, path, TEXT_LIMIT, err));
    return clv_import_parse(out, text, size, path, err);
}

void clv_import_free(clv_import *program)
{
    if (program)
        mlir_free(program->module);
}

bool clv_import_is_program(const char *path)
{
    char start[64] = "";
    FILE *file = path ? fopen(path, "r") : NULL;
    size_t n = file ? fread(start, 1, sizeof start - 1, file) : 0;
    if (file)
        fclose(file);
    const char *p = start + (n > 0 ? strspn(start, " \t\r\n") : 0);
    return strncmp(p, "module", 6) == 0 || strncmp(p, "#loc", 4) == 0 || strncmp(p, "//", 2) == 0 ||
           strncmp(p, "func.func", 9) == 0;
}

/* ---- listing ---- */

bool clv_import_mesh(const clv_import *p, clv_mesh *out)
{
    const mlir_mesh *most = NULL;
    for (int i = 0; p && i < p->module->n_meshes; i++)
        if (p->module->meshes[i].mesh.n_axes > (most ? most->mesh.n_axes : 0))
            most = &p->module->meshes[i];
    if (most && out)
        *out = most->mesh;
    return most != NULL;
}

clv_status clv_import_port(const clv_import *p, int i, clv_import_port_info *out, clv_error *err)
{
    clv_import_port_info info = {0};
    CLV_TRY(clv_require(p && out && i >= 0, __func__, "a program, out, or an index below 0", err));
    if (i < p->n_ports) {
        const port *from = &p->ports[i];
        info = (clv_import_port_info){.name = from->name,
                                      .is_result = from->is_result,
                                      .type = from->of->type.tensor,
                                      .sharding = from->sharding,
                                      .line = from->of->type.at.line};
    }
    return clv_struct_copy_out(out, sizeof info, sizeof info, &info, __func__, err);
}

clv_status clv_import_op(const clv_import *p, int i, clv_import_op_info *out, clv_error *err)
{
    clv_import_op_info info = {0};
    CLV_TRY(clv_require(p && out && i >= 0, __func__, "a program, out, or an index below 0", err));
    if (i < p->n_kinds)
        info = p->kinds[i];
    return clv_struct_copy_out(out, sizeof info, sizeof info, &info, __func__, err);
}

const char *clv_import_function(const clv_import *p, int i, int *ops)
{
    if (!p || i < 0 || i >= p->module->n_functions)
        return NULL;
    if (ops)
        *ops = p->module->functions[i].body.n_ops;
    return p->module->functions[i].name;
}

/* ---- constants ---- */

/* Where a constant is, or would be. */
static int find_constant(const clv_import *p, int id)
{
    int low = 0, high = p->n_constants;
    while (low < high) {
        int at = (low + high) / 2;
        if (p->constants[at].id < id)
            low = at + 1;
        else
            high = at;
    }
    return low;
}

clv_status import_keep_constant(clv_import *p, const literal *known, const clv_type *type, clv_error *err)
{
    int at = find_constant(p, known->id);
    if (known->splat || (at < p->n_constants && p->constants[at].id == known->id))
        return CLV_OK;
    if (clv_arena_grow(p->module->arena, &p->constants, &p->constant_capacity, p->n_constants, sizeof *p->constants))
        return clv_fail_memory(err, "a constant", sizeof *p->constants);
    memmove(&p->constants[at + 1], &p->constants[at], (size_t)(p->n_constants++ - at) * sizeof *p->constants);
    p->constants[at] = (kept_constant){known->id, *type, known->data};
    return CLV_OK;
}

clv_status clv_import_constant(void *arg, const char *name, const clv_type *type, const clv_shard *box, void *out,
                               int *known, clv_error *err)
{
    const clv_import *p = arg;
    int id = strncmp(name, "constant.", 9) == 0 ? atoi(name + 9) : -1, at = find_constant(p, id);
    clv_shard whole = {.rank = type->rank};
    *known = at < p->n_constants && p->constants[at].id == id && clv_type_equal(&p->constants[at].type, type);
    memcpy(whole.hi, type->shape, sizeof whole.hi);
    if (*known)
        clv_box_copy(out, box, p->constants[at].data, &whole, box, clv_dtype_size(type->dtype));
    return CLV_OK;
}

/* ---- building ---- */

const import_row *importer_find(const char *name)
{
    static const import_row *const tables[] = {import_elementwise_rows, import_shape_rows,    import_reduce_rows,
                                               import_index_rows,       import_sharding_rows, import_control_rows,
                                               import_order_rows};
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
        for (const import_row *row = tables[t]; row->name; row++)
            if (strcmp(row->name, name) == 0)
                return row;
    return NULL;
}

clv_status import_fail(const importer *im, const mlir_op *op, clv_error *err, clv_status code, const char *format, ...)
{
    char text[768], where[128] = "";
    int line;
    const char *file = mlir_loc_file(im->module, op->loc, &line);
    va_list args;
    va_start(args, format);
    clv_vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (file)
        clv_snprintf(where, sizeof where, " (%.100s:%d)", file, line);
    return mlir_fail(im->module, op->at, err, code, "%s%s: %s", op->name, where, text);
}

/* Ops are named after the line of Python that made them; where the text does not say which, as what calls them, or
 * after the line of the text. Returns the scope before. */
static const char *enter_place(importer *im, const mlir_op *op)
{
    int line;
    const char *file = mlir_loc_file(im->module, op->loc, &line), *slash = strrchr(im->module->file, '/');
    const char *before = im->graph->scope, *scope = before;
    if (file)
        scope = clv_arena_format(im->graph->arena, "%.200s:%d.", file, line);
    else if (!before[0])
        scope = clv_arena_format(im->graph->arena, "%.200s:%d.", slash ? slash + 1 : im->module->file, op->at.line);
    im->graph->scope = scope ? scope : before;
    return before;
}

/* How an op of known operands is computed at once: for all elements, or for one that stands for all. */
typedef enum known_form { NOT_KNOWN, ONE_ELEMENT, SPLATS, SAME_SPLAT } known_form;

static known_form known_form_of(const importer *im, const mlir_op *op, const imported *in)
{
    bool splats = true,
         one = op->n_results == 1 && !op->result_types[0].fault && clv_type_elems(&op->result_types[0].tensor) == 1;
    if (im->scratch || op->n_operands == 0 || op->n_operands > CLV_MAX_IN || op->n_results != 1 || op->n_regions > 0)
        return NOT_KNOWN;
    for (int i = 0; i < op->n_operands; i++) {
        if (!in[i].known)
            return NOT_KNOWN;
        splats = splats && in[i].known->splat;
        one = one && clv_type_elems(&in[i].type) <= 64;
    }
    if (im->row->moves && in[0].known->splat)
        return SAME_SPLAT;
    return splats && im->row->elementwise ? SPLATS : one && im->row->elementwise ? ONE_ELEMENT : NOT_KNOWN;
}

/* Operands of an elementwise op have the shape of its result; the condition of a select and the bounds of a clamp may
 * be one number. */
static clv_status check_shapes(const importer *im, const mlir_op *op, const imported *in, clv_error *err)
{
    bool numbers = strcmp(op->name, "stablehlo.select") == 0 || strcmp(op->name, "stablehlo.clamp") == 0;
    clv_type want;
    if (!im->row->elementwise || op->n_results != 1)
        return CLV_OK;
    CLV_TRY(import_type(&want, im, &op->result_types[0], err));
    for (int i = 0; i < op->n_operands; i++) {
        clv_type have = in[i].type;
        want.dtype = have.dtype;
        if (!clv_type_equal(&have, &want) && !(numbers && have.rank == 0))
            return import_fail(im, op, err, CLV_ESHAPE, "operand %d does not have the shape of %s", i,
                               op->result_types[0].text);
    }
    return CLV_OK;
}

/* Whether a value has the elements of the type, repeated where it has one. */
static bool holds(const importer *im, const imported *made)
{
    clv_type have = clv_graph_type(im->graph, made->value);
    bool fits = have.dtype == made->type.dtype && (have.rank == 0 || have.rank == made->type.rank);
    for (int d = 0; fits && d < have.rank; d++)
        fits = have.shape[d] == made->type.shape[d] || have.shape[d] == 1;
    return !clv_valid(made->value) || fits;
}

static clv_status build(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    clv_error why = {0};
    CLV_TRY(check_shapes(im, op, in, err));
    known_form form = known_form_of(im, op, in);
    if (form == SAME_SPLAT) {
        CLV_TRY(import_type(&out[0].type, im, &op->result_types[0], err));
        out[0].known = in[0].known;
        return CLV_OK;
    }
    if (form != NOT_KNOWN) {
        clv_status status = import_evaluate(im, op, in, form == SPLATS, out, &why);
        if (status == CLV_OK)
            return CLV_OK;
        return strstr(why.message, im->module->file) == why.message
                   ? clv_fail(err, status, "%s", why.message)
                   : import_fail(im, op, err, status, "%s", why.message);
    }
    const char *before = enter_place(im, op);
    clv_status status = im->row->build(im, op, in, out, err);
    im->graph->scope = before;
    if (status != CLV_OK)
        return status;
    status = clv_graph_status(im->graph, &why);
    return status == CLV_OK ? CLV_OK : import_fail(im, op, err, status, "%s", why.message);
}

/* An output for a value that an op has made. */
static void add_each_op(importer *im, const mlir_op *op, const imported *made)
{
    char name[320];
    int line, id = made->value.id;
    const char *file = mlir_loc_file(im->module, op->loc, &line), *dot = strrchr(op->name, '.');
    bool makes = clv_valid(made->value) && id < im->graph->n_values && id > im->last_output &&
                 im->graph->values[id].source == CLV_FROM_OP;
    if (!makes)
        return;
    im->last_output = id;
    clv_snprintf(name, sizeof name, "%.200s:%d.%.60s #%d", file ? file : im->module->file, file ? line : op->at.line,
                 dot ? dot + 1 : op->name, id);
    clv_output(im->graph, name, made->value, NULL);
}

clv_status import_op(importer *im, const mlir_op *op, clv_error *err)
{
    const import_row *row = importer_find(op->name), *outer = im->row;
    if (!row && strcmp(op->name, "stablehlo.custom_call") == 0)
        return import_fail(im, op, err, CLV_EUNSUPPORTED, "@%s is not supported", op->symbol ? op->symbol : "?");
    if (!row && strcmp(op->name, "sdy.manual_computation") == 0)
        return import_fail(im, op, err, CLV_EUNSUPPORTED,
                           "manual computations (shard_map) are not supported; state shardings instead");
    if (!row)
        return import_fail(im, op, err, CLV_EUNSUPPORTED, "this op is not supported");
    if (++im->ops > IMPORT_OPS)
        return import_fail(im, op, err, CLV_ELIMIT, "more than %d ops, with loops unrolled", IMPORT_OPS);
    size_t n = (size_t)op->n_operands + (size_t)op->n_results;
    CLV_FREED imported *values = calloc(n ? n : 1, sizeof *values);
    if (!values)
        return clv_fail_memory(err, "operands", n * sizeof *values);
    for (int i = 0; i < op->n_operands; i++)
        values[i] = im->values[op->operands[i]];
    im->row = row;
    CLV_TRY(build(im, op, values, values + op->n_operands, err));
    im->row = outer;
    for (int i = 0; i < op->n_results; i++) {
        const imported *made = &values[op->n_operands + i];
        if (op->result_types[i].fault)
            return mlir_fail(im->module, op->result_types[i].at, err, CLV_EUNSUPPORTED, "%s: %s",
                             op->result_types[i].text, op->result_types[i].fault);
        if (!clv_type_equal(&made->type, &op->result_types[i].tensor) || !holds(im, made))
            return import_fail(im, op, err, CLV_ESHAPE, "result %d is not %s", i, op->result_types[i].text);
        im->values[op->first_result + i] = *made;
        if (im->each_op)
            add_each_op(im, op, made);
    }
    return CLV_OK;
}

clv_status import_region(importer *im, const mlir_region *region, const mlir_op **end, clv_error *err)
{
    for (int i = 0; i < region->n_ops; i++) {
        if (ends_region(region->ops[i].name)) {
            *end = &region->ops[i];
            return CLV_OK;
        }
        CLV_TRY(import_op(im, &region->ops[i], err));
    }
    return clv_fail(err, CLV_ESYNTAX, "%s: a region without a return", im->module->file);
}

static clv_status add_inputs(importer *im, clv_error *err)
{
    const clv_import *p = im->program;
    for (int i = 0; i < p->main->n_args; i++) {
        const mlir_port *of = &p->main->args[i];
        clv_layout layout;
        clv_type type;
        bool stated;
        CLV_TRY(import_type(&type, im, &of->type, err));
        CLV_TRY(import_sharding(&layout, &stated, im, of->attrs, of->n_attrs, type.rank, err));
        clv_value value =
            clv_input(im->graph, p->ports[i].name, type.dtype, type.rank, type.shape, stated ? &layout : NULL);
        im->values[p->main->body.args[i]] = imported_of(type, value);
    }
    return clv_graph_status(im->graph, err);
}

static clv_status add_outputs(importer *im, const mlir_op *end, clv_error *err)
{
    const clv_import *p = im->program;
    if (end->n_operands != p->main->n_results)
        return import_fail(im, end, err, CLV_ESYNTAX, "%d values; @main has %d results", end->n_operands,
                           p->main->n_results);
    for (int i = 0; i < end->n_operands; i++) {
        const mlir_port *of = &p->main->results[i];
        imported *value = &im->values[end->operands[i]];
        clv_layout layout;
        bool stated;
        CLV_TRY(import_sharding(&layout, &stated, im, of->attrs, of->n_attrs, value->type.rank, err));
        if (of->type.fault || !clv_type_equal(&of->type.tensor, &value->type))
            return import_fail(im, end, err, CLV_ESHAPE, "result %d is not %s", i, of->type.text);
        clv_output(im->graph, p->ports[p->main->n_args + i].name, imported_whole(im, value), stated ? &layout : NULL);
    }
    return clv_graph_status(im->graph, err);
}

static clv_status build_program(importer *im, clv_error *err)
{
    const mlir_op *end;
    CLV_TRY(add_inputs(im, err));
    CLV_TRY(import_region(im, &im->program->main->body, &end, err));
    return add_outputs(im, end, err);
}

/* ---- patterns ---- */

/* Counts a pattern's place, by name. */
static void count_pattern(void *arg, const char *name, bool gradient, bool left, const char *where)
{
    clv_import *p = arg;
    int at = 0;
    if (!name[0])
        return;
    while (at < p->n_patterns && (strcmp(p->patterns[at].name, name) != 0 || p->patterns[at].gradient != gradient))
        at++;
    if (at == p->n_patterns) {
        if (clv_arena_grow(p->module->arena, &p->patterns, &p->pattern_capacity, at, sizeof *p->patterns) != 0)
            return;
        p->patterns[p->n_patterns++] = (clv_import_pattern_info){.name = name, .gradient = gradient};
    }
    clv_import_pattern_info *to = &p->patterns[at];
    to->recognised += !left;
    to->left += left;
    if (left && !to->where)
        to->where = clv_arena_string(p->module->arena, where);
}

clv_status clv_import_pattern(const clv_import *p, int i, clv_import_pattern_info *out, clv_error *err)
{
    clv_import_pattern_info info = {0};
    CLV_TRY(clv_require(p && out && i >= 0, __func__, "a program, out, or an index below 0", err));
    if (i < p->n_patterns)
        info = p->patterns[i];
    return clv_struct_copy_out(out, sizeof info, sizeof info, &info, __func__, err);
}

/* Fused ops in place of their parts, into the caller's graph. */
static clv_status add_patterns(clv_graph *to, importer *im, bool patterns, clv_error *err)
{
    im->program->n_patterns = 0;
    int extra = im->graph->n_outputs - im->program->main->n_results;
    return import_patterns(to, im->graph, extra, patterns, count_pattern, im->program, err);
}

clv_status clv_import_stablehlo(clv_graph *graph, clv_import *program, const clv_import_options *options,
                                clv_error *err)
{
    clv_import_options how;
    CLV_TRY(clv_options_copy_in(&how, sizeof how, sizeof how, options, __func__, err));
    CLV_TRY(clv_require(graph && program, __func__, "a graph or a program", err));
    CLV_TRY(clv_graph_status(graph, err));
    size_t values = (size_t)program->module->n_values + 1;
    CLV_FREED imported *table = calloc(values, sizeof *table);
    CLV_FREED clv_value *states = calloc(values, sizeof *states);
    importer im = {.module = program->module, .program = program, .values = table, .states = states};
    im.arena = program->module->arena;
    im.each_op = how.each_op;
    if (!table || !states)
        return clv_fail_memory(err, "values", values * sizeof *table);
    CLV_TRY(clv_graph_new(&im.graph, clv_graph_mesh(graph), err));
    clv_status status = build_program(&im, err);
    if (status == CLV_OK)
        status = add_patterns(graph, &im, !how.no_patterns, err);
    clv_graph_free(im.graph);
    return status;
}
