/* plan_target_options.c - options of `cleave plan` and `cleave explain`: a model or one block, sizes, mesh; and
 * compiling them.
 */
#include "cli/options/plan_target_options.h"

#include "cli/evaluation/imported_run.h"

/* The options of a training step, where one is planned. */
static void apply_file(clv_plan_option *o)
{
    clv_plan_options *plan = &o->plan;
    bool trains = plan->model && (plan->mode == CLV_PLAN_MODE_DEFAULT || plan->mode == CLV_PLAN_MODE_TRAIN);
    if (trains || plan->mode == CLV_PLAN_MODE_GRAD)
        clv_mesh_option_apply_file(&o->mesh, &plan->compile, trains ? &plan->accumulate : NULL);
}

clv_status clv_plan_option_read(clv_plan_option *o, clv_error *err)
{
    clv_plan_options *plan = &o->plan;
    if (!plan->model && plan->block == CLV_PLAN_BLOCK_NONE)
        return clv_fail(err, CLV_EINVAL, "give either -m PATH or --block ffn|attention|gpt|llama");
    CLV_TRY(clv_grad_reduce_dtype_read(&plan->compile, &plan->f32_gradients, o->grad_reduce_dtype, err));
    CLV_TRY(clv_lora_options_read(&plan->lora, &o->lora, err));
    if (o->software && !o->hardware)
        return clv_fail(err, CLV_EINVAL,
                        "--software needs --hardware PROFILE, which lists what software reaches on it");
    CLV_TRY(clv_hardware_option_open(&o->machine, o->hardware, o->software, err));
    plan->compile.overlap = plan->compile.overlap || o->software;
    plan->compile.machine = o->machine;
    return CLV_OK;
}

/* A program of StableHLO text, whose shardings are its own. */
static clv_status compile_program(clv_program **out, clv_plan_option *o, clv_error *err)
{
    clv_import *program;
    CLV_TRY(clv_imported_read(&program, o->plan.model, err));
    clv_status status = clv_imported_mesh(&o->mesh.mesh, &o->mesh, program, err);
    if (status == CLV_OK)
        status = clv_imported_compile(out, program, &o->mesh.mesh, &o->plan.compile, false, err);
    clv_import_free(program);
    return status;
}

/* The hosts of --inventory, else those that the mesh was saved with. */
static clv_status set_hosts(clv_plan_option *o, clv_error *err)
{
    const bool saved = !o->hosts && o->mesh.saved.hosts && o->mesh.text == o->mesh.file_mesh;
    clv_machine *profile = o->machine;
    if (!o->hosts && !saved)
        return CLV_OK;
    o->machine = NULL;
    clv_status status = clv_machine_with_hosts(&o->machine, profile, saved ? o->mesh.saved.hosts : o->hosts,
                                               saved ? o->mesh.saved.ranks_per_host : o->ranks_per_host,
                                               clv_mesh_rank_count(&o->mesh.mesh), err);
    clv_machine_free(profile);
    o->plan.compile.machine = o->machine;
    return status;
}

clv_status clv_plan_option_compile(clv_program **out, clv_plan_option *o, clv_error *err)
{
    clv_plan_options *plan = &o->plan;
    CLV_TRY(clv_plan_option_read(o, err));
    if (clv_is_imported(plan->model))
        return compile_program(out, o, err);
    apply_file(o);
    o->mesh.workload = plan;
    CLV_TRY(clv_mesh_option_read_mesh(&o->mesh, err));
    CLV_TRY(set_hosts(o, err)); /* before rules are found for them */
    CLV_TRY(clv_mesh_option_read(&o->mesh, err));
    plan->mesh = &o->mesh.mesh;
    plan->rules = o->mesh.rules ? &o->mesh.axis_rules : NULL;
    plan->sp = o->mesh.sp;
    return clv_plan_compile(out, plan, err);
}
