/* multi_process.h - session functions for train and infer over processes: allgather, agreement, snapshots. */
#ifndef CLEAVE_RUNTIME_MULTI_PROCESS_MULTI_PROCESS_H
#define CLEAVE_RUNTIME_MULTI_PROCESS_MULTI_PROCESS_H

#include "cleave/session.h"

/* Takes the boxes of a tensor in this layout that this process is to hand on, so that all processes together hand on
 * each element once: the whole tensor, where all ranks are here. */
typedef clv_status clv_owned_box_fn(void *arg, const clv_shard *box, clv_error *err);
clv_status clv_session_each_owned_box(const clv_session *session, const clv_type *type, const clv_layout *layout,
                                      clv_owned_box_fn *take, void *arg, clv_error *err);

/* Whether every process' ranks hold all of a tensor in this layout. */
clv_status clv_session_each_process_has_all(bool *all, const clv_session *session, const clv_type *type,
                                            const clv_layout *layout, clv_error *err);

/* Brings the whole of an output of a program to this process, as its last run left it, and no other program has run
 * since; all processes make the same call. */
clv_status clv_session_fetch_output(clv_session *session, const clv_program *program, const char *name, void *out,
                                    clv_error *err);

/* As clv_session_read, by this process alone. CLV_EPEER when others hold a part of it. */
clv_status clv_session_read_local(const clv_session *session, const char *name, const clv_shard *box, void *out,
                                  clv_error *err);

/* Gives all state of the ranks here the values that a source has for it, by its own name, each rank its shard on its
 * own thread. Where the source fails, or does not know a state (CLV_ENOTFOUND), the session goes on, with whatever
 * values were brought. */
clv_status clv_session_reload_local(clv_session *session, clv_state_source *source, void *arg, clv_error *err);

/* The states of the ranks here that are wanted, as they are now, as a session that is no more than them: another thread
 * may read it here (clv_session_state, clv_session_each_owned_box, clv_session_read_local) while the ranks run on. Each
 * rank copies its own, on its own thread; of what several hold the first one does: clv_session_rank_bytes of it is what
 * rank 0 copies, the most of any. @return CLV_ENOMEM, after which the session goes on; clv_session_run's */
typedef bool clv_state_filter(const void *arg, const char *name);
clv_status clv_session_snapshot(clv_session **out, const clv_session *session, clv_state_filter *wants, const void *arg,
                                clv_error *err);
/* NULL is a no-op. */
void clv_session_snapshot_free(clv_session *capture);

/* What every rank's process says, for all to know: n words of mine, the same in length everywhere; all: [ranks][n].
 * `what`: a constant. */
clv_status clv_session_allgather(const clv_session *session, const char *what, const int64_t *mine, int n, int64_t *all,
                                 clv_error *err);

/* Runs a program once more, which goes on whatever it finds, and names in *found (code CLV_ENONFINITE; CLV_OK: nothing)
 * the first instruction whose result is infinite or NaN, with rank, tensor and index, or the input or state that held
 * such a value before: of the ranks that found something at the same instruction the first. All processes make the
 * call. Nothing is found on a device whose memory is not the host's. */
clv_status clv_session_find_first_nonfinite(clv_error *found, clv_session *session, const clv_program *program,
                                            const clv_input_binding *inputs, int n_inputs, clv_error *err);

/* Whether this is the process of rank 0. */
bool clv_session_is_root(const clv_session *session);

/* Waits for all processes, which make the same call, and say how they fared, and a number each. *sum: of the numbers.
 * `what`: a constant.
 * @return `status` where it is a failure; CLV_EPEER where another process failed, naming its first rank */
clv_status clv_session_agree(const clv_session *session, const char *what, clv_status status, int64_t number,
                             int64_t *sum, clv_error *err);

#endif
