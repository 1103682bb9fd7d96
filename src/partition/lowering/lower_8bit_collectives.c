/* lower_8bit_collectives.c - lowers an 8-bit collective to quantize, all_to_all or gather of bytes, dequantize and sum.
 *
 * In: a row with 8-bit wire dtype. Out: instructions on records (bytes of a block and its scale):
 *
 *   no reduction     quantize, the step on records, dequantize
 *   reduce_scatter   quantize; all_to_all of the partial sums, which lie along a new first dimension; dequantize, which
 *                    sums them in order, in f32
 *   all_reduce       the same by slices, then an all_gather of the slices
 *
 * All elements are quantized, also those that a rank keeps, so all ranks hold the same bits of an element.
 */

#include "ops/builtin_ops.h"
#include "partition/lowering/program_builder.h"
#include "tensor/gcd.h"

typedef struct packing {
    clv_type type;
    clv_layout from, to;
    clv_wire_quantize_attrs attrs;
} packing;

/* ---- the layouts of records ---- */

/* The layout of the records of a tensor in layout `of`; the n axes shard the first dimension, of partial sums, which
 * exists if n > 0. */
static bool lay_out(clv_layout *out, const packing *p, const clv_mesh *mesh, const clv_layout *of,
                    const clv_subaxis *partial_axes, int n)
{
    int front = p->type.rank - of->rank;
    *out = clv_layout_replicated(p->type.rank);
    out->stage_axis = of->stage_axis;
    out->stages = of->stages;
    bool good = front == 0 || clv_layout_set_dim(out, mesh, 0, partial_axes, n, 1, NULL) == CLV_OK;
    for (int d = 0; good && d < of->rank; d++) {
        const clv_subaxis *axes;
        int cuts = clv_layout_axes(&axes, of, d);
        int64_t alignment = d == of->rank - 1 && cuts > 0 ? clv_wire_record_bytes(&p->attrs) : of->alignment[d];
        good = clv_layout_set_dim(out, mesh, d + front, axes, cuts, alignment, NULL) == CLV_OK;
    }
    return good;
}

/* Finds the pieces of the last dimension of which the blocks of both layouts consist; false if there are none. */
static bool find_pieces(clv_wire_quantize_attrs *out, const clv_type *type, const clv_layout *from,
                        const clv_layout *to)
{
    int last = type->rank - 1;
    int64_t a = clv_layout_block_count(from, last), b = clv_layout_block_count(to, last);
    memset(out, 0, sizeof *out);
    out->size = type->shape[last];
    out->alignment = a > 1 ? from->alignment[last] : to->alignment[last];
    out->pieces = a / clv_gcd(a, b) * b;
    return a == 1 || b == 1 || from->alignment[last] == to->alignment[last];
}

/* The records of a step; false if it cannot be packed, or if they are no smaller than bf16. */
static bool make(packing *out, const clv_mesh *mesh, const clv_type *type, const clv_reshard_step *step)
{
    const clv_subaxis *kept;
    clv_subaxis partial_axes[2 * CLV_MAX_SUBAXES];
    int last = type->rank - 1, n_kept = clv_layout_axes(&kept, &step->to, type->rank), n = n_kept;
    if (type->rank == 0 || type->shape[last] == 0 || !find_pieces(&out->attrs, type, &step->from, &step->to))
        return false;
    memcpy(partial_axes, kept, (size_t)n * sizeof *kept);
    for (int i = 0; clv_step_reduces(step->kind) && i < step->n_axes; i++)
        partial_axes[n++] = step->axes[i];
    out->type = (clv_type){.dtype = CLV_U8, .rank = type->rank + (n > 0)};
    if (out->type.rank > CLV_MAX_RANK)
        return false;
    int64_t ranks = 1;
    for (int i = 0; i < n; i++)
        ranks *= partial_axes[i].size;
    out->type.shape[0] = ranks;
    memcpy(&out->type.shape[n > 0], type->shape, (size_t)last * sizeof *type->shape);
    out->type.shape[out->type.rank - 1] = out->attrs.pieces * clv_wire_record_bytes(&out->attrs);
    return out->type.shape[out->type.rank - 1] < 2 * type->shape[last] &&
           lay_out(&out->from, out, mesh, &step->from, partial_axes, n) &&
           lay_out(&out->to, out, mesh, &step->to, partial_axes, n_kept);
}

