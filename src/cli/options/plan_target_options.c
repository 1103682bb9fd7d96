/* plan_target_options.c - options of `cleave plan` and `cleave explain`: a model or one block, sizes, mesh; and
 * compiling them.
 */
#include "cli/options/plan_target_options.h"

#include "cleave/status.h"

const clv_plan_option clv_plan_option_defaults = {
    .plan = {.size = sizeof(clv_plan_options), .batch = CLV_PLAN_BATCH, .seq = CLV_PLAN_SEQ},
    .dtype = "f32",
    .comm_dtype = "f32",
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
    CLV_TRY(clv_comm_dtype_parse(&out->compile.comm_dtype, o->comm_dtype, err));
    CLV_TRY(clv_grad_reduce_option_read(&out->compile.grad_reduce_dtype, &out->f32_gradients, o->grad_reduce_dtype,
                                        o->comm_dtype, err));
    CLV_TRY(clv_quant_option_read(&out->quant, o->quant, err));
    CLV_TRY(clv_recompute_option_read(&out->compile.recompute, &o->recompute, err));
    return clv_dtype_parse(&out->dtype, o->dtype, err);
}

/* What the options point to while a plan is made. */
typedef struct read_options {
    clv_plan_options plan;
    clv_mesh mesh;
    clv_axis_rules rules;
    clv_lora_options lora;
} read_options;

static clv_status read_all(read_options *out, const clv_plan_option *option, clv_error *err)
{
    out->plan = option->plan;
    CLV_TRY(read_what(&out->plan, option, err));
    CLV_TRY(clv_lora_option_read(&out->plan.lora, &out->lora, &option->lora, err));
    CLV_TRY(clv_mesh_option_read(&out->mesh, &option->mesh, err));
    if (option->mesh.rules) {
        CLV_TRY(clv_mesh_option_rules(&out->rules, &option->mesh, &out->mesh, err));
        out->plan.rules = &out->rules;
    }
    out->plan.mesh = &out->mesh;
    out->plan.sp = option->mesh.sp;
    return CLV_OK;
}

clv_status clv_plan_option_compile(clv_program **out, const clv_plan_option *option, clv_error *err)
{
    read_options read;
    CLV_TRY(read_all(&read, option, err));
    return clv_plan_compile(out, &read.plan, err);
}

clv_status clv_plan_option_suggestions(clv_plan_suggestions **out, const clv_plan_option *option, clv_error *err)
{
    read_options read;
    CLV_TRY(read_all(&read, option, err));
    return clv_plan_find_suggestions(out, &read.plan, err);
}

clv_status clv_plan_option_device_order(clv_mesh *mesh, double *seconds, const clv_plan_option *option, clv_error *err)
{
    read_options read;
    CLV_TRY(read_all(&read, option, err));
    return clv_plan_find_axis_order(mesh, seconds, &read.plan, err);
}
