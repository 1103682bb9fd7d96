#include "cli/plan_option.h"

#include "cleave/status.h"

const clv_plan_option clv_plan_option_defaults = {
    .plan = {.size = sizeof(clv_plan_options), .batch = CLV_PLAN_BATCH, .seq = CLV_PLAN_SEQ},
    .dtype = "f32",
    .mesh = {.tp = 1}};

static clv_status read_what(clv_plan_options *out, const clv_plan_option *o, clv_error *err)
{
    const bool modes[] = {false, o->forward, o->gradient, o->train, o->prefill, o->decode};
    int given = 0;
    if (!o->plan.model == !o->block)
        return clv_fail(err, CLV_EINVAL, "give either -m PATH or --block ffn|attention|gpt|llama");
    for (int mode = CLV_PLAN_MODE_FORWARD; mode <= CLV_PLAN_MODE_DECODE; mode++) {
        given += modes[mode];
        if (modes[mode])
            out->mode = (clv_plan_mode)mode;
    }
    if (given > 1)
        return clv_fail(err, CLV_EINVAL, "give one of --forward and --grad, or one of --train, --prefill and --decode");
    if (o->block)
        CLV_TRY(clv_plan_block_parse(&out->block, o->block, err));
    return clv_dtype_parse(&out->dtype, o->dtype, err);
}

clv_status clv_plan_option_compile(clv_program **out, const clv_plan_option *option, clv_error *err)
{
    clv_mesh mesh;
    clv_axis_rules rules;
    clv_plan_options plan = option->plan;
    CLV_TRY(read_what(&plan, option, err));
    CLV_TRY(clv_mesh_option_read(&mesh, &option->mesh, err));
    if (option->mesh.rules) {
        CLV_TRY(clv_mesh_option_rules(&rules, &option->mesh, &mesh, err));
        plan.rules = &rules;
    }
    plan.mesh = &mesh;
    plan.sp = option->mesh.sp;
    return clv_plan_compile(out, &plan, err);
}
