/* run_bindings.c - validates the inputs and outputs of a run; checks that boxes cover what local ranks need. */
#include "runtime/session/run_bindings.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "tensor/box_runs.h"

static const char *const kind_name[] = {"input", "output"};

/* ---- boxes ---- */

clv_shard clv_box_of_type(const clv_type *type)
{
    return clv_box_whole(type->rank, type->shape);
}

void clv_box_print(char *out, size_t size, const clv_shard *box)
{
    size_t used = (size_t)snprintf(out, size, "[");
    for (int d = 0; d < box->rank && d < CLV_MAX_RANK && used < size; d++)
        used += (size_t)snprintf(out + used, size - used, "%s%lld:%lld", d > 0 ? ", " : "", (long long)box->lo[d],
                                 (long long)box->hi[d]);
    if (used < size)
        snprintf(out + used, size - used, "]");
}

/* The parts of `box` outside `inner`, which is inside it: at most two per dimension. */
static int subtract_box(clv_shard out[2 * CLV_MAX_RANK], clv_shard box, const clv_shard *inner)
{
    int n = 0;
    for (int d = 0; d < box.rank; d++) {
        clv_shard below = box, above = box;
        below.hi[d] = inner->lo[d];
        above.lo[d] = inner->hi[d];
        if (clv_shard_elems(&below) > 0)
            out[n++] = below;
        if (clv_shard_elems(&above) > 0)
            out[n++] = above;
        box.lo[d] = inner->lo[d];
        box.hi[d] = inner->hi[d];
    }
    return n;
}

/* Boxes before number i do not intersect `box`. Recursion is on all parts but the largest, so each is at most half of
 * the box, and the depth at most the logarithm of its elements. */
static bool find_uncovered(clv_shard *out, clv_box_iterator *next, const void *arg, clv_shard box, int i)
{
    while (clv_shard_elems(&box) > 0) {
        clv_shard has, both, parts[2 * CLV_MAX_RANK];
        do {
            if (!next(&has, &i, arg)) {
                *out = box;
                return true;
            }
            both = clv_shard_intersect(&box, &has);
        } while (clv_shard_elems(&both) == 0);
        int n = subtract_box(parts, box, &both), largest = 0;
        for (int k = 1; k < n; k++)
            largest = clv_shard_elems(&parts[k]) > clv_shard_elems(&parts[largest]) ? k : largest;
        for (int k = 0; k < n; k++)
            if (k != largest && find_uncovered(out, next, arg, parts[k], i))
                return true;
        if (n == 0)
            return false;
        box = parts[largest];
    }
    return false;
}

bool clv_box_find_uncovered(clv_shard *out, clv_box_iterator *next, const void *arg, const clv_shard *box)
{
    return find_uncovered(out, next, arg, *box, 0);
}

/* ---- bindings ---- */

/* A whole tensor, or a box of one. */
typedef struct binding {
    const char *name;
    const clv_shard *box; /* NULL: the whole tensor */
    void *data;
} binding;

static int whole_count(const clv_run *run, clv_binding_kind kind)
{
    return kind == CLV_BOUND_INPUTS ? run->n_inputs : run->n_outputs;
}

/* Binding i of a kind, whole tensors first; false past the end. */
static bool get_binding(binding *out, const clv_run *run, clv_binding_kind kind, int i)
{
    int n = whole_count(run, kind), b = i - n;
    if (b >= (kind == CLV_BOUND_INPUTS ? run->n_input_boxes : run->n_output_boxes))
        return false;
    if (kind == CLV_BOUND_INPUTS && i < n)
        *out = (binding){run->inputs[i].name, NULL, (void *)run->inputs[i].data};
    else if (kind == CLV_BOUND_INPUTS)
        *out = (binding){run->input_boxes[b].name, &run->input_boxes[b].box, (void *)run->input_boxes[b].data};
    else if (i < n)
        *out = (binding){run->outputs[i].name, NULL, run->outputs[i].data};
    else
        *out = (binding){run->output_boxes[b].name, &run->output_boxes[b].box, run->output_boxes[b].data};
    return true;
}

bool clv_run_next_box(clv_bound_box *out, int *i, const clv_run *run, clv_binding_kind kind, const char *name,
                      const clv_type *type)
{
    binding b;
    while (get_binding(&b, run, kind, *i)) {
        ++*i;
        if (strcmp(b.name, name) != 0)
            continue;
        *out = (clv_bound_box){.box = b.box ? *b.box : clv_box_of_type(type), .data = b.data};
        return true;
    }
    return false;
}

/* ---- checks ---- */

clv_status clv_run_check_names(const clv_run *run, clv_error *err)
{
    static const char call[] = "clv_session_run";
    const int counts[] = {run->n_inputs, run->n_outputs, run->n_input_boxes, run->n_output_boxes};
    const void *const lists[] = {run->inputs, run->outputs, run->input_boxes, run->output_boxes};
    binding b;
    for (int i = 0; i < 4; i++) {
        CLV_TRY(clv_require_count(counts[i], 0, call, "bindings", err));
        CLV_TRY(clv_require(lists[i] || counts[i] == 0, call, "all of its bindings", err));
    }
    for (int kind = 0; kind < 2; kind++)
        for (int i = 0; get_binding(&b, run, (clv_binding_kind)kind, i); i++)
            CLV_TRY(clv_require(b.name != NULL, call, "a name in each binding", err));
    return CLV_OK;
}

