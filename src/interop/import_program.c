/* import_program.c - reads a program (StableHLO text, or an archive of torch.export), lists it, and puts its ops into a
 * graph.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/text/c_locale.h"
#include "base/text/utf8.h"
#include "io/files/file.h"
#include "io/files/file_kind.h"
#include "interop/importer.h"
#include "interop/manual/manual.h"
#include "interop/patterns/rewriter.h"
#include "interop/torch/torch.h"
#include "tensor/box_copy.h"
#include "tensor/box_runs.h"

enum { TEXT_LIMIT = 1 << 30 /* bytes of a file */ };

const char *import_result_name(const clv_import *p, int value)
{
    const mlir_region *body = &p->main->body;
    const mlir_op *end = body->n_ops > 0 ? &body->ops[body->n_ops - 1] : NULL;
    for (int i = 0; end && i < end->n_operands && i < p->main->n_results; i++)
        if (end->operands[i] == value)
            return p->ports[p->main->n_args + i].name;
    return NULL;
}

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
        name = info && info->text && info->text[0] ? info->text : of->name ? of->name : number;
    else if (!name)
        name = of->name;
    if (sharding && sharding->text && !of->type.fault)
        CLV_TRY(import_sharding_text(text, sharding->text, of->type.tensor.rank, NULL, p->module, sharding->at, err));
    import_port *to = &p->ports[p->n_ports];
    *to = (import_port){.name = unique_name(p, name),
                        .sharding = text[0] ? clv_arena_string(p->module->arena, text) : NULL,
                        .of = of,
                        .is_result = is_result};
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
            p->kinds[p->n_kinds++] = (clv_import_op_kind_info){
                .name = op->name, .supported = importer_find(op->name) != NULL, .line = op->at.line};
        }
        p->kinds[at].count++;
        static const char *const reduces[] = {"stablehlo.reduce",     "stablehlo.scatter",
                                              "stablehlo.all_reduce", "stablehlo.reduce_scatter",
                                              "stablehlo.sort",       "stablehlo.reduce_window"};
        bool nested = true;
        for (size_t r = 0; r < sizeof reduces / sizeof *reduces; r++)
            nested = nested && strcmp(op->name, reduces[r]) != 0;
        for (int r = 0; nested && r < op->n_regions; r++)
            CLV_TRY(count_ops(p, &op->regions[r], err));
    }
    return CLV_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const clv_import_op_kind_info *)a)->name, ((const clv_import_op_kind_info *)b)->name);
}

