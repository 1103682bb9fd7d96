/* reshard_verify.c - public reshard plans (cleave/reshard.h): steps, bytes, and verification on rank threads. */
#include "cleave/reshard.h"

#include "partition/lowering/program_builder.h"
#include "partition/reshard/reshard_planner.h"
#include "program/program.h"
#include "runtime/spmd/spmd_internal.h"
#include "tensor/box_runs.h"

struct clv_reshard {
    clv_arena *arena; /* of the steps */
    clv_mesh mesh;
    int rank;
    int64_t shape[CLV_MAX_RANK];
    clv_dtype dtype;
    clv_layout from, to;
    clv_reshard_plan plan;
};

/* ---- plans ---- */

static clv_status check_request(const clv_reshard *r, clv_error *err)
{
    if (r->to.rank != r->rank)
        return clv_fail(err, CLV_ESHAPE, "a layout of %d dimensions to one of %d; valid: layouts of one tensor",
                        r->rank, r->to.rank);
    CLV_TRY(clv_mesh_check(&r->mesh, err));
    CLV_TRY(clv_shape_check(r->shape, r->rank, r->dtype, err));
    CLV_TRY(clv_layout_check(&r->from, &r->mesh, r->shape, err));
    return clv_layout_check(&r->to, &r->mesh, r->shape, err);
}

clv_status clv_reshard_new(clv_reshard **out, const clv_mesh *mesh, const clv_layout *from, const clv_layout *to,
                           const int64_t *shape, clv_dtype dtype, clv_error *err)
{
    CLV_TRY(clv_require(out && mesh && from && to && (shape || from->rank == 0), __func__,
                        "out, a mesh, two layouts and a shape", err));
    if (from->rank < 0 || from->rank > CLV_MAX_RANK)
        return clv_fail(err, CLV_EINVAL, "%s: a layout of %d dimensions; valid: 0 to %d", __func__, from->rank,
                        CLV_MAX_RANK);
    if (clv_dtype_size(dtype) == 0)
        return clv_fail(err, CLV_EDTYPE, "%s: dtype %d; valid: those of clv_dtype", __func__, (int)dtype);
    clv_reshard *r = calloc(1, sizeof *r);
    if (!r)
        return clv_fail_memory(err, "a plan", sizeof *r);
    *r = (clv_reshard){
        .arena = clv_arena_new(), .mesh = *mesh, .rank = from->rank, .dtype = dtype, .from = *from, .to = *to};
    for (int d = 0; d < r->rank; d++)
        r->shape[d] = shape[d];
    clv_status status = r->arena ? check_request(r, err) : clv_fail_memory(err, "a plan", sizeof *r);
    if (status == CLV_OK)
        status =
            clv_reshard_plan_make(&r->plan, r->arena, &r->mesh, &r->from, &r->to, r->shape, r->dtype, NULL, true, err);
    if (status != CLV_OK) {
        clv_reshard_free(r);
        return status;
    }
    *out = r;
    return CLV_OK;
}

void clv_reshard_free(clv_reshard *r)
{
    if (!r)
        return;
    clv_arena_free(r->arena);
    free(r);
}

int clv_reshard_step_count(const clv_reshard *r)
{
    return r ? r->plan.n_steps : 0;
}

clv_status clv_reshard_get_step(const clv_reshard *r, int i, clv_reshard_step_info *out, clv_error *err)
{
    CLV_TRY(clv_require(r && out, __func__, "a plan and out", err));
    if (i < 0 || i >= r->plan.n_steps)
        return clv_fail(err, CLV_EINVAL, "%s: step %d of %d", __func__, i, r->plan.n_steps);
    const clv_reshard_step *step = &r->plan.steps[i];
    clv_reshard_step_info info = {
        .kind = clv_step_name(step->kind), .n_axes = step->n_axes, .bytes = step->bytes, .to = step->to};
    memcpy(info.axes, step->axes, (size_t)step->n_axes * sizeof *info.axes);
    return clv_struct_copy_out(out, sizeof info, sizeof info, &info, __func__, err);
}

