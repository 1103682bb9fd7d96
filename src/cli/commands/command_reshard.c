/* command_reshard.c - the `cleave reshard` command: collectives and bytes to move a tensor from one layout to
 * another.
 */
#include "cleave/reshard.h"
#include "cli/command.h"
#include "cli/options/mesh_options.h"
#include "cli/options/run_options.h"
#include "cli/options/shape_option.h"
#include "cli/reports/reshard_table.h"

typedef struct reshard_args {
    const char *shape, *mesh, *from, *to;
    clv_dtype dtype;
    bool run;
} reshard_args;

static bool parse(reshard_args *a, clv_invocation *run)
{
    const clv_option options[] = {
        CLV_OPT_STRING("--shape", &a->shape, "SIZES", "shape of the whole tensor, e.g. 64x64", .required = true),
        CLV_DTYPE_ROW(&a->dtype, "f32|bf16|f16|f64|i32|i64|u8|bool", "of its elements (f32)"),
        CLV_MESH_ROW(STRING, &a->mesh, true, "e.g. x=2,y=4"),
        CLV_OPT_STRING("--from", &a->from, "LAYOUT", "e.g. '(x,y),_' or 'x,_ + sum{y}'", .required = true),
        CLV_OPT_STRING("--to", &a->to, "LAYOUT", "the target layout", .required = true),
        CLV_OPT_FLAG("--run", &a->run, "also run the plan on rank threads, and check every element"),
        CLV_FORMAT_OPTIONS(&run->format, "", "print JSON"),
    };
    return CLV_PARSE(run, options);
}

/* The plan that was asked for; its mesh is printed with it. */
static clv_status plan(clv_reshard **out, clv_mesh *mesh, const reshard_args *a, clv_error *err)
{
    int64_t shape[CLV_MAX_RANK];
    int rank;
    clv_layout from, to;
    CLV_TRY(clv_shape_option_parse(shape, &rank, "--shape", a->shape, err));
    CLV_TRY(clv_mesh_option_parse(mesh, a->mesh, err));
    CLV_TRY(clv_layout_option_parse(&from, "--from", a->from, mesh, rank, err));
    CLV_TRY(clv_layout_option_parse(&to, "--to", a->to, mesh, rank, err));
    return clv_reshard_new(out, mesh, &from, &to, shape, a->dtype, err);
}

static void report(clv_table *t, const clv_reshard *r, const clv_mesh *mesh, const reshard_args *a)
{
    for (int i = 0; i < clv_reshard_step_count(r); i++) {
        clv_reshard_step_info step = {.size = sizeof step};
        if (clv_reshard_get_step(r, i, &step, NULL) == CLV_OK)
            clv_reshard_table_add(t, step.kind, step.axes, step.n_axes, step.bytes, mesh);
    }
    clv_reshard_table_finish(t, clv_reshard_bytes(r), clv_reshard_lower_bound_bytes(r));
    if (a->run)
        clv_table_bool(t, "checked", true);
}

clv_status command_reshard(clv_invocation *run, clv_error *err)
{
    reshard_args a = {.dtype = CLV_F32};
    clv_mesh mesh;
    clv_reshard *r;
    if (!parse(&a, run))
        return CLV_OK;
    CLV_TRY(plan(&r, &mesh, &a, err));
    clv_status status = a.run ? clv_reshard_verify(r, err) : CLV_OK;
    run->table = clv_reshard_table_new();
    report(run->table, r, &mesh, &a);
    clv_reshard_free(r);
    return status;
}
