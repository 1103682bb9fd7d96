/* export_program.c - clv_export_stablehlo: a graph as a module of one function, with its mesh and shardings. */
#include <stdlib.h>

#include "cleave/export.h"
#include "interop/export/exporter.h"

/* ---- text ---- */

char *export_escaped(const char *name)
{
    size_t n = strlen(name);
    char *out = malloc(3 * n + 1), *to = out;
    for (size_t i = 0; out && i <= n; i++)
        if (name[i] == '"' || name[i] == '\\')
            to += snprintf(to, 4, "\\%02X", (unsigned char)name[i]);
        else
            *to++ = name[i];
    return out;
}

/* prefix: part of the name. */
static void put_prefixed(FILE *to, const char *prefix, const char *name, const char *after)
{
    CLV_FREED char *escaped = export_escaped(name);
    fprintf(to, "\"%s%s\"%s", prefix, escaped ? escaped : "", after);
}

static void put_name(FILE *to, const char *before, const char *name, const char *after)
{
    fputs(before, to);
    put_prefixed(to, "", name, after);
}

void export_mesh(FILE *to, const clv_mesh *mesh)
{
    fputs("sdy.mesh @mesh = <[", to);
    for (int a = 0; a < mesh->n_axes; a++) {
        put_name(to, a ? ", " : "", mesh->axis[a].name, "=");
        fprintf(to, "%lld", (long long)mesh->axis[a].size);
    }
    fputs("]>\n", to);
}

void export_sharding(FILE *to, const clv_layout *layout, const clv_mesh *mesh)
{
    fputs("<@mesh, [", to);
    for (int d = 0; d < layout->rank; d++) {
        const clv_subaxis *subs;
        int n = clv_layout_axes(&subs, layout, d);
        fputs(d ? ", {" : "{", to);
        for (int i = 0; i < n; i++) {
            put_name(to, i ? ", " : "", mesh->axis[subs[i].axis].name, "");
            if (subs[i].size != mesh->axis[subs[i].axis].size)
                fprintf(to, ":(%lld)%lld", (long long)subs[i].pre, (long long)subs[i].size);
        }
        fputs("}", to);
    }
    fputs("]>", to);
}

/* JAX splits arguments and results evenly or not at all: the layout without the dimensions that are not. */
static clv_layout evenly(const clv_layout *layout, const clv_type *type, const clv_mesh *mesh)
{
    clv_layout even = *layout;
    for (int d = 0; d < type->rank; d++)
        if (type->shape[d] % clv_layout_block_count(layout, d) != 0)
            (void)clv_layout_set_dim(&even, mesh, d, NULL, 0, 1, NULL);
    return even;
}

/* An output, or state that is assigned: its name, value and layout. */
typedef struct result {
    const char *name;
    bool is_state; /* called "new." and its name: arguments and results differ in their names */
    int value;
    const clv_layout *layout;
} result;

/* " {name, sharding}" of an argument or result; nothing where it has neither. */
static void put_attributes(exporter *ex, const result *of, const clv_layout *layout, const clv_type *type)
{
    const bool sharded = layout && ex->graph->mesh.n_axes > 0;
    if (!of && !sharded)
        return;
    fputs(" {", ex->to);
    if (of) {
        fputs("jax.result_info = ", ex->to);
        put_prefixed(ex->to, of->is_state ? "new." : "", of->name, sharded ? ", " : "");
    }
    if (sharded) {
        const clv_layout even = evenly(layout, type, &ex->graph->mesh);
        fputs("sdy.sharding = #sdy.sharding", ex->to);
        export_sharding(ex->to, &even, &ex->graph->mesh);
    }
    fputs("}", ex->to);
}

/* ---- constants ---- */

static void put_element(FILE *to, clv_dtype dtype, const void *data, int64_t i)
{
    char number[EXPORT_NUMBER];
    if (dtype == CLV_I64) /* a double does not hold all of them */
        fprintf(to, "%lld", (long long)((const int64_t *)data)[i]);
    else
        fputs(export_print_number(number, dtype, clv_dtype_load(dtype, data, i)), to);
}

/* Elements from *i on, in the brackets of dimensions d and later. */
static void put_elements(FILE *to, const clv_type *type, const void *data, int d, int64_t *i)
{
    if (d == type->rank) {
        put_element(to, type->dtype, data, (*i)++);
        return;
    }
    for (int64_t k = 0; k < type->shape[d]; k++) {
        fputs(k ? ", " : "[", to);
        put_elements(to, type, data, d + 1, i);
    }
    fputs("]", to);
}

