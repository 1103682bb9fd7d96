#include "single_step.h"

#include <stdlib.h>

#include "unit_test.h"

clv_window *hand_window(clv_world *world, void *const *memory)
{
    const clv_transport *transport = clv_world_transport(world);
    clv_window *window = NULL;
    if (transport->add_window)
        assert_int_equal(transport->add_window(&window, world, memory, NULL), CLV_OK);
    return window;
}

void hand_window_free(clv_world *world, clv_window *window)
{
    if (window)
        clv_world_transport(world)->free_window(window);
}

clv_status hand_prepare(clv_prepared_collective **out, void **staging, clv_world *world, clv_comm *comm,
                        const clv_transfer *transfer, clv_error *err)
{
    int64_t bytes = 0;
    clv_status status = clv_world_transport(world)->prepare(out, comm, transfer, &bytes, err);
    *staging = status == CLV_OK && bytes > 0 ? malloc((size_t)bytes) : NULL;
    return status;
}

void hand_release(clv_world *world, clv_prepared_collective *prepared, void *staging)
{
    clv_world_transport(world)->release(prepared);
    free(staging);
}

clv_status hand_step(clv_world *world, clv_comm *comm, const clv_transfer *transfer, clv_error *err)
{
    const clv_transport *transport = clv_world_transport(world);
    clv_prepared_collective *prepared = NULL;
    void *staging;
    clv_status status = hand_prepare(&prepared, &staging, world, comm, transfer, err);
    if (status == CLV_OK)
        status = transport->start(prepared, staging, err);
    if (status == CLV_OK)
        status = transport->wait(prepared, CLV_WAIT_OUTPUT_READY, err);
    if (status == CLV_OK)
        status = transport->wait(prepared, CLV_WAIT_INPUT_REUSABLE, err);
    hand_release(world, prepared, staging);
    return status;
}

clv_transfer hand_all_reduce(const clv_group *group, const clv_window *window, void *out, const void *in, int64_t count,
                             clv_dtype dtype, clv_shard shards[])
{
    for (int m = 0; m < group->n; m++)
        shards[m] = (clv_shard){.rank = 1, .hi = {count}};
    return (clv_transfer){.what = "all_reduce",
                          .tag = 1,
                          .group = group,
                          .dtype = dtype,
                          .reduction = CLV_REDUCTION_SUM,
                          .parts = {.n = group->n, .reduces = true, .in = shards, .out = shards},
                          .in = in,
                          .out = out,
                          .in_window = window,
                          .out_window = window};
}
