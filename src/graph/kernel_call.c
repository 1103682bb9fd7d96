/* kernel_call.c - answers what a kernel asks while it runs: its rank, its threads, whether it is cancelled. */
#include "graph/op.h"

#include "device/device.h"

int clv_call_rank(const clv_call *call)
{
    return call && call->context ? call->context->rank : 0;
}

int clv_call_threads(const clv_call *call)
{
    return call && call->context ? call->context->threads : 1;
}

clv_task_pool_member clv_call_task_pool_member(const clv_call *call)
{
    return call && call->context ? call->context->work : (clv_task_pool_member){0};
}

int clv_call_cancelled(const clv_call *call)
{
    const clv_context *context = call ? call->context : NULL;
    if (!context)
        return 0;
    return clv_cancel_requested(context->cancel) != 0 ||
           (context->failed && atomic_load_explicit(context->failed, memory_order_relaxed) != 0);
}