static bool has_name(const clv_program *program, clv_binding_kind kind, const char *name)
{
    for (int b = 0; kind == CLV_BOUND_INPUTS && b < program->n_buffers; b++)
        if (program->buffers[b].kind == CLV_BUFFER_INPUT && strcmp(program->buffers[b].name, name) == 0)
            return true;
    for (int o = 0; kind == CLV_BOUND_OUTPUTS && o < program->n_outputs; o++)
        if (strcmp(program->outputs[o].name, name) == 0)
            return true;
    return false;
}

/* *n: how many boxes are bound to the tensor. */
static clv_status check_boxes(int *n, const clv_run *run, clv_binding_kind kind, const char *name, const clv_type *type,
                              clv_error *err)
{
    const char *what = kind_name[kind];
    clv_bound_box bound;
    int n_whole = 0;
    *n = 0;
    for (int i = 0; clv_run_next_box(&bound, &i, run, kind, name, type); ++*n) {
        char box[CLV_BOX_TEXT], text[CLV_TYPE_TEXT];
        if (n_whole && i > whole_count(run, kind))
            return clv_fail(err, CLV_EINVAL, "%s '%s' is bound both whole and in boxes", what, name);
        n_whole += i <= whole_count(run, kind);
        if (n_whole > 1 && kind == CLV_BOUND_INPUTS)
            return clv_fail(err, CLV_EINVAL, "%s '%s' is bound twice", what, name);
        bool inside = clv_box_within(&bound.box, type->rank, type->shape);
        if (inside && (bound.data || clv_shard_elems(&bound.box) == 0))
            continue;
        clv_box_print(box, sizeof box, &bound.box);
        if (inside)
            return clv_fail(err, CLV_EINVAL, "%s '%s': NULL was given for the data of %s", what, name, box);
        clv_type_print(text, sizeof text, type);
        return clv_fail(err, CLV_ESHAPE, "%s '%s': the box %s is not inside %s", what, name, box, text);
    }
    return CLV_OK;
}

/* Iterates the boxes of an input. */
typedef struct input_boxes {
    const clv_run *run;
    const clv_buffer *buffer;
} input_boxes;

static bool next_input_box(clv_shard *out, int *i, const void *arg)
{
    const input_boxes *in = arg;
    clv_bound_box bound = {.data = NULL};
    bool more = clv_run_next_box(&bound, i, in->run, CLV_BOUND_INPUTS, in->buffer->name, &in->buffer->type);
    *out = bound.box;
    return more;
}

static clv_status check_input(const clv_run *run, const clv_buffer *buffer, const clv_mesh *mesh, int first_rank,
                              int n_ranks, clv_error *err)
{
    const input_boxes in = {run, buffer};
    int n;
    CLV_TRY(check_boxes(&n, run, CLV_BOUND_INPUTS, buffer->name, &buffer->type, err));
    if (n == 0)
        return clv_fail(err, CLV_ENOTFOUND, "the program's input '%s' is not bound", buffer->name);
    for (int r = first_rank; run->n_input_boxes > 0 && r < first_rank + n_ranks; r++) {
        clv_shard shard = clv_layout_shard(&buffer->layout, mesh, buffer->type.shape, r), uncovered;
        char text[CLV_BOX_TEXT], needed[CLV_BOX_TEXT];
        if (!clv_box_find_uncovered(&uncovered, next_input_box, &in, &shard))
            continue;
        clv_box_print(text, sizeof text, &uncovered);
        clv_box_print(needed, sizeof needed, &shard);
        return clv_fail(err, CLV_ESHAPE, "input '%s': rank %d needs %s, and no box contains %s of it", buffer->name, r,
                        needed, text);
    }
    return CLV_OK;
}

clv_status clv_run_check_bindings(const clv_run *run, const clv_program *program, int first_rank, int n_ranks,
                                  clv_error *err)
{
    binding bound;
    int n;
    /* names first: a box with a misspelt name is not reported as an uncovered input */
    for (int kind = 0; kind < 2; kind++)
        for (int i = 0; get_binding(&bound, run, (clv_binding_kind)kind, i); i++)
            if (!has_name(program, (clv_binding_kind)kind, bound.name))
                return clv_fail(err, CLV_ENOTFOUND, "the program has no %s '%s'", kind_name[kind], bound.name);
    for (int b = 0; b < program->n_buffers; b++)
        if (program->buffers[b].kind == CLV_BUFFER_INPUT)
            CLV_TRY(check_input(run, &program->buffers[b], &program->mesh, first_rank, n_ranks, err));
    for (int o = 0; o < program->n_outputs; o++)
        CLV_TRY(check_boxes(&n, run, CLV_BOUND_OUTPUTS, program->outputs[o].name,
                            &program->buffers[program->outputs[o].buffer].type, err));
    return CLV_OK;
}
