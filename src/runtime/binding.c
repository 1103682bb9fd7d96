/* binding.c - see binding.h. */
#include "runtime/binding.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"

clv_shard clv_whole_box(const clv_type *type)
{
    clv_shard whole = {.rank = type->rank};
    for (int d = 0; d < type->rank; d++)
        whole.hi[d] = type->shape[d];
    return whole;
}

bool clv_box_inside(const clv_shard *box, const clv_type *type)
{
    bool inside = box->rank == type->rank;
    for (int d = 0; inside && d < box->rank; d++)
        inside = 0 <= box->lo[d] && box->lo[d] <= box->hi[d] && box->hi[d] <= type->shape[d];
    return inside;
}

bool clv_next_input(clv_bound *out, int *i, const clv_run *run, const char *name, const clv_type *type)
{
    for (; *i < run->n_inputs + run->n_input_parts; ++*i) {
        bool whole = *i < run->n_inputs;
        const clv_input_part *part = whole ? NULL : &run->input_parts[*i - run->n_inputs];
        if (strcmp(whole ? run->inputs[*i].name : part->name, name) != 0)
            continue;
        *out = (clv_bound){.box = whole ? clv_whole_box(type) : part->box,
                           .data = (void *)(whole ? run->inputs[*i].data : part->data)};
        ++*i;
        return true;
    }
    return false;
}

bool clv_next_output(clv_bound *out, int *i, const clv_run *run, const char *name, const clv_type *type)
{
    for (; *i < run->n_outputs + run->n_output_parts; ++*i) {
        bool whole = *i < run->n_outputs;
        const clv_output_part *part = whole ? NULL : &run->output_parts[*i - run->n_outputs];
        if (strcmp(whole ? run->outputs[*i].name : part->name, name) != 0)
            continue;
        *out = (clv_bound){.box = whole ? clv_whole_box(type) : part->box,
                           .data = whole ? run->outputs[*i].data : part->data};
        ++*i;
        return true;
    }
    return false;
}

/* ---- what does not fit ---- */

clv_status clv_run_check_given(const clv_run *run, clv_error *err)
{
    static const char call[] = "clv_session_run", wanted[] = "a name and data in each binding";
    const int counts[] = {run->n_inputs, run->n_outputs, run->n_input_parts, run->n_output_parts};
    for (int i = 0; i < 4; i++)
        if (counts[i] < 0)
            return clv_fail(err, CLV_EINVAL, "%s: %d bindings; valid: 0 or more", call, counts[i]);
    CLV_TRY(clv_require((run->inputs || run->n_inputs == 0) && (run->outputs || run->n_outputs == 0) &&
                            (run->input_parts || run->n_input_parts == 0) &&
                            (run->output_parts || run->n_output_parts == 0),
                        call, "the bindings that it is told of", err));
    for (int i = 0; i < run->n_inputs; i++)
        CLV_TRY(clv_require(run->inputs[i].name && run->inputs[i].data, call, wanted, err));
    for (int i = 0; i < run->n_outputs; i++)
        CLV_TRY(clv_require(run->outputs[i].name && run->outputs[i].data, call, wanted, err));
    for (int i = 0; i < run->n_input_parts; i++)
        CLV_TRY(clv_require(run->input_parts[i].name && run->input_parts[i].data, call, wanted, err));
    for (int i = 0; i < run->n_output_parts; i++)
        CLV_TRY(clv_require(run->output_parts[i].name && run->output_parts[i].data, call, wanted, err));
    return CLV_OK;
}

typedef bool next_fn(clv_bound *out, int *i, const clv_run *run, const char *name, const clv_type *type);

void clv_box_print(char *out, size_t size, const clv_shard *box)
{
    size_t used = (size_t)snprintf(out, size, "[");
    for (int d = 0; d < box->rank && d < CLV_MAX_RANK && used < size; d++)
        used += (size_t)snprintf(out + used, size - used, "%s%lld:%lld", d > 0 ? ", " : "", (long long)box->lo[d],
                                 (long long)box->hi[d]);
    if (used < size)
        snprintf(out + used, size - used, "]");
}