/* ---- instructions ---- */

/* Adds the step on records, from buffer `from` to buffer `to`, with its conversions. */
static clv_status add_step(clv_program_builder *l, const clv_sharding_row *row, const clv_instruction *like,
                           const packing *p, clv_step_kind kind, int from, int to, clv_error *err)
{
    clv_program *program = l->program;
    clv_instruction moved = *like;
    clv_reshard_step *step = clv_arena_copy(program->arena, row->step, sizeof *row->step);
    if (!step)
        return clv_fail_memory(err, "a step", sizeof *step);
    step->kind = kind;
    step->from = p->from;
    step->to = p->to;
    step->bytes = (double)clv_layout_max_received_elems(&p->to, &p->from, &program->mesh, p->type.shape);
    moved.step = step;
    CLV_TRY(clv_program_builder_add_buffer_like(&moved.in[0], program, from, &p->type, &p->from, err));
    CLV_TRY(clv_program_builder_add_buffer_like(&moved.out[0], program, to, &p->type, &p->to, err));
    CLV_TRY(clv_program_builder_add_conversion(l, row, &clv_op_wire_quantize, &p->attrs, from, moved.in[0], err));
    CLV_TRY(clv_program_find_or_add_group(&moved.group, program, step, err));
    CLV_TRY(clv_program_add_instruction(program, &moved, err));
    return clv_program_builder_add_conversion(l, row, &clv_op_wire_dequantize, &p->attrs, moved.out[0], to, err);
}

/* ---- an all_reduce by slices ---- */

/* The dimension to slice: the first that is large enough for each member, else the largest. */
static int slice_dim(const clv_type *type, const clv_reshard_step *step)
{
    clv_type local = clv_largest_shard_type(type, &step->to);
    int64_t members = 1;
    int best = 0;
    for (int i = 0; i < step->n_axes; i++)
        members *= step->axes[i].size;
    for (int d = 0; d < type->rank; d++) {
        if (local.shape[d] / step->to.alignment[d] >= members)
            return d;
        best = local.shape[d] > local.shape[best] ? d : best;
    }
    return best;
}

static bool find_slices(clv_layout *out, const clv_mesh *mesh, const clv_type *type, const clv_reshard_step *step)
{
    int d = slice_dim(type, step);
    *out = step->to;
    for (int i = 0; i < step->n_axes; i++)
        if (clv_layout_shard_dim(out, mesh, d, step->axes[i], NULL) != CLV_OK)
            return false;
    return true;
}

static clv_status lower_by_slices(bool *done, clv_program_builder *l, const clv_sharding_row *row,
                                  const clv_instruction *like, clv_error *err)
{
    const clv_type type = l->program->buffers[row->to].type; /* buffers move as they become more */
    clv_reshard_step sum = *row->step, spread = *row->step;
    packing first, second;
    int slices;
    *done = find_slices(&sum.to, &l->program->mesh, &type, row->step);
    spread.kind = CLV_STEP_ALL_GATHER;
    spread.from = sum.to;
    *done = *done && make(&first, &l->program->mesh, &type, &sum) && make(&second, &l->program->mesh, &type, &spread);
    if (!*done)
        return CLV_OK;
    CLV_TRY(clv_program_builder_add_buffer_like(&slices, l->program, row->to, &type, &sum.to, err));
    CLV_TRY(add_step(l, row, like, &first, CLV_STEP_ALL_TO_ALL, row->from, slices, err));
    return add_step(l, row, like, &second, CLV_STEP_ALL_GATHER, slices, row->to, err);
}

clv_status clv_lower_8bit_collective(bool *done, clv_program_builder *l, const clv_sharding_row *row,
                                     const clv_instruction *like, clv_error *err)
{
    packing p;
    if (row->step->kind == CLV_STEP_ALL_REDUCE)
        return lower_by_slices(done, l, row, like, err);
    *done = make(&p, &l->program->mesh, &l->program->buffers[row->to].type, row->step);
    if (!*done)
        return CLV_OK;
    clv_step_kind kind = clv_step_reduces(row->step->kind) ? CLV_STEP_ALL_TO_ALL : row->step->kind;
    return add_step(l, row, like, &p, kind, row->from, row->to, err);
}
