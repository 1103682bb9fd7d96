/* reshard_run.h - a planned change of layout run on rank threads, every rank's elements checked. */
#ifndef CLEAVE_CLI_RESHARD_RUN_H
#define CLEAVE_CLI_RESHARD_RUN_H

#include "partition/reshard.h"

typedef struct clv_reshard_request {
    clv_mesh mesh;
    int rank;
    int64_t shape[CLV_MAX_RANK];
    clv_dtype dtype;
    clv_layout from, to;
} clv_reshard_request;

/* CLV_OK when all ranks end with the right elements (partial ones add up); CLV_EINVAL naming rank and element. */
clv_status clv_reshard_run(const clv_reshard_request *request, const clv_reshard_plan *plan, clv_error *err);

#endif
