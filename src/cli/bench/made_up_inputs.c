/* made_up_inputs.c - makes inputs for the program of any plan, so that it can be timed: a model's ids and labels, a
 * block's x. */
#include "cli/bench/made_up_inputs.h"

#include <stdlib.h>
#include <string.h>

/* Element i: floats are in [-1, 1), ids and labels spread over the vocabulary, a mask keeps all, and a decode step
 * comes after seq - 1 tokens. */
static double value_at(const clv_program_tensor *t, const clv_plan_options *plan, int64_t vocab, int64_t i)
{
    if (strcmp(t->name, "lr") == 0)
        return 1e-4;
    if (clv_dtype_is_float(t->type.dtype))
        return (double)(i * 7919 % 2048) / 1024 - 1;
    if (strcmp(t->name, "ids") == 0 || strcmp(t->name, "labels") == 0)
        return (double)(i * 7919 % vocab);
    if (strcmp(t->name, "mask") == 0 || strcmp(t->name, "step") == 0)
        return 1;
    if (strcmp(t->name, "offset") == 0)
        return plan->mode == CLV_PLAN_MODE_DECODE ? (double)(plan->seq - 1) : 0;
    return 0;
}

static clv_status add(clv_made_up_inputs *out, const clv_program_tensor *t, const clv_plan_options *plan, int64_t vocab,
                      clv_error *err)
{
    int64_t n = 1;
    if (out->n == CLV_MOST_MADE_UP_INPUTS)
        return clv_fail(err, CLV_ELIMIT, "more than %d inputs", CLV_MOST_MADE_UP_INPUTS);
    for (int d = 0; d < t->type.rank; d++)
        n *= t->type.shape[d];
    void *data = malloc((size_t)n * clv_dtype_size(t->type.dtype) + 1);
    if (!data)
        return clv_fail_memory(err, t->name, (size_t)n * clv_dtype_size(t->type.dtype));
    for (int64_t i = 0; i < n; i++)
        clv_dtype_store(t->type.dtype, data, i, value_at(t, plan, vocab, i));
    out->binding[out->n++] = (clv_input_binding){t->name, data};
    return CLV_OK;
}

clv_status clv_made_up_inputs_make(clv_made_up_inputs *out, const clv_program *program, const clv_plan_options *plan,
                                   int64_t vocab, clv_error *err)
{
    clv_program_tensor t = {.size = sizeof t};
    *out = (clv_made_up_inputs){0};
    for (int i = 0; clv_program_tensor_at(program, i, &t, NULL) == CLV_OK && t.name; i++)
        if (t.kind == CLV_NAMED_INPUT)
            CLV_TRY(add(out, &t, plan, vocab, err));
    return CLV_OK;
}

void clv_made_up_inputs_free(clv_made_up_inputs *inputs)
{
    for (int i = 0; i < inputs->n; i++)
        free((void *)inputs->binding[i].data);
    inputs->n = 0;
}
