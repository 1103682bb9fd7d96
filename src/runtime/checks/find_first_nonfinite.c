/* find_first_nonfinite.c - reruns a program to find its first instruction with a NaN or infinite result. */
#include "runtime/checks/nonfinite_check.h"
#include "runtime/multi_process/multi_process.h"
#include "runtime/session/session_internal.h"

/* The finding at the first instruction, of the first rank of all processes. */
static clv_status find_first(clv_error *found, const clv_session *session, const clv_nonfinite_finding *findings,
                             clv_error *err)
{
    enum { WORDS = 1 + (sizeof(clv_error) + sizeof(int64_t) - 1) / sizeof(int64_t) };
    int64_t mine[WORDS] = {-1}, first = -1;
    CLV_FREED int64_t *all = calloc((size_t)session->n_ranks * WORDS, sizeof *all);
    if (!all)
        return clv_fail_memory(err, "findings", (size_t)session->n_ranks * sizeof mine);
    for (int r = 0; r < session->n_local_ranks; r++)
        if (findings[r].instruction >= 0 && (mine[0] < 0 || findings[r].instruction < mine[0])) {
            mine[0] = findings[r].instruction;
            memcpy(mine + 1, &findings[r].what, sizeof findings[r].what);
        }
    CLV_TRY(clv_session_allgather(session, "finding the first value that is not finite", mine, WORDS, all, err));
    for (int r = 0; r < session->n_ranks; r++) {
        int64_t at = all[(size_t)r * WORDS];
        if (at >= 0 && (first < 0 || at < first)) {
            first = at;
            memcpy(found, all + (size_t)r * WORDS + 1, sizeof *found);
        }
    }
    return CLV_OK;
}

clv_status clv_session_find_first_nonfinite(clv_error *found, clv_session *session, const clv_program *program,
                                            const clv_input_binding *inputs, int n_inputs, clv_error *err)
{
    clv_loaded_program *loaded;
    *found = (clv_error){.rank = -1};
    if (!session->backend->is_host)
        return CLV_OK;
    CLV_TRY(clv_session_find_or_load(&loaded, session, program, err));
    clv_nonfinite_finding *findings = calloc((size_t)loaded->n_local_ranks, sizeof *findings);
    bool *before = loaded->minus_infinity_allowed;
    loaded->minus_infinity_allowed = clv_negative_infinity_allowed(program);
    for (int r = 0; findings && r < loaded->n_local_ranks; r++) {
        findings[r] = (clv_nonfinite_finding){.instruction = -1, .what = {.rank = -1}};
        loaded->ranks[r].finding = &findings[r];
    }
    clv_status status = findings && loaded->minus_infinity_allowed
                            ? clv_session_run(session, program, inputs, n_inputs, NULL, 0, err)
                            : clv_fail_memory(err, "findings", (size_t)loaded->n_local_ranks * sizeof *findings);
    for (int r = 0; r < loaded->n_local_ranks; r++)
        loaded->ranks[r].finding = NULL;
    free(loaded->minus_infinity_allowed);
    loaded->minus_infinity_allowed = before;
    if (status == CLV_OK)
        status = find_first(found, session, findings, err);
    free(findings);
    return status;
}