double clv_reshard_bytes(const clv_reshard *r)
{
    return r ? r->plan.bytes : 0;
}

int64_t clv_reshard_peak_bytes(const clv_reshard *r)
{
    return r ? r->plan.peak_bytes : 0;
}

int64_t clv_reshard_lower_bound_bytes(const clv_reshard *r)
{
    return r ? clv_reshard_lower_bound(&r->mesh, &r->from, &r->to, r->shape, r->dtype) : -1;
}

/* ---- verification ---- */

enum { PERIOD = 61 };

/* The value of element i of the whole tensor: a small integer, exact in every dtype. */
static double true_value(const clv_reshard *r, int64_t i)
{
    bool is_signed = r->dtype != CLV_U8 && r->dtype != CLV_BOOL;
    return r->dtype == CLV_BOOL ? (double)(i % 2) : (double)(i % PERIOD) - (is_signed ? PERIOD / 2 : 0);
}

/* A rank's index among those that hold partial sums of the same elements, and their number. */
static int64_t partial_index(const clv_layout *layout, const clv_mesh *mesh, int64_t rank, int64_t *n)
{
    const clv_subaxis *axes;
    int n_axes = clv_layout_axes(&axes, layout, layout->rank);
    int64_t index = 0;
    *n = 1;
    for (int a = 0; a < n_axes; a++) {
        index = index * axes[a].size + clv_mesh_coordinate(mesh, axes[a], rank);
        *n *= axes[a].size;
    }
    return index;
}

/* Partial value k of n of element i. They vary in sign, so that dropping one or counting it twice is detected. */
static double partial_value(const clv_reshard *r, clv_reduction reduction, int64_t i, int64_t k, int64_t n)
{
    double whole = true_value(r, i);
    if (reduction == CLV_REDUCTION_MAX)
        return k == i % n ? whole : whole - (r->dtype == CLV_U8 || r->dtype == CLV_BOOL ? whole : 1 + (double)(k % 3));
    if (n == 1 || r->dtype == CLV_BOOL || r->dtype == CLV_U8)
        return k == 0 ? whole : 0;
    double others = 0;
    for (int64_t j = 1; j < n; j++)
        others += (double)((i * 7 + j * 13) % 5 - 2);
    return k == 0 ? whole - others : (double)((i * 7 + k * 13) % 5 - 2);
}

/* A program of the plan's steps: state "in" -> buffers -> output "out". Free *out, also after a failure. */
static clv_status build(clv_program **out, const clv_reshard *r, clv_error *err)
{
    clv_type type = {.dtype = r->dtype, .rank = r->rank};
    clv_program *p = *out = calloc(1, sizeof *p);
    if (p && (p->arena = clv_arena_new()))
        p->outputs = clv_arena_alloc(p->arena, 1, sizeof *p->outputs);
    if (!p || !p->outputs)
        return clv_fail_memory(err, "a program", sizeof *p);
    p->mesh = r->mesh;
    memcpy(type.shape, r->shape, (size_t)r->rank * sizeof *r->shape);
    clv_buffer buffer = {.kind = CLV_BUFFER_STATE, .type = type, .layout = r->from, .name = "in", .shares_with = -1};
    CLV_TRY(clv_program_add_buffer(NULL, p, &buffer, err));
    for (int i = 0; i < r->plan.n_steps; i++) {
        const clv_reshard_step *step = &r->plan.steps[i];
        clv_instruction instruction = {
            .step = step, .n_in = 1, .in = {i}, .n_out = 1, .name = clv_step_name(step->kind)};
        CLV_TRY(clv_program_find_or_add_group(&instruction.group, p, step, err));
        CLV_TRY(clv_program_builder_add_buffer_like(&instruction.out[0], p, i, &type, &step->to, err));
        CLV_TRY(clv_program_add_instruction(p, &instruction, err));
    }
    p->outputs[p->n_outputs++] = (clv_program_output){.name = "out", .buffer = p->n_buffers - 1};
    return clv_program_plan_memory(p, err);
}

