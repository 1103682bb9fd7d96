/* command_reshard.c - the `cleave reshard` command: collectives and bytes to move a tensor from one layout to
 * another.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleave/reshard.h"
#include "cli/command.h"
#include "cli/options/mesh_options.h"
#include "cli/options/output_options.h"
#include "cli/options/run_options.h"
#include "cli/options/shape_option.h"
#include "cli/parser/option_parser.h"
#include "cli/reports/reshard_table.h"

typedef struct reshard_args {
    const char *shape, *dtype, *mesh, *from, *to;
    bool run;
    clv_table_format form;
} reshard_args;

static int parse(reshard_args *a, int argc, char **argv)
{
    const clv_option options[] = {
        {.names = "--shape",
         .kind = CLV_OPTION_STRING,
         .out = &a->shape,
         .value = "SIZES",
         .required = true,
         .help = "of the whole tensor, e.g. 64x64"},
        CLV_DTYPE_ROW(&a->dtype, "f32|bf16|f16|f64|i32|i64|u8|bool", "of its elements (f32)"),
        CLV_MESH_ROW(CLV_OPTION_STRING, &a->mesh, true, "e.g. x=2,y=4"),
        {.names = "--from",
         .kind = CLV_OPTION_STRING,
         .out = &a->from,
         .value = "LAYOUT",
         .required = true,
         .help = "e.g. '(x,y),_' or 'x,_ + sum{y}'"},
        {.names = "--to",
         .kind = CLV_OPTION_STRING,
         .out = &a->to,
         .value = "LAYOUT",
         .required = true,
         .help = "the layout wanted"},
        {.names = "--run",
         .kind = CLV_OPTION_FLAG,
         .out = &a->run,
         .help = "also run the plan on rank threads and check every rank's elements"},
        CLV_FORMAT_OPTIONS(&a->form, "", "print JSON"),
    };
    return clv_options_parse(options, sizeof options / sizeof options[0], argc, argv);
}

/* The plan that was asked for; its mesh is printed with it. */
static clv_status plan(clv_reshard **out, clv_mesh *mesh, const reshard_args *a, clv_error *err)
{
    int64_t shape[CLV_MAX_RANK];
    int rank;
    clv_dtype dtype;
    clv_layout from, to;
    CLV_TRY(clv_shape_option(shape, &rank, "--shape", a->shape, err));
    CLV_TRY(clv_dtype_parse(&dtype, a->dtype, err));
    CLV_TRY(clv_mesh_option_parse(mesh, a->mesh, err));
    CLV_TRY(clv_layout_option(&from, "--from", a->from, mesh, rank, err));
    CLV_TRY(clv_layout_option(&to, "--to", a->to, mesh, rank, err));
    return clv_reshard_new(out, mesh, &from, &to, shape, dtype, err);
}

static int print(const clv_reshard *r, const clv_mesh *mesh, const reshard_args *a)
{
    clv_table *t = clv_reshard_table_new();
    for (int i = 0; i < clv_reshard_step_count(r); i++) {
        clv_reshard_step_info step = {.size = sizeof step};
        if (clv_reshard_get_step(r, i, &step, NULL) == CLV_OK)
            clv_reshard_table_add(t, step.kind, step.axes, step.n_axes, step.bytes, mesh);
    }
    clv_reshard_table_finish(t, clv_reshard_bytes(r), clv_reshard_lower_bound_bytes(r));
    if (a->run)
        clv_table_bool(t, "checked", true);
    return clv_table_finish(t, &a->form);
}

int command_reshard(int argc, char **argv)
{
    reshard_args a = {.dtype = "f32"};
    clv_mesh mesh;
    clv_reshard *r = NULL;
    clv_error err = {0};
    int code = parse(&a, argc, argv);
    if (code != CLV_OPTIONS_RUN)
        return code;
    clv_status status = plan(&r, &mesh, &a, &err);
    if (status == CLV_OK && a.run)
        status = clv_reshard_verify(r, &err);
    code = status == CLV_OK ? print(r, &mesh, &a) : clv_command_print_error(argv[0], &err);
    clv_reshard_free(r);
    return code;
}