/* *parts: how many there are. n_whole: bindings of whole tensors in the run, which come first. */
static clv_status check_boxes(int *parts, next_fn *next, int n_whole, const clv_run *run, const char *what,
                              const char *name, const clv_type *type, clv_error *err)
{
    clv_bound bound;
    int whole = 0;
    *parts = 0;
    for (int i = 0; next(&bound, &i, run, name, type); ++*parts) {
        char box[CLV_BOX_TEXT], text[CLV_TYPE_TEXT];
        if (whole && i > n_whole)
            return clv_fail(err, CLV_EINVAL, "%s '%s' is bound whole and in parts", what, name);
        whole += i <= n_whole;
        if (whole > 1 && next == clv_next_input)
            return clv_fail(err, CLV_EINVAL, "%s '%s' is bound twice", what, name);
        if (clv_box_inside(&bound.box, type))
            continue;
        clv_box_print(box, sizeof box, &bound.box);
        clv_type_print(text, sizeof text, type);
        return clv_fail(err, CLV_ESHAPE, "%s '%s': the box %s is not inside %s", what, name, box, text);
    }
    return CLV_OK;
}

/* What one box leaves is at most two boxes a dimension. */
bool clv_box_lacks(clv_shard *out, clv_next_box *next, const void *arg, clv_shard box, int i)
{
    clv_shard has;
    if (clv_shard_elems(&box) == 0)
        return false;
    if (!next(&has, &i, arg)) {
        *out = box;
        return true;
    }
    clv_shard both = clv_shard_intersect(&box, &has);
    if (clv_shard_elems(&both) == 0)
        return clv_box_lacks(out, next, arg, box, i);
    for (int d = 0; d < box.rank; d++) {
        clv_shard below = box, above = box;
        below.hi[d] = both.lo[d];
        above.lo[d] = both.hi[d];
        if (clv_box_lacks(out, next, arg, below, i) || clv_box_lacks(out, next, arg, above, i))
            return true;
        box.lo[d] = both.lo[d];
        box.hi[d] = both.hi[d];
    }
    return false;
}

/* An input of a run. */
typedef struct input {
    const clv_run *run;
    const char *name;
    const clv_type *type;
} input;

static bool next_input_box(clv_shard *out, int *i, const void *arg)
{
    const input *in = arg;
    clv_bound bound;
    if (!clv_next_input(&bound, i, in->run, in->name, in->type))
        return false;
    *out = bound.box;
    return true;
}

clv_status clv_run_check_input(const clv_run *run, const char *name, const clv_type *type, const clv_layout *layout,
                               const clv_mesh *mesh, int first, int here, clv_error *err)
{
    const input in = {run, name, type};
    int parts;
    CLV_TRY(check_boxes(&parts, clv_next_input, run->n_inputs, run, "input", name, type, err));
    if (parts == 0)
        return clv_fail(err, CLV_ENOTFOUND, "the program's input '%s' is not bound", name);
    for (int r = first; run->n_input_parts > 0 && r < first + here; r++) {
        clv_shard shard = clv_layout_shard(layout, mesh, type->shape, r), lacking;
        char text[CLV_BOX_TEXT], needed[CLV_BOX_TEXT];
        if (!clv_box_lacks(&lacking, next_input_box, &in, shard, 0))
            continue;
        clv_box_print(text, sizeof text, &lacking);
        clv_box_print(needed, sizeof needed, &shard);
        return clv_fail(err, CLV_ESHAPE, "input '%s': rank %d needs %s, and no part holds %s of it", name, r, needed,
                        text);
    }
    return CLV_OK;
}

clv_status clv_run_check_output(const clv_run *run, const char *name, const clv_type *type, clv_error *err)
{
    int parts;
    return check_boxes(&parts, clv_next_output, run->n_outputs, run, "output", name, type, err);
}
