/* run_bindings.c - validates the inputs and outputs of a run; checks that boxes cover what local ranks need. */
#include "runtime/session/run_bindings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

clv_shard clv_box_of_type(const clv_type *type)
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

bool clv_run_next_input(clv_bound_box *out, int *i, const clv_run *run, const char *name, const clv_type *type)
{
    for (; *i < run->n_inputs + run->n_input_boxes; ++*i) {
        bool whole = *i < run->n_inputs;
        const clv_input_box *part = whole ? NULL : &run->input_boxes[*i - run->n_inputs];
        if (strcmp(whole ? run->inputs[*i].name : part->name, name) != 0)
            continue;
        *out = (clv_bound_box){.box = whole ? clv_box_of_type(type) : part->box,
                               .data = (void *)(whole ? run->inputs[*i].data : part->data)};
        ++*i;
        return true;
    }
    return false;
}

bool clv_run_next_output(clv_bound_box *out, int *i, const clv_run *run, const char *name, const clv_type *type)
{
    for (; *i < run->n_outputs + run->n_output_boxes; ++*i) {
        bool whole = *i < run->n_outputs;
        const clv_output_box *part = whole ? NULL : &run->output_boxes[*i - run->n_outputs];
        if (strcmp(whole ? run->outputs[*i].name : part->name, name) != 0)
            continue;
        *out = (clv_bound_box){.box = whole ? clv_box_of_type(type) : part->box,
                               .data = whole ? run->outputs[*i].data : part->data};
        ++*i;
        return true;
    }
    return false;
}

/* ---- what does not fit ---- */

clv_status clv_run_check_names(const clv_run *run, clv_error *err)
{
    static const char call[] = "clv_session_run", wanted[] = "a name in each binding";
    const int counts[] = {run->n_inputs, run->n_outputs, run->n_input_boxes, run->n_output_boxes};
    for (int i = 0; i < 4; i++)
        if (counts[i] < 0)
            return clv_fail(err, CLV_EINVAL, "%s: %d bindings; valid: 0 or more", call, counts[i]);
    CLV_TRY(clv_require((run->inputs || run->n_inputs == 0) && (run->outputs || run->n_outputs == 0) &&
                            (run->input_boxes || run->n_input_boxes == 0) &&
                            (run->output_boxes || run->n_output_boxes == 0),
                        call, "the bindings that it is told of", err));
    for (int i = 0; i < run->n_inputs; i++)
        CLV_TRY(clv_require(run->inputs[i].name != NULL, call, wanted, err));
    for (int i = 0; i < run->n_outputs; i++)
        CLV_TRY(clv_require(run->outputs[i].name != NULL, call, wanted, err));
    for (int i = 0; i < run->n_input_boxes; i++)
        CLV_TRY(clv_require(run->input_boxes[i].name != NULL, call, wanted, err));
    for (int i = 0; i < run->n_output_boxes; i++)
        CLV_TRY(clv_require(run->output_boxes[i].name != NULL, call, wanted, err));
    return CLV_OK;
}

typedef bool next_fn(clv_bound_box *out, int *i, const clv_run *run, const char *name, const clv_type *type);

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
    clv_bound_box bound;
    int whole = 0;
    *parts = 0;
    for (int i = 0; next(&bound, &i, run, name, type); ++*parts) {
        char box[CLV_BOX_TEXT], text[CLV_TYPE_TEXT];
        if (whole && i > n_whole)
            return clv_fail(err, CLV_EINVAL, "%s '%s' is bound whole and in parts", what, name);
        whole += i <= n_whole;
        if (whole > 1 && next == clv_run_next_input)
            return clv_fail(err, CLV_EINVAL, "%s '%s' is bound twice", what, name);
        bool inside = clv_box_inside(&bound.box, type);
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

/* Parts of a box of which it is not known yet whether another box holds them. Few of them need no memory. */
typedef struct piece {
    clv_shard box;
    int i; /* boxes before this one hold nothing of it */
} piece;

typedef struct pieces {
    piece few[16], *piece;
    int n, room;
} pieces;

static clv_status add_piece(pieces *p, const clv_shard *box, int i, clv_error *err)
{
    if (clv_shard_elems(box) == 0)
        return CLV_OK;
    if (p->n == p->room) {
        size_t bytes = 2 * (size_t)p->room * sizeof(piece);
        piece *grown = realloc(p->piece == p->few ? NULL : p->piece, bytes);
        if (!grown)
            return clv_fail_memory(err, "parts of a tensor", bytes);
        if (p->piece == p->few)
            memcpy(grown, p->few, sizeof p->few);
        p->piece = grown;
        p->room *= 2;
    }
    p->piece[p->n++] = (piece){*box, i};
    return CLV_OK;
}

/* What a box leaves of another one is at most two boxes a dimension. */
static clv_status add_rest(pieces *p, clv_shard box, const clv_shard *held, int i, clv_error *err)
{
    for (int d = 0; d < box.rank; d++) {
        clv_shard below = box, above = box;
        below.hi[d] = held->lo[d];
        above.lo[d] = held->hi[d];
        CLV_TRY(add_piece(p, &below, i, err));
        CLV_TRY(add_piece(p, &above, i, err));
        box.lo[d] = held->lo[d];
        box.hi[d] = held->hi[d];
    }
    return CLV_OK;
}

clv_status clv_box_find_uncovered(bool *lacks, clv_shard *out, clv_box_iterator *next, const void *arg,
                                  const clv_shard *box, clv_error *err)
{
    pieces left = {.piece = left.few, .room = sizeof left.few / sizeof *left.few};
    clv_status status = add_piece(&left, box, 0, err);
    *lacks = false;
    while (status == CLV_OK && !*lacks && left.n > 0) {
        piece p = left.piece[--left.n];
        clv_shard has, both = {0};
        bool met = false;
        while (!met && next(&has, &p.i, arg)) {
            both = clv_shard_intersect(&p.box, &has);
            met = clv_shard_elems(&both) > 0;
        }
        *out = p.box;
        *lacks = !met;
        if (met)
            status = add_rest(&left, p.box, &both, p.i, err);
    }
    if (left.piece != left.few)
        free(left.piece);
    return status;
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
    clv_bound_box bound;
    if (!clv_run_next_input(&bound, i, in->run, in->name, in->type))
        return false;
    *out = bound.box;
    return true;
}

clv_status clv_run_check_input(const clv_run *run, const char *name, const clv_type *type, const clv_layout *layout,
                               const clv_mesh *mesh, int first, int here, clv_error *err)
{
    const input in = {run, name, type};
    int parts;
    CLV_TRY(check_boxes(&parts, clv_run_next_input, run->n_inputs, run, "input", name, type, err));
    if (parts == 0)
        return clv_fail(err, CLV_ENOTFOUND, "the program's input '%s' is not bound", name);
    for (int r = first; run->n_input_boxes > 0 && r < first + here; r++) {
        clv_shard shard = clv_layout_shard(layout, mesh, type->shape, r), lacking;
        char text[CLV_BOX_TEXT], needed[CLV_BOX_TEXT];
        bool lacks;
        CLV_TRY(clv_box_find_uncovered(&lacks, &lacking, next_input_box, &in, &shard, err));
        if (!lacks)
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
    return check_boxes(&parts, clv_run_next_output, run->n_outputs, run, "output", name, type, err);
}
