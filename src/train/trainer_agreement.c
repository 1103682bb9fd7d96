/* trainer_agreement.c - maximum of a number and agreement on a status over the processes of a training job. */
#include <stdlib.h>

#include "base/error.h"
#include "runtime/multi_process/multi_process.h"
#include "train/trainer.h"

clv_status clv_trainer_max_over_processes_for(const clv_trainer *t, const char *what, int64_t mine, int64_t *most,
                                              clv_error *err)
{
    int first, last, ranks = (int)clv_mesh_rank_count(&t->model->mesh);
    clv_session_local_ranks(t->session, &first, &last);
    if (last - first == ranks) {
        *most = mine;
        return CLV_OK;
    }
    int64_t *all = calloc((size_t)ranks, sizeof *all);
    if (!all)
        return clv_fail_memory(err, "a number of each rank", (size_t)ranks * sizeof *all);
    clv_status status = clv_session_allgather(t->session, what, &mine, 1, all, err);
    for (int r = 0; status == CLV_OK && r < ranks; r++)
        *most = r == 0 || all[r] > *most ? all[r] : *most;
    free(all);
    return status;
}

clv_status clv_trainer_max_over_processes(const clv_trainer *t, int64_t mine, int64_t *most, clv_error *err)
{
    static const char call[] = "clv_trainer_max_over_processes";
    CLV_TRY(clv_require(t && most, call, "a trainer, and where the number goes", err));
    return clv_trainer_max_over_processes_for(t, call, mine, most, err);
}

clv_status clv_trainer_agree_on_status(const clv_trainer *t, clv_status status, clv_error *err)
{
    return clv_job_agree(t->model->job, status, err);
}