/* Takes the module, also on failure. */
static clv_status new_program(clv_import **out, mlir_module *module, clv_error *err)
{
    clv_import *p = clv_arena_alloc(module->arena, 1, sizeof *p);
    clv_status status = p ? CLV_OK : clv_fail_memory(err, "a program", sizeof *p);
    if (status == CLV_OK) {
        p->module = module;
        p->main = mlir_find_function(module, "main");
        status = import_rewrite_hlo_shardings(module, err);
    }
    if (status == CLV_OK)
        status = add_ports(p, err);
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

/* What is neither text nor an archive, by its first bytes. */
static clv_status check_kind(const char *text, size_t size, const char *name, clv_error *err)
{
    static const char wanted[] = "StableHLO text or an archive of torch.export.save";
    size_t space = 0, some = size < CLV_FILE_KIND_BYTES ? size : CLV_FILE_KIND_BYTES;
    CLV_TRY(clv_file_kind_refuse(text, some, wanted, name, err));
    if (size >= 4 && memcmp(text, "ML\xefR", 4) == 0)
        return clv_fail(err, CLV_EFORMAT, "%s: is MLIR bytecode; write the text, as .as_text() gives it", name);
    while (space < some && strchr(" \t\r\n", text[space]) && text[space])
        space++;
    if (space < some && (text[space] == '{' || text[space] == '['))
        return clv_fail(err, CLV_EFORMAT, "%s: is JSON, not %s", name, wanted);
    return clv_utf8_valid(text, size) && !memchr(text, '\0', size)
               ? CLV_OK
               : clv_fail(err, CLV_EFORMAT, "%s: is no text, thus not %s", name, wanted);
}

clv_status clv_import_parse(clv_import **out, const char *text, size_t size, const char *name, clv_error *err)
{
    mlir_module *module;
    CLV_TRY(clv_require(out && text && name, __func__, "out, text or name", err));
    if (clv_zip_is_archive(text, size))
        CLV_TRY(torch_parse(&module, text, size, name, err));
    else {
        CLV_TRY(check_kind(text, size, name, err));
        CLV_TRY(mlir_parse(&module, text, size, name, err));
    }
    return new_program(out, module, err);
}

/* The first bytes of a file, and how many. */
static size_t read_start(char start[64], const char *path)
{
    FILE *file = path ? fopen(path, "r") : NULL;
    size_t n = file ? fread(start, 1, 63, file) : 0;
    if (file)
        fclose(file);
    start[n] = '\0';
    return n;
}

clv_status clv_import_read(clv_import **out, const char *path, clv_error *err)
{
    CLV_FREED char *text = NULL;
    char start[64];
    mlir_module *module;
    size_t size;
    CLV_TRY(clv_require(out && path, __func__, "out or path", err));
    if (clv_zip_is_archive(start, read_start(start, path))) { /* whose weights stay in the file */
        CLV_TRY(torch_parse(&module, NULL, 0, path, err));
        return new_program(out, module, err);
    }
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
    char start[64];
    struct stat info;
    if (!path || stat(path, &info) != 0 || !S_ISREG(info.st_mode))
        return false;
    size_t n = read_start(start, path);
    const char *p = start + strspn(start, " \t\r\n"), *dot = strrchr(path, '.');
    return (dot && (strcmp(dot, ".mlir") == 0 || strcmp(dot, ".pt2") == 0)) || clv_zip_is_archive(start, n) ||
           strncmp(p, "module", 6) == 0 || strncmp(p, "#loc", 4) == 0 || strncmp(p, "//", 2) == 0 ||
           strncmp(p, "func.func", 9) == 0;
}

/* ---- listing ---- */

bool clv_import_mesh(const clv_import *p, clv_mesh *out)
{
    const mlir_mesh *most = NULL;
    if (p && p->layout_mesh.n_axes > 0) {
        if (out)
            *out = p->layout_mesh;
        return true;
    }
    for (int i = 0; p && i < p->module->n_meshes; i++)
        if (p->module->meshes[i].mesh.n_axes > (most ? most->mesh.n_axes : 0))
            most = &p->module->meshes[i];
    if (most && out)
        *out = most->mesh;
    return most != NULL;
}

clv_status clv_import_argument_or_result(const clv_import *p, int i, clv_import_argument_or_result_info *out,
                                         clv_error *err)
{
    clv_import_argument_or_result_info info = {0};
    CLV_TRY(clv_require(p && out && i >= 0, __func__, "a program, out, or an index below 0", err));
    int at = 0;
    for (int left = i; at < p->n_ports; at++) /* what becomes state is no result */
        if (!p->ports[at].of->assigns && left-- == 0)
            break;
    if (at < p->n_ports) {
        const import_port *from = &p->ports[at];
        info =
            (clv_import_argument_or_result_info){.name = from->name,
                                                 .is_result = from->is_result,
                                                 .type = from->of->type.tensor,
                                                 .sharding = from->layout ? from->layout : from->sharding,
                                                 .line = from->of->type.at.line,
                                                 .is_state = from->of->weight && !from->of->constant,
                                                 .is_constant = from->of->constant,
                                                 .same_as = from->of->same ? p->ports[from->of->same - 1].name : NULL};
    }
    return clv_struct_copy_out(out, sizeof info, sizeof info, &info, __func__, err);
}

clv_status clv_import_op_kind(const clv_import *p, int i, clv_import_op_kind_info *out, clv_error *err)
{
    clv_import_op_kind_info info = {0};
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

clv_status clv_import_state_source(void *arg, const char *name, const clv_type *type, const clv_shard *box, void *out,
                                   int *known, clv_error *err)
{
    const clv_import *p = arg;
    for (int i = 0; i < p->main->n_args; i++) {
        const mlir_port *of = &p->main->args[i];
        if (!of->weight || of->same || strcmp(p->ports[i].name, name) != 0)
            continue;
        *known = clv_type_equal(&of->type.tensor, type);
        return *known ? torch_read_weight(out, of->weight, box, err) : CLV_OK;
    }
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
    static const import_row *const tables[] = {
        import_elementwise_rows,  import_shape_rows,     import_reduce_rows, import_index_rows,
        import_sharding_rows,     import_control_rows,   import_manual_rows, import_collective_rows,
        import_hlo_sharding_rows, aten_elementwise_rows, aten_shape_rows,    aten_create_rows,
        aten_reduce_rows,         aten_product_rows,     aten_layer_rows,    aten_index_rows,
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
const char *import_enter_place(importer *im, const mlir_op *op)
{
    int line;
    const char *file = mlir_loc_file(im->module, op->loc, &line), *slash = strrchr(im->module->file, '/');
    const char *before = im->graph->scope, *scope = before;
    if (op->scope)
        scope = op->scope;
    else if (file)
        scope = clv_arena_format(im->graph->arena, "%.200s:%d.", file, line);
    else if (!before[0])
        scope = clv_arena_format(im->graph->arena, "%.200s:%d.", slash ? slash + 1 : im->module->file, op->at.line);
    im->graph->scope = scope ? scope : before;
    return before;
}

bool import_may_know(importer *im, const clv_type *type)
{
    int64_t elems = clv_type_elems(type);
    if (elems > IMPORT_KNOWN || elems * (int64_t)clv_dtype_size(type->dtype) > IMPORT_KNOWN - im->known)
        return false;
    im->known += elems * (int64_t)clv_dtype_size(type->dtype);
    return true;
}

/* How an op of known operands is computed at once: for all elements, or for one that stands for all. */
typedef enum known_form { NOT_KNOWN, ALL_ELEMENTS, SPLATS, SAME_SPLAT } known_form;

static known_form known_form_of(importer *im, const mlir_op *op, const imported *in)
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
    if (splats && im->row->elementwise)
        return SPLATS;
    if (im->module->archive) /* masks and positions are made of whole tensors that are known */
        return !op->result_types[0].fault && import_may_know(im, &op->result_types[0].tensor) ? ALL_ELEMENTS
                                                                                              : NOT_KNOWN;
    return one && im->row->elementwise ? ALL_ELEMENTS : NOT_KNOWN;
}

/* Operands of an elementwise op have the shape of its result; the condition of a select and the bounds of a clamp may
 * be one number. */
static clv_status check_shapes(const importer *im, const mlir_op *op, const imported *in, clv_error *err)
{
    bool numbers = strcmp(op->name, "stablehlo.select") == 0 || strcmp(op->name, "stablehlo.clamp") == 0;
    clv_type want;
    if (!im->row->elementwise || op->n_results != 1 || im->module->archive) /* PyTorch's broadcast */
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
    int lead = manual_lead(im, made);
    bool fits = have.dtype == made->type.dtype && (have.rank == 0 || have.rank == lead + made->type.rank);
    for (int d = lead; fits && d < have.rank; d++)
        fits = have.shape[d] == made->type.shape[d - lead] || have.shape[d] == 1;
    return !clv_valid(made->value) || fits;
}

static bool all_same(const imported *x)
{
    const size_t size = clv_dtype_size(x->type.dtype);
    const int64_t n = clv_type_elems(&x->type);
    const char *data = x->known->data;
    for (int64_t i = 1; i < n; i++)
        if (memcmp(data, data + (size_t)i * size, size) != 0)
            return false;
    return n > 0;
}

/* What was computed may become state. */
static clv_status keep_known(importer *im, const mlir_op *op, const imported *made, clv_error *err)
{
    if (im->module->archive) /* a mask that hides nothing */
        made->known->splat = made->known->splat || all_same(made);
    if (made->known->splat)
        return CLV_OK;
    made->known->id = op->first_result;
    return import_keep_constant(im->program, made->known, &made->type, err);
}

/* Sums and products of ui32 modulo 2^32; elementwise ops do so by themselves. */
static void wrap_folds(importer *im, const mlir_op *op, imported *out)
{
    static const char *const folds[] = {"stablehlo.reduce", "stablehlo.reduce_window", "stablehlo.scatter"};
    bool folds_values = false;
    for (size_t i = 0; i < sizeof folds / sizeof *folds; i++)
        folds_values = folds_values || strcmp(op->name, folds[i]) == 0;
    for (int i = 0; folds_values && i < op->n_results; i++)
        if (clv_valid(out[i].value))
            out[i].value = import_wrap_unsigned(im, &op->result_types[i], out[i].value);
}

clv_status import_build(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
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
            return keep_known(im, op, out, err);
        return strstr(why.message, im->module->file) == why.message
                   ? clv_fail(err, status, "%s", why.message)
                   : import_fail(im, op, err, status, "%s", why.message);
    }
    const char *before = import_enter_place(im, op);
    clv_status status = im->row->build(im, op, in, out, err);
    if (status == CLV_OK)
        wrap_folds(im, op, out);
    im->graph->scope = before;
    if (status != CLV_OK)
        return status;
    status = clv_graph_status(im->graph, &why);
    return status == CLV_OK ? CLV_OK : import_fail(im, op, err, status, "%s", why.message);
}

/* An output for a value that an op has made. */
static void add_each_op(importer *im, const mlir_op *op, const imported *made)
{
    char name[560];
    int line, id = made->value.id;
    const char *file = mlir_loc_file(im->module, op->loc, &line), *dot = strrchr(op->name, '.'), *aten = op->name + 5;
    bool makes = clv_valid(made->value) && id < im->graph->n_values && id > im->last_output &&
                 im->graph->values[id].source == CLV_FROM_OP;
    if (!makes)
        return;
    im->last_output = id;
    if (op->scope && strncmp(op->name, "aten.", 5) == 0)
        clv_snprintf(name, sizeof name, "%s%.*s #%d", op->scope, (int)strcspn(aten, "."), aten, id);
    else
        clv_snprintf(name, sizeof name, "%.200s:%d.%.60s #%d", file ? file : im->module->file,
                     file ? line : op->at.line, dot ? dot + 1 : op->name, id);
    clv_output(im->graph, name, made->value, NULL);
}

/* "aten.add_.Tensor" */
static bool changes_operand(const char *name)
{
    const char *overload = strrchr(name, '.');
    return overload && overload - name > 1 && overload[-1] == '_' && overload[-2] != '_'; /* not __rshift__ */
}

clv_status import_op(importer *im, const mlir_op *op, clv_error *err)
{
    const import_row *row = importer_find(op->name), *outer = im->row;
    bool counts = false;
    if (im->manual)
        CLV_TRY(manual_count_devices(&counts, im, op, err));
    if (counts)
        return CLV_OK;
    if (!row && strcmp(op->name, "stablehlo.custom_call") == 0)
        return import_fail(im, op, err, CLV_EUNSUPPORTED, "@%s is not supported", op->symbol ? op->symbol : "?");
    if (!row && im->module->archive && changes_operand(op->name))
        return import_fail(im, op, err, CLV_EUNSUPPORTED,
                           "an op that changes its operand; save exported.run_decompositions({}), which has none");
    if (!row)
        return import_fail(im, op, err, CLV_EUNSUPPORTED, "this op is not supported%s",
                           im->module->archive ? "; exported.run_decompositions() may have others in its place" : "");
    if (++im->ops > IMPORT_OPS)
        return import_fail(im, op, err, CLV_ELIMIT, "more than %d ops, with loops unrolled", IMPORT_OPS);
    size_t n = (size_t)op->n_operands + (size_t)op->n_results;
    CLV_FREED imported *values = calloc(n ? n : 1, sizeof *values);
    if (!values)
        return clv_fail_memory(err, "operands", n * sizeof *values);
    for (int i = 0; i < op->n_operands; i++)
        values[i] = im->values[op->operands[i]];
    im->row = row;
    CLV_TRY((im->manual ? manual_build : import_build)(im, op, values, values + op->n_operands, err));
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

clv_status import_region(importer *im, const mlir_region *region, const mlir_op *of, const mlir_op **end,
                         clv_error *err)
{
    for (int i = 0; i < region->n_ops; i++) {
        if (ends_region(region->ops[i].name)) {
            *end = &region->ops[i];
            return CLV_OK;
        }
        CLV_TRY(import_op(im, &region->ops[i], err));
    }
    return of ? import_fail(im, of, err, CLV_ESYNTAX, "a region without a return")
              : clv_fail(err, CLV_ESYNTAX, "%s: a region without a return", im->module->file);
}

/* A constant of a PyTorch program whose elements are few: known. */
static clv_status add_constant(importer *im, const mlir_port *of, int id, clv_error *err)
{
    const clv_type *type = &of->type.tensor;
    const clv_shard all = clv_box_whole(type->rank, type->shape);
    CLV_FREED void *data = malloc((size_t)clv_type_elems(type) * clv_dtype_size(type->dtype) + 1);
    literal *known;
    if (!data)
        return clv_fail_memory(err, "a constant", (size_t)clv_type_elems(type));
    CLV_TRY(torch_read_weight(data, of->weight, &all, err));
    CLV_TRY(literal_new(&known, im, data, clv_type_elems(type) == 1, type, err));
    known->id = id;
    im->values[id] = (imported){.type = *type, .known = known};
    return import_keep_constant(im->program, known, type, err);
}

/* The layout of argument or result i. */
static clv_status port_layout(clv_layout *out, bool *stated, importer *im, int i, int rank, clv_error *err)
{
    const mlir_port *of = im->program->ports[i].of;
    CLV_TRY(import_stated_layout(out, stated, im, i, rank, err));
    return *stated ? CLV_OK : import_sharding(out, stated, im, of->attrs, of->n_attrs, rank, err);
}

static clv_status add_input(importer *im, int i, clv_error *err)
{
    const clv_import *p = im->program;
    const mlir_port *of = &p->main->args[i];
    const int id = p->main->body.args[i];
    const char *name = p->ports[i].name;
    clv_layout layout;
    clv_type type;
    bool stated;
    CLV_TRY(import_type(&type, im, &of->type, err));
    if (of->same) {
        im->values[id] = im->values[p->main->body.args[of->same - 1]];
        return CLV_OK;
    }
    if (of->constant && clv_type_elems(&type) <= IMPORT_SMALL)
        return add_constant(im, of, id, err);
    CLV_TRY(port_layout(&layout, &stated, im, i, type.rank, err));
    const clv_layout *at = stated ? &layout : NULL;
    clv_value value = of->weight ? clv_state_with_role(im->graph, of->role, name, type.dtype, type.rank, type.shape, at,
                                                       (clv_init){0})
                                 : clv_input(im->graph, name, type.dtype, type.rank, type.shape, at);
    im->values[id] = imported_of(type, value);
    return clv_graph_status(im->graph, err);
}

static clv_status add_output(importer *im, int i, const mlir_op *end, clv_error *err)
{
    const clv_import *p = im->program;
    const mlir_port *of = &p->main->results[i];
    const imported *value = &im->values[end->operands[i]];
    clv_layout layout;
    bool stated;
    if (of->type.fault || !clv_type_equal(&of->type.tensor, &value->type))
        return import_fail(im, end, err, CLV_ESHAPE, "result %d is not %s", i, of->type.text);
    if (of->assigns) {
        clv_assign(im->graph, im->values[p->main->body.args[of->assigns - 1]].value, imported_whole(im, value));
        return CLV_OK;
    }
    CLV_TRY(port_layout(&layout, &stated, im, p->main->n_args + i, value->type.rank, err));
    clv_output(im->graph, p->ports[p->main->n_args + i].name, imported_whole(im, value), stated ? &layout : NULL);
    return CLV_OK;
}

static clv_status build_program(importer *im, clv_error *err)
{
    const mlir_function *main = im->program->main;
    const mlir_op *end;
    for (int i = 0; i < main->n_args; i++)
        CLV_TRY(add_input(im, i, err));
    CLV_TRY(import_region(im, &main->body, NULL, &end, err));
    if (end->n_operands != main->n_results)
        return import_fail(im, end, err, CLV_ESYNTAX, "%d values; @main has %d results", end->n_operands,
                           main->n_results);
    im->n_each = im->graph->n_outputs;
    for (int i = 0; i < im->n_differences; i++)
        clv_output(im->graph, im->difference[i].name, im->difference[i].value, NULL);
    for (int i = 0; i < main->n_results; i++)
        CLV_TRY(add_output(im, i, end, err));
    return clv_graph_status(im->graph, err);
}

/* ---- gradients ---- */

/* The result of a name, or, with "", the only float scalar; fails with what there is. */
static clv_status find_loss(const char **out, const clv_import *p, const char *name, clv_error *err)
{
    const char *scalar = "none";
    int n = 0;
    for (int i = 0; i < p->main->n_results; i++) {
        const char *result = p->ports[p->main->n_args + i].name;
        const mlir_port *of = &p->main->results[i];
        if (clv_type_elems(&of->type.tensor) != 1 || !clv_dtype_is_float(of->type.tensor.dtype) || of->assigns ||
            (name[0] && strcmp(result, name) != 0))
            continue;
        scalar = *out = result;
        n++;
    }
    if (n == 1)
        return CLV_OK;
    return clv_fail(err, CLV_EINVAL, "%s: gradients are of one result, a float scalar; %s%.200s%s", p->module->file,
                    n == 0 && name[0] ? name : "",
                    n == 0 && name[0] ? " is none"
                    : n == 0          ? "there is none"
                                      : scalar,
                    n > 1 ? " is not the only one" : "");
}

/* Outputs "grad.NAME" of the loss, of each parameter: those of the program, which begin behind `others` parameters and
 * `outputs` outputs of the graph. */
static clv_status add_gradients(clv_graph *graph, const clv_import *p, int others, int outputs, const char *name,
                                clv_error *err)
{
    const int all = clv_graph_parameters(graph, NULL, 0), n = all - others;
    const char *result;
    clv_value loss = CLV_NONE;
    CLV_TRY(find_loss(&result, p, name, err));
    if (n == 0)
        return clv_fail(err, CLV_EINVAL, "%s: gradients are of parameters; the program has none", p->module->file);
    CLV_FREED clv_value *parameters = calloc((size_t)all, sizeof *parameters);
    CLV_FREED clv_value *gradients = calloc((size_t)n, sizeof *gradients);
    if (!parameters || !gradients)
        return clv_fail_memory(err, "gradients", (size_t)n * sizeof *gradients);
    for (int i = outputs; i < graph->n_outputs; i++)
        if (strcmp(graph->outputs[i].name, result) == 0)
            loss = (clv_value){graph->outputs[i].value};
    clv_graph_parameters(graph, parameters, all);
    const clv_value *own = parameters + others;
    clv_gradients(graph, clv_reshape(graph, loss, 0, NULL), CLV_NONE, own, n, gradients);
    for (int i = 0; i < n; i++) {
        const char *output = clv_arena_format(graph->arena, "grad.%s", clv_value_name(graph, own[i]));
        if (!output)
            return clv_fail_memory(err, "gradients", 0);
        clv_output(graph, output, gradients[i], NULL);
    }
    return clv_graph_status(graph, err);
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
    return import_patterns(to, im->graph, im->n_each, patterns, count_pattern, im->program, err);
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
    im.differences = how.differences;
    program->faults.n = 0;
    im.gradients = how.gradients_of != NULL;
    if (!table || !states)
        return clv_fail_memory(err, "values", values * sizeof *table);
    CLV_TRY(clv_graph_new(&im.graph, clv_graph_mesh(graph), err));
    const int others = clv_graph_parameters(graph, NULL, 0), outputs = graph->n_outputs;
    clv_status status = build_program(&im, err);
    if (status == CLV_OK)
        status = add_patterns(graph, &im, !how.no_patterns, err);
    clv_graph_free(im.graph);
    if (status == CLV_OK && how.gradients_of)
        status = add_gradients(graph, program, others, outputs, how.gradients_of, err);
    return status;
}
