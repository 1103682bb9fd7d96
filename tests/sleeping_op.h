/* sleeping_op.h - an op of f32 that gives what it gets, and on which the last rank sleeps: others wait for it. */
#pragma once

#include <stdbool.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "elementwise_op.h"

/* How long it sleeps, how often yet, and whether it fails then. */
static struct {
    int ms, left;
    bool fails;
} naps;

static inline clv_status nap_on_last(const clv_call *call, clv_error *err)
{
    const bool is_last = call->in[0].lo[0] + call->in[0].shape[0] == call->in[0].global[0];
    memcpy(call->out[0].data, call->in[0].data, (size_t)clv_view_elems(&call->out[0]) * sizeof(float));
    if (is_last && naps.left > 0) {
        naps.left--;
        nanosleep(&(struct timespec){.tv_nsec = naps.ms * 1000000L}, NULL);
    }
    if (is_last && naps.fails)
        return clv_fail(err, CLV_EIO, "torn from sleep");
    return CLV_OK;
}

static const clv_op_def nap = {
    .name = "nap", .min_in = 1, .max_in = 1, .n_out = 1, .shape = same_shape, .rule = by_elements, .run = nap_on_last};
