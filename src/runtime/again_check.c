/* again_check.c - see again_check.h. */
#include "runtime/again_check.h"

#include <string.h>

#include "base/error.h"

static clv_status compare(const clv_trial *whole, const clv_trial *again, const char *how, clv_error *err)
{
    for (int o = 0; o < whole->op->n_out; o++) {
        const clv_view *before = &whole->out[o], *now = &again->out[o];
        size_t size = clv_dtype_size(before->dtype);
        char index[CLV_TRIAL_INDEX];
        for (int64_t i = 0; i < clv_view_elems(before); i++)
            if (memcmp((const char *)before->data + (size_t)i * size, (const char *)now->data + (size_t)i * size,
                       size) != 0)
                return clv_fail_at(err, CLV_ECHECK, -1, whole->op->name,
                                   "%s: element %s of result %d is %.9g; it was %.9g; valid: the same bits, of the "
                                   "same operands",
                                   how, clv_trial_index(index, before, i), o, clv_dtype_load(now->dtype, now->data, i),
                                   clv_dtype_load(before->dtype, before->data, i));
    }
    return CLV_OK;
}

static clv_status run_again(const clv_trial *whole, int threads, const char *how, clv_error *err)
{
    clv_trial again = *whole;
    clv_status status = clv_trial_take_all(&again, whole, err);
    if (status == CLV_OK)
        status = clv_trial_run_littered(&again, threads, how, err);
    if (status == CLV_OK)
        status = compare(whole, &again, how, err);
    clv_trial_release_all(&again);
    return status;
}

clv_status clv_again_try(const clv_trial *whole, clv_error *err)
{
    CLV_TRY(run_again(whole, 1, "again, where memory around its operands holds other bytes", err));
    return run_again(whole, 3, "again, by three threads", err);
}
