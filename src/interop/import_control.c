/* import_control.c - imports calls, loops and barriers: builds what such an op contains in its place.
 *
 * A while loop is unrolled: its counter is known at each turn (import_evaluate.c), and with it whether there is another
 * one. Of a case whose index is not known all branches are built, and their results selected. */
#include <stdlib.h>
#include <string.h>

#include "interop/importer.h"

static void bind(importer *im, const mlir_region *region, const imported *in)
{
    for (int i = 0; i < region->n_args; i++)
        im->values[region->args[i]] = in[i];
}

/* The operands of a return. */
static void take_results(const importer *im, const mlir_op *end, imported *out)
{
    for (int i = 0; i < end->n_operands; i++)
        out[i] = im->values[end->operands[i]];
}

static clv_status call(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    const mlir_attr *callee = mlir_find_attr(op->attrs, op->n_attrs, "callee");
    const char *name = op->symbol ? op->symbol : callee ? callee->text : "";
    const mlir_function *f = mlir_find_function(im->module, name);
    const mlir_op *end;
    if (!f)
        return import_fail(im, op, err, CLV_ENOTFOUND, "there is no function @%s", name);
    if (f->n_args != op->n_operands || f->n_results != op->n_results)
        return import_fail(im, op, err, CLV_ESYNTAX, "@%s has %d arguments and %d results", name, f->n_args,
                           f->n_results);
    for (int i = 0; i < f->n_args; i++)
        if (f->args[i].type.fault || !clv_type_equal(&f->args[i].type.tensor, &in[i].type))
            return import_fail(im, op, err, CLV_ESHAPE, "argument %d of @%s is %s", i, name, f->args[i].type.text);
    if (++im->calls > IMPORT_CALLS)
        return import_fail(im, op, err, CLV_ELIMIT, "more than %d calls in each other", IMPORT_CALLS);
    bind(im, &f->body, in);
    CLV_TRY(import_region(im, &f->body, op, &end, err));
    im->calls--;
    if (end->n_operands != op->n_results)
        return import_fail(im, end, err, CLV_ESYNTAX, "%d values; @%s has %d results", end->n_operands, name,
                           op->n_results);
    take_results(im, end, out);
    return CLV_OK;
}

/* Whether there is another turn. */
static clv_status goes_on(bool *yes, importer *im, const mlir_op *op, clv_error *err)
{
    const mlir_op *end;
    double real;
    int64_t whole = 0;
    CLV_TRY(import_region(im, &op->regions[0], op, &end, err));
    if (end->n_operands != 1 || !imported_number(&im->values[end->operands[0]], &real, &whole))
        return import_fail(im, op, err, CLV_EUNSUPPORTED,
                           "the number of its turns depends on values; loops of a known number (lax.scan) can be "
                           "imported");
    *yes = whole != 0;
    return CLV_OK;
}

static clv_status while_loop(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    const mlir_op *end;
    bool more;
    if (op->n_regions != 2 || op->n_operands != op->n_results || op->regions[0].n_args != op->n_operands ||
        op->regions[1].n_args != op->n_operands)
        return import_fail(im, op, err, CLV_ESYNTAX, "a condition and a body of %d arguments are needed",
                           op->n_operands);
    memcpy(out, in, (size_t)op->n_operands * sizeof *out);
    for (int turn = 0;; turn++) {
        bind(im, &op->regions[0], out);
        CLV_TRY(goes_on(&more, im, op, err));
        if (!more)
            return CLV_OK;
        if (turn == IMPORT_TURNS)
            return import_fail(im, op, err, CLV_ELIMIT, "more than %d turns; loops are unrolled", IMPORT_TURNS);
        bind(im, &op->regions[1], out);
        CLV_TRY(import_region(im, &op->regions[1], op, &end, err));
        if (end->n_operands != op->n_results)
            return import_fail(im, end, err, CLV_ESYNTAX, "%d values; the loop has %d", end->n_operands, op->n_results);
        take_results(im, end, out);
    }
}

