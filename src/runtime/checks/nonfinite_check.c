/* nonfinite_check.c - checks each instruction's results for NaN and infinity (option find_nonfinite).
 *
 * The first finding ends the run, so operands that other instructions computed are finite. Inputs and state are checked
 * only when a result is not finite.
 */
#include "runtime/checks/nonfinite_check.h"

#include <math.h>
#include <stdlib.h>

#include "base/error.h"
#include "tensor/parse_print.h"

/* What holds for a chunk holds for its whole buffer. */
bool *clv_negative_infinity_allowed(const clv_program *program)
{
    bool *minus_infinity_allowed = calloc((size_t)program->n_buffers + 1, sizeof *minus_infinity_allowed);
    for (int b = 0; minus_infinity_allowed && b < program->n_buffers; b++)
        minus_infinity_allowed[b] = program->buffers[b].layout.reduction == CLV_REDUCTION_MAX;
    for (int i = 0; minus_infinity_allowed && i < program->n_instructions; i++) {
        const clv_instruction *instruction = &program->instructions[i];
        for (int o = 0; o < instruction->n_out; o++) {
            bool allowed = instruction->op ? instruction->op->def->may_be_lowest >> o & 1
                                           : minus_infinity_allowed[clv_program_unchunked(program, instruction->in[0])];
            int out = clv_program_unchunked(program, instruction->out[o]);
            minus_infinity_allowed[out] = minus_infinity_allowed[out] || allowed;
        }
    }
    for (int b = 0; minus_infinity_allowed && b < program->n_buffers; b++)
        minus_infinity_allowed[b] = minus_infinity_allowed[clv_program_unchunked(program, b)];
    return minus_infinity_allowed;
}

static int64_t first_nonfinite(const clv_view *view, bool minus_infinity_allowed)
{
    int64_t elems = clv_view_elems(view), size = (int64_t)clv_dtype_size(view->dtype), at = 0;
    while (at < elems) {
        int64_t found = clv_dtype_first_nonfinite(view->dtype, (const char *)view->data + at * size, elems - at);
        if (found < 0)
            return -1;
        at += found;
        if (!minus_infinity_allowed || clv_dtype_load(view->dtype, view->data, at) != -INFINITY)
            return at;
        at++;
    }
    return -1;
}

static bool is_named(const clv_program *program, int buffer)
{
    return buffer >= 0 && program->buffers[buffer].kind != CLV_BUFFER_TEMP;
}

static void check_strip(clv_nonfinite_element *found, const clv_loaded_program *loaded, int rank, int buffer)
{
    const clv_view *view = clv_loaded_program_view(loaded, rank, buffer);
    int64_t at = first_nonfinite(view, loaded->minus_infinity_allowed[buffer]);
    if (at >= 0)
        *found = (clv_nonfinite_element){buffer, at, clv_dtype_load(view->dtype, view->data, at)};
}

/* Checks one operand or result, if nothing was found yet. */
static void check_buffer(clv_nonfinite_element *found, const clv_loaded_program *loaded, int rank, int buffer)
{
    clv_buffer_range strips = clv_program_chunk_strips(loaded->program, buffer);
    for (int k = 0; k < strips.n && found->buffer < 0; k++)
        check_strip(found, loaded, rank, clv_buffer_range_at(&strips, k));
}

static clv_status fail(const clv_nonfinite_element *found, const clv_loaded_program *loaded, int rank, int i,
                       const char *suffix, clv_error *err)
{
    const clv_instruction *instruction = &loaded->program->instructions[i];
    const clv_view *view = clv_loaded_program_view(loaded, rank, found->buffer);
    int64_t index[CLV_MAX_RANK], rest = found->at;
    char what[256], where[256];
    clv_text text = {.out = where, .size = sizeof where};
    clv_shard shard = clv_program_shard(loaded->program, found->buffer, rank);
    for (int d = view->rank - 1; d >= 0; rest /= view->shape[d--])
        index[d] = shard.lo[d] + rest % view->shape[d];
    for (int d = 0; d < view->rank; d++)
        clv_text_add(&text, "%s%lld", d ? "," : "", (long long)index[d]);
    clv_text_finish(&text);
    clv_buffer_describe(what, sizeof what, loaded->program, found->buffer);
    return clv_fail_at(err, CLV_ENONFINITE, rank, instruction->name, "rank %d, %s: %s is %g at [%s]%s", rank,
                       instruction->name, what, found->value, view->rank ? where : "", suffix);
}

clv_status clv_nonfinite_check_before(clv_nonfinite_element *out, const clv_loaded_program *loaded, int rank, int i,
                                      clv_error *err)
{
    const clv_program *program = loaded->program;
    const clv_instruction *instruction = &program->instructions[i];
    *out = (clv_nonfinite_element){.buffer = -1};
    for (int k = 0; k < instruction->n_in; k++) {
        bool replaced = instruction->group >= 0;
        for (int o = 0; is_named(program, instruction->in[k]) && o < instruction->n_out; o++)
            replaced = replaced || clv_program_owning_buffer(program, instruction->out[o]) == instruction->in[k];
        if (replaced && is_named(program, instruction->in[k]))
            check_buffer(out, loaded, rank, instruction->in[k]);
    }
    return out->buffer >= 0 && instruction->group >= 0 ? fail(out, loaded, rank, i, ", which this step moves", err)
                                                       : CLV_OK;
}

clv_status clv_nonfinite_check_after(const clv_nonfinite_element *before, const clv_loaded_program *loaded, int rank,
                                     int i, clv_error *err)
{
    const clv_program *program = loaded->program;
    const clv_instruction *instruction = &program->instructions[i];
    clv_nonfinite_element result = {.buffer = -1}, operand = *before;
    for (int o = 0; o < instruction->n_out; o++)
        check_buffer(&result, loaded, rank, instruction->out[o]);
    if (result.buffer < 0)
        return CLV_OK;
    for (int k = 0; k < instruction->n_in; k++)
        if (is_named(program, instruction->in[k]))
            check_buffer(&operand, loaded, rank, instruction->in[k]);
    if (operand.buffer >= 0)
        return fail(&operand, loaded, rank, i, ", which this op reads", err);
    return fail(&result, loaded, rank, i, instruction->n_in ? ", though all operands are finite" : "", err);
}
