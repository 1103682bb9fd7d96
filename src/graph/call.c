/* call.c - what a kernel may ask of the rank that runs it. */
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

clv_workplace clv_call_work(const clv_call *call)
{
    return call && call->context ? call->context->work : (clv_workplace){0};
}

int clv_call_cancelled(const clv_call *call)
{
    const clv_context *context = call ? call->context : NULL;
    if (!context)
        return 0;
    return clv_cancel_requested(context->cancel) != 0 ||
           (context->failed && atomic_load_explicit(context->failed, memory_order_relaxed) != 0);
}
