/* find_first_nonfinite.c - reruns a program to find its first instruction with a NaN or infinite result. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "runtime/checks/nonfinite_check.h"
#include "runtime/multi_process/multi_process.h"
#include "runtime/session/session_internal.h"

static clv_status begin(clv_loaded_program *loaded, clv_nonfinite_finding *findings, clv_error *err)
{
    loaded->minus_infinity_allowed = clv_nonfinite_allowed(loaded->program);
    if (!loaded->minus_infinity_allowed)
        return clv_fail_memory(err, "what of a program may be infinite", (size_t)loaded->program->n_buffers);
    for (int r = 0; r < loaded->n_local_ranks; r++) {
        findings[r] = (clv_nonfinite_finding){.instruction = -1, .what = {.rank = -1}};
        loaded->ranks[r].finding = &findings[r];
    }
    return CLV_OK;
}

static void end(clv_loaded_program *loaded)
{
    for (int r = 0; r < loaded->n_local_ranks; r++)
        loaded->ranks[r].finding = NULL;
    free(loaded->minus_infinity_allowed);
    loaded->minus_infinity_allowed = NULL;
}

/* The first instruction, and of the ranks that found it there the first; NULL: none did. */
static const clv_nonfinite_finding *first_of(const clv_nonfinite_finding *findings, int n)
{
    const clv_nonfinite_finding *first = NULL;
    for (int r = 0; r < n; r++)
        if (findings[r].instruction >= 0 && (!first || findings[r].instruction < first->instruction))
            first = &findings[r];
    return first;
}

/* The first of all processes, each of which speaks by its first finding. */
static clv_status agree(clv_error *found, const clv_session *session, const clv_nonfinite_finding *mine, clv_error *err)
{
    enum { WORDS = 1 + (sizeof(clv_error) + sizeof(int64_t) - 1) / sizeof(int64_t) };
    int64_t words[WORDS] = {mine ? mine->instruction : -1}, first = -1;
    int64_t *all = calloc((size_t)session->n_ranks * WORDS, sizeof *all);
    if (!all)
        return clv_fail_memory(err, "what ranks found", (size_t)session->n_ranks * sizeof words);
    if (mine)
        memcpy(words + 1, &mine->what, sizeof mine->what);
    clv_status status = clv_session_allgather(session, "naming what is not finite", words, WORDS, all, err);
    for (int r = 0; status == CLV_OK && r < session->n_ranks; r++) {
        int64_t at = all[(size_t)r * WORDS];
        if (at >= 0 && (first < 0 || at < first)) {
            first = at;
            memcpy(found, all + (size_t)r * WORDS + 1, sizeof *found);
        }
    }
    free(all);
    return status;
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
    if (!findings)
        return clv_fail_memory(err, "what ranks find", (size_t)loaded->n_local_ranks * sizeof *findings);
    clv_status status = begin(loaded, findings, err);
    if (status == CLV_OK)
        status = clv_session_run(session, program, inputs, n_inputs, NULL, 0, err);
    end(loaded);
    if (status == CLV_OK)
        status = agree(found, session, first_of(findings, loaded->n_local_ranks), err);
    free(findings);
    return status;
}
