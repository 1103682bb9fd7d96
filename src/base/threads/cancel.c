/* cancel.c - cancellation flag: set from any thread or signal handler, polled by sessions and loaders. */
#include "cleave/cancel.h"

void clv_cancel_request(clv_cancel *cancel)
{
    if (cancel)
        __atomic_store_n(&cancel->requested, 1, __ATOMIC_RELAXED);
}

void clv_cancel_reset(clv_cancel *cancel)
{
    if (cancel)
        __atomic_store_n(&cancel->requested, 0, __ATOMIC_RELAXED);
}

int clv_cancel_requested(const clv_cancel *cancel)
{
    return cancel ? __atomic_load_n(&cancel->requested, __ATOMIC_RELAXED) : 0;
}