typedef struct verification {
    const clv_reshard *r;
    const clv_session *session;
} verification;

/* Fills a rank's shard of the state. */
static clv_status fill_rank(void *arg, clv_spmd *spmd, const clv_local_tensor *in, clv_local_tensor *out,
                            clv_error *err)
{
    const clv_reshard *r = ((const verification *)arg)->r;
    clv_local_tensor state;
    int64_t n, k = partial_index(&r->from, &r->mesh, clv_spmd_rank(spmd), &n), i = 0;
    CLV_TRY(clv_spmd_state(&state, spmd, "in", err));
    for (clv_box_runs runs = clv_box_runs_begin(r->shape, &state.shard); !runs.done; clv_box_runs_next(&runs))
        for (int64_t at = runs.first; at < runs.first + runs.run_elems; at++)
            clv_dtype_store(r->dtype, state.data, i++, partial_value(r, r->from.reduction, at, k, n));
    return CLV_OK;
}

/* Compares a rank's shard of the result with the true values; a partial result is reduced first. */
static clv_status check_rank(void *arg, clv_spmd *spmd, const clv_local_tensor *in, clv_local_tensor *out,
                             clv_error *err)
{
    const verification *v = arg;
    const clv_reshard *r = v->r;
    const clv_loaded_program *loaded = v->session->loaded[0];
    int result = loaded->program->n_buffers - 1;
    clv_local_tensor made = clv_spmd_local_tensor(spmd, &loaded->program->buffers[result].type, &r->to);
    char axes[CLV_LAYOUT_TEXT];
    int64_t i = 0;
    made.data = clv_loaded_program_view(loaded, clv_spmd_rank(spmd), result)->data;
    clv_spmd_partial_axes(axes, sizeof axes, &r->to, &r->mesh);
    if (axes[0] != '\0')
        CLV_TRY(clv_spmd_all_reduce(&made, spmd, &made, r->to.reduction, axes, err));
    for (clv_box_runs runs = clv_box_runs_begin(r->shape, &made.shard); !runs.done; clv_box_runs_next(&runs))
        for (int64_t at = runs.first; at < runs.first + runs.run_elems; at++, i++) {
            double want = true_value(r, at), got = clv_dtype_load(r->dtype, made.data, i);
            if (!(got == want))
                return clv_fail(err, CLV_ECHECK, "element %lld: %g, expected %g", (long long)i, got, want);
        }
    return CLV_OK;
}

static clv_status verify(const clv_reshard *r, clv_session *session, const clv_program *program, clv_error *err)
{
    char axes[CLV_LAYOUT_TEXT];
    const char *const group = axes;
    verification v = {r, session};
    clv_spmd_partial_axes(axes, sizeof axes, &r->to, &r->mesh);
    const clv_spmd_options options = {.size = sizeof options, .n_groups = axes[0] != '\0', .groups = &group};
    CLV_TRY(clv_session_load(session, program, err));
    CLV_TRY(clv_spmd_run(session, fill_rank, &v, NULL, 0, NULL, 0, NULL, err));
    CLV_TRY(clv_session_run(session, program, NULL, 0, NULL, 0, err));
    return clv_spmd_run(session, check_rank, &v, NULL, 0, NULL, 0, &options, err);
}

clv_status clv_reshard_verify(const clv_reshard *r, clv_error *err)
{
    CLV_TRY(clv_require(r != NULL, __func__, "a plan", err));
    clv_program *program = NULL;
    clv_session *session = NULL;
    clv_status status = build(&program, r, err);
    if (status == CLV_OK)
        status = clv_session_new(&session, &r->mesh, &(clv_session_options){.check = 1}, err);
    if (status == CLV_OK)
        status = verify(r, session, program, err);
    clv_session_free(session);
    clv_program_free(program);
    return status;
}
