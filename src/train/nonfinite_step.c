/* nonfinite_step.c - NaN and infinity in a step: finds the first op that produced it, then stops or skips the step.
 * The step has changed no state (clv_model_optimizer_step), so it can be run again.
 */
#include <math.h>
#include <stdio.h>

#include "runtime/multi_process/multi_process.h"
#include "train/trainer.h"

clv_status clv_on_nan_parse(clv_on_nan *out, const char *name, clv_error *err)
{
    CLV_TRY(clv_require(out && name, __func__, "out and a name", err));
    if (strcmp(name, "stop") != 0 && strcmp(name, "skip") != 0)
        return clv_fail(err, CLV_EINVAL, "on NaN '%.40s'; valid: stop, skip", name);
    *out = strcmp(name, "skip") == 0 ? CLV_ON_NAN_SKIP : CLV_ON_NAN_STOP;
    return CLV_OK;
}

/* Message: what is not finite, then where it begins. */
static void describe(clv_trainer *t, const clv_train_step *result, const clv_error *found)
{
    const char *what = !isfinite(result->loss) ? "loss is" : "norm of the gradients is";
    snprintf(t->nonfinite, sizeof t->nonfinite, "the %s not a number at step %lld%s%.400s", what,
             (long long)result->step, found->code == CLV_ENONFINITE ? "; it begins at " : "",
             found->code == CLV_ENONFINITE ? found->message : "");
}

clv_status clv_trainer_handle_nonfinite(clv_trainer *t, clv_train_step *result, const clv_input_binding *inputs, int n,
                                        clv_error *err)
{
    clv_error found;
    clv_session_stats none = {.size = sizeof none}; /* keeps this run out of the next step's times */
    CLV_TRY(clv_session_find_first_nonfinite(&found, t->session, t->program, inputs, n, err));
    CLV_TRY(clv_session_take_stats(t->session, &none, err));
    describe(t, result, &found);
    if (t->on_nan == CLV_ON_NAN_STOP)
        return clv_fail_at(err, CLV_EINVAL, found.rank, found.op, "%s; try a lower learning rate", t->nonfinite);
    result->skipped = 1;
    t->skipped++;
    t->step++;
    return CLV_OK;
}

const char *clv_trainer_nonfinite(const clv_trainer *t)
{
    return t && t->nonfinite[0] ? t->nonfinite : NULL;
}

int64_t clv_trainer_steps_skipped(const clv_trainer *t)
{
    return t ? t->skipped : -1;
}
