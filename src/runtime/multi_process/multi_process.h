/* multi_process.h - session functions for train and infer over processes: local ranks, allgather, agreement, snapshots.
 *
 * Where it says so, all processes of the session make the same call. `what` names the call in messages: a constant.
 */
#pragma once

#include "cleave/session.h"

/* Whether other processes have ranks, too. */
bool clv_session_is_multi_process(const clv_session *session);
/* Whether this is the process of rank 0. */
bool clv_session_is_root(const clv_session *session);
/* Whether a rank is the first rank of its process. */
bool clv_session_rank_is_process_leader(const clv_session *session, int rank);
/* The ranks of this process: [*first, *last). */
void clv_session_local_ranks(const clv_session *session, int *first, int *last);

/* Calls `callback` for each box of a tensor that this process has to write or send, so that all processes together
 * cover each element once; for the whole tensor if all ranks are in this process. */
typedef clv_status clv_owned_box_fn(void *arg, const clv_shard *box, clv_error *err);
clv_status clv_session_for_each_box_of_process(const clv_session *session, const clv_type *type,
                                               const clv_layout *layout, clv_owned_box_fn *callback, void *arg,
                                               clv_error *err);

/* Whether the ranks of every process hold the whole of a tensor in this layout. */
bool clv_session_each_process_has_all(const clv_session *session, const clv_type *type, const clv_layout *layout);

/* Copies a whole output of a program, as its last run left it, to this process; no other program may have run since.
 * All processes make the same call. */
clv_status clv_session_fetch_output(clv_session *session, const clv_program *program, const char *name, void *out,
                                    clv_error *err);

/* clv_session_read by this process alone. CLV_EPEER when ranks of other processes hold a part of the box. */
clv_status clv_session_read_local(const clv_session *session, const char *name, const clv_shard *box, void *out,
                                  clv_error *err);

/* Reloads all state of this process's ranks from a source, each rank its shard on its own thread. If the source fails
 * or does not know a state (CLV_ENOTFOUND), the session is not poisoned; state holds whatever was read. */
clv_status clv_session_reload_local(clv_session *session, clv_state_source *source, void *arg, clv_error *err);

/* Copies the states that the filter wants, of this process's ranks, into a session that can only be read: another
 * thread may call clv_session_state, clv_session_for_each_box_of_process and clv_session_read_local on it while the
 * ranks run on. Each rank copies its own shards on its own thread; of replicas only the first rank does.
 * clv_session_rank_bytes of the snapshot is what rank 0 copies, the most of any rank. Free with clv_session_free.
 * @return CLV_ENOMEM, which does not poison the session; clv_session_run's */
typedef bool clv_state_filter(const void *arg, const char *name);
clv_status clv_session_snapshot(clv_session **out, const clv_session *session, clv_state_filter *wants, const void *arg,
                                clv_error *err);

/* Allgather of n words per process, the same n in all. all: [n_ranks][n], the row of a rank being its process's. All
 * processes make the same call. */
clv_status clv_session_allgather(const clv_session *session, const char *what, const int64_t *mine, int n, int64_t *all,
                                 clv_error *err);

/* Waits until all processes have called it with their status and a number. *sum: of the numbers.
 * @return `status` if it is a failure; CLV_EPEER naming the first rank of another process that failed */
clv_status clv_session_agree(const clv_session *session, const char *what, clv_status status, int64_t number,
                             int64_t *sum, clv_error *err);

/* Reruns a program to its end and reports in *found (code CLV_ENONFINITE; CLV_OK: none) the first instruction whose
 * result is infinite or NaN, with rank, tensor and index, or the input or state that already held such a value; of
 * several ranks that found one at the same instruction, the first. All processes make the same call. Finds nothing on
 * devices with memory of their own. */
clv_status clv_session_find_first_nonfinite(clv_error *found, clv_session *session, const clv_program *program,
                                            const clv_input_binding *inputs, int n_inputs, clv_error *err);
