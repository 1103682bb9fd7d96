/* repeatability_check.c - reruns an op on poisoned memory and on three threads: bits must not change. */
#include "runtime/checks/repeatability_check.h"

#include <string.h>

#include "base/error.h"

static clv_status compare(const clv_op_harness *whole, const clv_op_harness *again, const char *how, clv_error *err)
{
    for (int o = 0; o < whole->op->n_out; o++) {
        const clv_view *before = &whole->out[o], *now = &again->out[o];
        size_t size = clv_dtype_size(before->dtype);
        char index[CLV_OP_HARNESS_INDEX_TEXT];
        for (int64_t i = 0; i < clv_view_elems(before); i++)
            if (memcmp((const char *)before->data + (size_t)i * size, (const char *)now->data + (size_t)i * size,
                       size) != 0)
                return clv_fail_at(err, CLV_ECHECK, -1, whole->op->name,
                                   "%s: element %s of result %d is %.9g; it was %.9g; valid: the same bits, of the "
                                   "same operands",
                                   how, clv_op_harness_print_index(index, before, i), o,
                                   clv_dtype_load(now->dtype, now->data, i),
                                   clv_dtype_load(before->dtype, before->data, i));
    }
    return CLV_OK;
}

static clv_status run_again(const clv_op_harness *whole, int threads, const char *how, clv_error *err)
{
    clv_op_harness again = *whole;
    clv_status status = clv_op_harness_alloc_all(&again, whole, err);
    if (status == CLV_OK)
        status = clv_op_harness_run_poisoned(&again, threads, how, err);
    if (status == CLV_OK)
        status = compare(whole, &again, how, err);
    clv_op_harness_free_all(&again);
    return status;
}

clv_status clv_repeatability_check(const clv_op_harness *whole, clv_error *err)
{
    CLV_TRY(run_again(whole, 1, "again, where memory around its operands holds other bytes", err));
    return run_again(whole, 3, "again, by three threads", err);
}
