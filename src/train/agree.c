/* agree.c - a trainer's word with the other processes of its job. */
#include <stdlib.h>

#include "base/error.h"
#include "runtime/peers.h"
#include "runtime/shares.h"
#include "train/trainer.h"

clv_status clv_trainer_find_most(const clv_trainer *t, const char *what, int64_t mine, int64_t *most, clv_error *err)
{
    int first, last, ranks = (int)clv_mesh_ranks(&t->model->mesh);
    clv_session_ranks_here(t->session, &first, &last);
    if (last - first == ranks) {
        *most = mine;
        return CLV_OK;
    }
    int64_t *all = calloc((size_t)ranks, sizeof *all);
    if (!all)
        return clv_fail_memory(err, "a number of each rank", (size_t)ranks * sizeof *all);
    clv_status status = clv_session_tell(t->session, what, &mine, 1, all, err);
    for (int r = 0; status == CLV_OK && r < ranks; r++)
        *most = r == 0 || all[r] > *most ? all[r] : *most;
    free(all);
    return status;
}

clv_status clv_trainer_most(const clv_trainer *t, int64_t mine, int64_t *most, clv_error *err)
{
    static const char call[] = "clv_trainer_most";
    CLV_TRY(clv_require(t && most, call, "a trainer, and where the number goes", err));
    return clv_trainer_find_most(t, call, mine, most, err);
}

clv_status clv_trainer_agree(const clv_trainer *t, clv_status status, clv_error *err)
{
    return clv_job_agree(t->model->job, status, err);
}
