/* import_evaluate.c - computes ops of known operands while a program is imported, by the ops' own kernels.
 *
 * The op is built in a graph of its own, whose inputs are the operands, and that graph's kernels are called in order.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "interop/importer.h"

static clv_view view_of(const clv_type *type, void *data)
{
    clv_view view = {.data = data, .dtype = type->dtype, .rank = type->rank};
    memcpy(view.shape, type->shape, sizeof view.shape);
    memcpy(view.global, type->shape, sizeof view.global);
    return view;
}

static clv_status run_op(const clv_graph *graph, const clv_op *op, void **data, clv_error *err)
{
    clv_view in[CLV_MAX_IN] = {0}, out[CLV_MAX_OUT] = {0};
    CLV_FREED void *workspace = NULL;
    for (int i = 0; i < op->n_in; i++)
        in[i] = view_of(&graph->values[op->in[i]].type, data[op->in[i]]);
    for (int o = 0; o < op->n_out; o++) {
        const clv_type *type = &graph->values[op->out[o]].type;
        size_t bytes = (size_t)clv_type_elems(type) * clv_dtype_size(type->dtype) + 64;
        data[op->out[o]] = aligned_alloc(64, (bytes + 63) / 64 * 64);
        if (!data[op->out[o]])
            return clv_fail_memory(err, "a constant", bytes);
        out[o] = view_of(type, data[op->out[o]]);
    }
    size_t bytes = op->def->workspace ? op->def->workspace(op, in, out) : 0;
    workspace = aligned_alloc(64, (bytes + 127) / 64 * 64);
    if (!workspace)
        return clv_fail_memory(err, "a workspace", bytes);
    const clv_call call = {.op = op, .in = in, .out = out, .workspace = workspace};
    return op->def->run(&call, err);
}

/* Operand i as an input, of one element if `splats`. */
static clv_status add_operand(importer *scratch, imported *to, const imported *from, int i, bool splats, void **data,
                              clv_error *err)
{
    char name[16];
    clv_type type = from->type;
    type.rank = splats ? 0 : type.rank;
    size_t size = clv_dtype_size(type.dtype), elems = (size_t)clv_type_elems(&type);
    snprintf(name, sizeof name, "%d", i);
    *to = imported_of(from->type,
                      clv_input(scratch->graph, name, type.dtype, type.rank, type.rank ? type.shape : NULL, NULL));
    char *copy = aligned_alloc(64, (elems * size + 127) / 64 * 64);
    if (!copy)
        return clv_fail_memory(err, "a constant", elems * size);
    for (size_t e = 0; e < elems; e++)
        memcpy(copy + e * size, (const char *)from->known->data + (from->known->splat ? 0 : e) * size, size);
    if (clv_valid(to->value))
        data[to->value.id] = copy;
    else
        free(copy);
    return CLV_OK;
}

enum { VALUES = 256 };

static clv_status evaluate(importer *scratch, const mlir_op *op, const imported *in, bool splats, void **data,
                           imported *out, importer *im, clv_error *err)
{
    imported operands[CLV_MAX_IN], made[CLV_MAX_OUT] = {0};
    for (int i = 0; i < op->n_operands; i++)
        CLV_TRY(add_operand(scratch, &operands[i], &in[i], i, splats, data, err));
    CLV_TRY(scratch->row->build(scratch, op, operands, made, err));
    CLV_TRY(clv_graph_status(scratch->graph, err));
    if (scratch->graph->n_values > VALUES)
        return import_fail(im, op, err, CLV_ELIMIT, "too many steps of a constant");
    clv_value value = splats ? imported_compact(scratch, &made[0]) : imported_whole(scratch, &made[0]);
    CLV_TRY(clv_graph_status(scratch->graph, err));
    for (int i = 0; i < scratch->graph->n_ops; i++)
        CLV_TRY(run_op(scratch->graph, &scratch->graph->ops[i], data, err));
    clv_type type = made[0].type;
    literal *known;
    CLV_TRY(literal_new(&known, im, data[value.id], splats || clv_type_elems(&type) == 1, &type, err));
    out[0] = (imported){.type = type, .known = known};
    return CLV_OK;
}

clv_status import_evaluate(importer *im, const mlir_op *op, const imported *in, bool splats, imported *out,
                           clv_error *err)
{
    void *data[2 * VALUES] = {0};
    importer scratch = *im;
    scratch.scratch = true;
    CLV_TRY(clv_graph_new(&scratch.graph, clv_graph_mesh(im->graph), err));
    clv_status status = evaluate(&scratch, op, in, splats, data, out, im, err);
    for (int i = 0; i < 2 * VALUES; i++)
        free(data[i]);
    clv_graph_free(scratch.graph);
    return status;
}