static clv_status put_constant(exporter *ex, int v, clv_state_source *source, void *arg, clv_error *err)
{
    const clv_value_info *info = &ex->graph->values[v];
    const int64_t elems = clv_type_elems(&info->type);
    clv_shard box = {.rank = info->type.rank};
    CLV_FREED void *data = malloc((size_t)elems * clv_dtype_size(info->type.dtype) + 1);
    int known = 0;
    int64_t i = 0;
    if (!data)
        return clv_fail_memory(err, "a constant", (size_t)elems * clv_dtype_size(info->type.dtype));
    for (int d = 0; d < box.rank; d++)
        box.hi[d] = info->type.shape[d];
    CLV_TRY(source(arg, info->name, &info->type, &box, data, &known, err));
    if (!known || elems == 0)
        return CLV_OK;
    ex->values[v] = (exported){ex->n++, info->type};
    fprintf(ex->to, "    %%%d = stablehlo.constant dense<", ex->values[v].id);
    put_elements(ex->to, &info->type, data, 0, &i);
    fprintf(ex->to, "> : %s", export_type(&info->type).text);
    put_name(ex->to, " loc(", info->name, ")\n");
    return CLV_OK;
}

/* State that the source knows. */
static clv_status put_constants(exporter *ex, clv_state_source *source, void *arg, clv_error *err)
{
    for (int v = 1; source && v < ex->graph->n_values; v++)
        if (ex->graph->values[v].source == CLV_FROM_STATE && !ex->graph->values[v].assigned)
            CLV_TRY(put_constant(ex, v, source, arg, err));
    return CLV_OK;
}

/* ---- the function ---- */

static const clv_layout *stated(const clv_value_info *info)
{
    return info->stated ? &info->layout : NULL;
}

static void put_arguments(exporter *ex)
{
    const char *before = "";
    for (int v = 1; v < ex->graph->n_values; v++) {
        const clv_value_info *info = &ex->graph->values[v];
        if (info->source == CLV_FROM_OP || ex->values[v].id)
            continue;
        ex->values[v] = (exported){ex->n++, info->type};
        fprintf(ex->to, "%s%%%d: %s", before, ex->values[v].id, export_type(&info->type).text);
        put_attributes(ex, NULL, stated(info), &info->type);
        put_name(ex->to, " loc(", info->name, ")");
        before = ", ";
    }
}

exported export_constrained(exporter *ex, exported x, const clv_layout *layout)
{
    const exported made = {ex->n++, x.type};
    fprintf(ex->to, "    %%%d = sdy.sharding_constraint %%%d ", made.id, x.id);
    export_sharding(ex->to, layout, &ex->graph->mesh);
    fprintf(ex->to, " : %s loc(\"%s\")\n", export_type(&x.type).text, ex->place);
    return made;
}

/* Arguments that are not split evenly get their layouts in the body. */
static void put_uneven_arguments(exporter *ex)
{
    for (int v = 1; v < ex->graph->n_values; v++) {
        const clv_value_info *info = &ex->graph->values[v];
        if (info->source == CLV_FROM_OP || !info->stated)
            continue;
        const clv_layout even = evenly(&info->layout, &info->type, &ex->graph->mesh);
        CLV_FREED char *place = export_escaped(info->name);
        ex->place = place ? place : "";
        if (!clv_layout_equal(&even, &info->layout))
            ex->values[v] = export_constrained(ex, ex->values[v], &info->layout);
    }
}

/* The layout that a result must have: a gradient's is that of what it is the gradient of, where that is stated. */
static const clv_layout *output_layout(const clv_graph *g, const clv_graph_output *output)
{
    const int primal = g->values[output->value].primal;
    return output->stated ? &output->layout : primal ? stated(&g->values[primal]) : NULL;
}

/* Result i; false past the end. */
static bool result_at(result *out, const clv_graph *g, int i)
{
    if (i < g->n_outputs) {
        *out = (result){g->outputs[i].name, false, g->outputs[i].value, output_layout(g, &g->outputs[i])};
        return true;
    }
    i -= g->n_outputs;
    for (int v = 1; v < g->n_values; v++)
        if (g->values[v].source == CLV_FROM_STATE && g->values[v].assigned && i-- == 0) {
            *out = (result){g->values[v].name, true, g->values[v].assigned, stated(&g->values[v])};
            return true;
        }
    return false;
}

static void put_results(exporter *ex)
{
    result r;
    for (int i = 0; result_at(&r, ex->graph, i); i++) {
        fprintf(ex->to, "%s%s", i ? ", " : "", export_type(&ex->graph->values[r.value].type).text);
        put_attributes(ex, &r, r.layout, &ex->graph->values[r.value].type);
    }
}

static void put_return(exporter *ex)
{
    result r;
    fputs("    return", ex->to);
    for (int i = 0; result_at(&r, ex->graph, i); i++)
        fprintf(ex->to, "%s%%%d", i ? ", " : " ", ex->values[r.value].id);
    for (int i = 0; result_at(&r, ex->graph, i); i++)
        fprintf(ex->to, "%s%s", i ? ", " : " : ", export_type(&ex->graph->values[r.value].type).text);
    fputs("\n", ex->to);
}

