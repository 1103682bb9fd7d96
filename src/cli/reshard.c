/* reshard.c - cleave reshard: how a tensor gets from one layout to another, and what that costs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleave/status.h"
#include "cli/command.h"
#include "cli/mesh_option.h"
#include "cli/options.h"
#include "cli/reshard_run.h"
#include "cli/shape_option.h"
#include "cli/steps.h"
#include "partition/reshard.h"

typedef struct reshard_args {
    const char *shape, *dtype, *mesh, *from, *to;
    bool run, json;
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
        {.names = "--dtype",
         .kind = CLV_OPTION_CHOICE,
         .out = &a->dtype,
         .value = "f32|bf16|f16|f64|i32|i64|u8|bool",
         .help = "of its elements (f32)"},
        {.names = "--mesh",
         .kind = CLV_OPTION_STRING,
         .out = &a->mesh,
         .value = "AXES",
         .required = true,
         .help = "e.g. x=2,y=4"},
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
        {.names = "--json", .kind = CLV_OPTION_FLAG, .out = &a->json, .help = "print JSON"},
    };
    return clv_options_parse(options, sizeof options / sizeof options[0], argc, argv);
}

static clv_status resolve(clv_reshard_request *r, const reshard_args *a, clv_error *err)
{
    CLV_TRY(clv_shape_option(r->shape, &r->rank, "--shape", a->shape, err));
    CLV_TRY(clv_dtype_parse(&r->dtype, a->dtype, err));
    CLV_TRY(clv_mesh_option_parse(&r->mesh, a->mesh, err));
    CLV_TRY(clv_layout_option(&r->from, "--from", a->from, &r->mesh, r->rank, err));
    CLV_TRY(clv_layout_option(&r->to, "--to", a->to, &r->mesh, r->rank, err));
    CLV_TRY(clv_layout_check(&r->from, &r->mesh, r->shape, err));
    return clv_layout_check(&r->to, &r->mesh, r->shape, err);
}

int command_reshard(int argc, char **argv)
{
    reshard_args a = {.dtype = "f32"};
    clv_reshard_request r;
    clv_reshard_plan plan;
    clv_error err = {0};
    int code = parse(&a, argc, argv);
    if (code != CLV_OPTIONS_RUN)
        return code;
    clv_arena *arena = clv_arena_new();
    clv_status status = arena ? resolve(&r, &a, &err) : clv_fail_memory(&err, "a plan", sizeof plan);
    if (status == CLV_OK)
        status = clv_reshard_plan_make(&plan, arena, &r.mesh, &r.from, &r.to, r.shape, r.dtype, NULL, &err);
    if (status == CLV_OK && a.run)
        status = clv_reshard_run(&r, &plan, &err);
    if (status != CLV_OK) {
        clv_arena_free(arena);
        return clv_command_report(argv[0], &err);
    }
    clv_table *t = clv_steps_begin();
    for (int i = 0; i < plan.n_steps; i++)
        clv_steps_add(t, clv_step_name(plan.steps[i].kind), plan.steps[i].axes, plan.steps[i].n_axes,
                      plan.steps[i].bytes, &r.mesh);
    clv_steps_total(t, plan.bytes, clv_reshard_lower_bound(&r.mesh, &r.from, &r.to, r.shape, r.dtype));
    if (a.run)
        clv_table_bool(t, "checked", true);
    clv_arena_free(arena);
    return clv_table_finish(t, a.json);
}
