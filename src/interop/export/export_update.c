/* export_update.c - updates of parameters by optimizers as StableHLO. */
#include "ops/builtin_ops.h"
#include "interop/export/exporter.h"

/* Operands: parameter, moments, gradient, lr, (adamw: step,) and optionally a scale; all in the moments' dtype. */
typedef struct update {
    exported p, m, v, g, lr, step, scale; /* as far as the optimizer has them */
    clv_dtype dtype;
} update;

static exported times(exporter *ex, exported a, exported b)
{
    return export_binary(ex, "multiply", a, b);
}

static update update_of(exporter *ex, const exported *in, bool adamw)
{
    const int g = adamw ? 3 : 2, scale = adamw ? 6 : 4;
    update u = {.dtype = in[1].type.dtype, .m = in[1]};
    u.p = export_cast(ex, in[0], u.dtype);
    u.g = export_cast(ex, in[g], u.dtype);
    u.lr = export_cast(ex, in[g + 1], u.dtype);
    if (adamw) {
        u.v = in[2];
        u.step = export_cast(ex, in[g + 2], u.dtype);
    }
    u.scale = ex->op->n_in > scale ? in[scale] : (exported){.type = {.rank = -1}};
    if (export_given(&u.scale)) {
        u.scale = export_cast(ex, u.scale, u.dtype);
        u.g = times(ex, u.g, u.scale);
    }
    return u;
}

/* a x + b y */
static exported mix(exporter *ex, double a, exported x, double b, exported y)
{
    return export_binary(ex, "add", export_with(ex, "multiply", x, a), export_with(ex, "multiply", y, b));
}

/* p (1 - lr weight_decay) - lr direction */
static exported step_along(exporter *ex, const update *u, exported direction)
{
    exported kept = export_with(ex, "multiply", u->lr, -export_real(ex, "weight_decay"));
    kept = times(ex, u->p, export_with(ex, "add", kept, 1));
    return export_binary(ex, "subtract", kept, times(ex, u->lr, direction));
}

/* The new value, or the old one where the scale is NaN. */
static exported unless_skipped(exporter *ex, const update *u, exported made, exported before)
{
    made = export_cast(ex, made, before.type.dtype);
    if (!export_given(&u->scale))
        return made;
    return export_select(ex, export_compare(ex, "EQ", u->scale, u->scale), made, before);
}

/* moment / (1 - beta^step) */
static exported unbiased(exporter *ex, const update *u, exported moment, double beta)
{
    exported power = export_binary(ex, "power", export_number(ex, u->dtype, beta), u->step);
    exported share = export_with(ex, "add", export_unary(ex, "negate", power), 1);
    return export_binary(ex, "divide", moment, share);
}

static void adamw(exporter *ex, const exported *in, exported *out)
{
    const double beta1 = export_real(ex, "beta1"), beta2 = export_real(ex, "beta2");
    update u = update_of(ex, in, true);
    exported m = mix(ex, beta1, u.m, 1 - beta1, u.g), v = mix(ex, beta2, u.v, 1 - beta2, times(ex, u.g, u.g));
    exported root = export_unary(ex, "sqrt", unbiased(ex, &u, v, beta2));
    exported direction =
        export_binary(ex, "divide", unbiased(ex, &u, m, beta1), export_with(ex, "add", root, export_real(ex, "eps")));
    const clv_dtype rounded = ex->op->n_out > 3 ? out[3].type.dtype : u.dtype;
    out[0] = unless_skipped(ex, &u, step_along(ex, &u, direction), in[0]);
    out[1] = unless_skipped(ex, &u, m, in[1]);
    out[2] = unless_skipped(ex, &u, v, in[2]);
    if (ex->op->n_out > 3)
        out[3] = export_cast(ex, out[0], rounded);
}

static void sgd(exporter *ex, const exported *in, exported *out)
{
    update u = update_of(ex, in, false);
    exported g = mix(ex, 1, u.g, export_real(ex, "weight_decay"), u.p);
    exported b = mix(ex, export_real(ex, "momentum"), u.m, 1, g);
    out[0] = unless_skipped(ex, &u, export_binary(ex, "subtract", u.p, times(ex, u.lr, b)), in[0]);
    out[1] = unless_skipped(ex, &u, b, in[1]);
}

static void lion(exporter *ex, const exported *in, exported *out)
{
    const double beta1 = export_real(ex, "beta1"), beta2 = export_real(ex, "beta2");
    update u = update_of(ex, in, false);
    exported direction = export_unary(ex, "sign", mix(ex, beta1, u.m, 1 - beta1, u.g));
    out[0] = unless_skipped(ex, &u, step_along(ex, &u, direction), in[0]);
    out[1] = unless_skipped(ex, &u, mix(ex, beta2, u.m, 1 - beta2, u.g), in[1]);
}

const export_row export_update_rows[] = {
    {&clv_op_adamw, adamw}, {&clv_op_adamw_rounded, adamw}, {&clv_op_sgd, sgd}, {&clv_op_lion, lion}, {0},
};