static clv_status take_branch(importer *im, const mlir_op *op, int64_t i, imported *out, clv_error *err)
{
    const mlir_op *end;
    if (op->regions[i].n_args != 0)
        return import_fail(im, op, err, CLV_ESYNTAX, "a branch with arguments; valid: none");
    CLV_TRY(import_region(im, &op->regions[i], op, &end, err));
    if (end->n_operands != op->n_results)
        return import_fail(im, end, err, CLV_ESYNTAX, "%d values; %d are needed", end->n_operands, op->n_results);
    take_results(im, end, out);
    return CLV_OK;
}

/* All branches, the last of them where the index is none of the others: a branch has no effect but its results. The
 * index of an `if` is whether it is the first of two. */
static clv_status choose_among_branches(importer *im, const mlir_op *op, const imported *index, imported *out,
                                        clv_error *err)
{
    CLV_FREED imported *other = calloc((size_t)op->n_results + 1, sizeof *other);
    const clv_value which = imported_compact(im, index);
    if (!other)
        return clv_fail_memory(err, "a branch", (size_t)op->n_results * sizeof *other);
    CLV_TRY(take_branch(im, op, op->n_regions - 1, out, err));
    for (int i = op->n_regions - 2; i >= 0; i--) {
        CLV_TRY(take_branch(im, op, i, other, err));
        clv_value is = im->row->kind ? which
                                     : clv_pointwise(im->graph, CLV_EQUAL, which,
                                                     clv_fill(im->graph, index->type.dtype, 0, NULL, i));
        for (int r = 0; r < op->n_results; r++) {
            if (!clv_type_equal(&other[r].type, &out[r].type))
                return import_fail(im, op, err, CLV_ESHAPE, "branches with results of different types");
            clv_value where = clv_where(im->graph, is, imported_compact(im, &other[r]), imported_compact(im, &out[r]));
            out[r] = imported_of(out[r].type, where);
        }
    }
    return CLV_OK;
}

/* Branch i, clamped to the last. */
static clv_status branch(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    const bool is_if = im->row->kind;
    double real;
    int64_t i;
    if (op->n_operands != 1 || (is_if ? op->n_regions != 2 : op->n_regions < 1))
        return import_fail(im, op, err, CLV_ESYNTAX, "%d operands and %d branches; valid: %s", op->n_operands,
                           op->n_regions, is_if ? "a condition and two branches" : "an index, and a branch or more");
    if (in[0].type.rank != 0 || in[0].type.dtype != (is_if ? CLV_BOOL : CLV_I32))
        return import_fail(im, op, err, CLV_ESHAPE, "of %s of rank %d; valid: %s of rank 0",
                           clv_dtype_name(in[0].type.dtype), in[0].type.rank, is_if ? "i1" : "i32");
    if (imported_number(&in[0], &real, &i)) {
        i = is_if ? !i : i;
        return take_branch(im, op, i < 0 || i >= op->n_regions ? op->n_regions - 1 : i, out, err);
    }
    if (im->manual)
        return import_fail(im, op, err, CLV_EUNSUPPORTED, "inside shard_map, which branch is taken depends on values");
    return choose_among_branches(im, op, &in[0], out, err);
}

static clv_status same(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    if (op->n_operands != op->n_results)
        return import_fail(im, op, err, CLV_ESYNTAX, "%d operands, %d results", op->n_operands, op->n_results);
    memcpy(out, in, (size_t)op->n_operands * sizeof *out);
    return CLV_OK;
}

const import_row import_control_rows[] = {
    {"func.call", call, 0, false, false},
    {"call", call, 0, false, false},
    {"stablehlo.while", while_loop, 0, false, false},
    {"stablehlo.case", branch, 0, false, false},
    {"stablehlo.if", branch, 1, false, false},
    {"stablehlo.optimization_barrier", same, 0, false, false},
    {0},
};