static const export_row *find_row(const clv_op_def *def)
{
    static const export_row *const tables[] = {export_elementwise_rows, export_shape_rows,     export_reduce_rows,
                                               export_layer_rows,       export_attention_rows, export_index_rows,
                                               export_update_rows,      export_order_rows,     export_experts_rows};
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
        for (const export_row *row = tables[t]; row->def; row++)
            if (strcmp(row->def->name, def->name) == 0) /* the registry has copies of custom ones */
                return row;
    return NULL;
}

static clv_status put_op(exporter *ex, const clv_op *op, clv_error *err)
{
    const export_row *row = find_row(op->def);
    exported in[CLV_MAX_IN], out[CLV_MAX_OUT];
    CLV_FREED char *place = export_escaped(op->name);
    if (!place)
        return clv_fail_memory(err, "an op's name", strlen(op->name));
    if (!row)
        return clv_fail(err, CLV_EUNSUPPORTED, "%s: an op '%s' is not among those that are written as StableHLO",
                        op->name, op->def->name);
    ex->op = op;
    ex->place = place;
    for (int i = 0; i < op->n_in; i++)
        in[i] = op->in[i] ? ex->values[op->in[i]] : (exported){.type = {.rank = -1}};
    for (int i = 0; i < op->n_out; i++)
        out[i] = (exported){0, ex->graph->values[op->out[i]].type};
    row->write(ex, in, out);
    if (ex->fault)
        return clv_fail(err, CLV_EUNSUPPORTED, "%s: an op '%s' %s is not among those that are written as StableHLO",
                        op->name, op->def->name, ex->fault);
    for (int i = 0; i < op->n_out; i++)
        ex->values[op->out[i]] = out[i];
    return CLV_OK;
}

static clv_status write_module(exporter *ex, const char *constants, clv_error *err)
{
    const clv_mesh *mesh = &ex->graph->mesh;
    fprintf(ex->to, "module @jit_step attributes {mhlo.num_partitions = %lld : i32, mhlo.num_replicas = 1 : i32} {\n",
            (long long)clv_mesh_rank_count(mesh));
    if (mesh->n_axes > 0) {
        fputs("  ", ex->to);
        export_mesh(ex->to, mesh);
    }
    fputs("  func.func public @main(", ex->to);
    put_arguments(ex);
    fputs(") -> (", ex->to);
    put_results(ex);
    fprintf(ex->to, ") {\n%s", constants);
    put_uneven_arguments(ex);
    for (int i = 0; i < ex->graph->n_ops; i++)
        CLV_TRY(put_op(ex, &ex->graph->ops[i], err));
    put_return(ex);
    fputs("  }\n}\n", ex->to);
    return CLV_OK;
}

/* A text that is being written; closed, it is in `text`. */
typedef struct memory_file {
    char *text;
    size_t size;
    FILE *file;
} memory_file;

static clv_status begin(memory_file *out, exporter *ex, clv_error *err)
{
    ex->to = out->file = open_memstream(&out->text, &out->size);
    return out->file ? CLV_OK : clv_fail_memory(err, "a program's text", 0);
}

static clv_status end(memory_file *out, clv_status status, clv_error *err)
{
    bool written = fclose(out->file) == 0;
    return status == CLV_OK && !written ? clv_fail_memory(err, "a program's text", out->size) : status;
}

static clv_status write_text(memory_file *out, exporter *ex, clv_state_source *source, void *arg, clv_error *err)
{
    memory_file constants = {0};
    CLV_TRY(begin(&constants, ex, err));
    clv_status status = end(&constants, put_constants(ex, source, arg, err), err);
    if (status == CLV_OK)
        status = begin(out, ex, err);
    if (status == CLV_OK)
        status = end(out, write_module(ex, constants.text, err), err);
    free(constants.text);
    return status;
}

clv_status clv_export_stablehlo(char **out, size_t *size, const clv_graph *graph, clv_state_source *source, void *arg,
                                clv_error *err)
{
    memory_file text = {0};
    CLV_TRY(clv_require(out && graph, __func__, "out and graph", err));
    CLV_TRY(clv_graph_status(graph, err));
    CLV_FREED exported *values = calloc((size_t)graph->n_values + 1, sizeof *values);
    exporter ex = {.graph = graph, .values = values, .n = 1};
    if (!values)
        return clv_fail_memory(err, "a program's values", (size_t)graph->n_values * sizeof *values);
    clv_status status = write_text(&text, &ex, source, arg, err);
    if (status != CLV_OK) {
        free(text.text);
        return status;
    }
    *out = text.text;
    if (size)
        *size = text.size;
    return CLV_OK;
}
