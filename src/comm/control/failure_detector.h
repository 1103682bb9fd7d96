/* failure_detector.h - TCP mesh between a job's processes, beside MPI: heartbeats, lost-process detection, failure
 * broadcast.
 *
 * **Mesh.** Every process has a connection to every other, so each sees for itself that another has ended, and a link
 * that is cut is found at both its ends. It costs each process a socket per other process and one exchange at the
 * start; nothing per collective.
 *
 * **Connecting.** Each process listens at one port until the others have connected, and sends its addresses, the port
 * and a random token over MPI. Of two processes the one with the higher index connects to the other: over loopback if
 * both are in one network namespace, else at addresses in a network of its own, then at the others. Each shows the
 * token that the other sent over MPI; a peer without it is dropped. Nothing is encrypted.
 *
 * **Messages.** Goodbye (a process leaves), failures of worlds, progress queries and their answers, and heartbeats, ten
 * per second or fewer. A connection that ends without goodbye belongs to a process that died: it is lost, the job is
 * poisoned, and all its worlds fail. A process that is stopped or cut off sends no heartbeats.
 */
#pragma once

#include <stdbool.h>

#include "cleave/status.h"

typedef struct clv_control clv_control;
struct clv_job;
struct clv_rank_progress;
struct clv_world;

enum { CLV_CONTROL_SPEC_BYTES = 64 }; /* bytes of clv_job_options.control, at most */

#define CLV_CONTROL_OPTION "control (CLEAVE_CONTROL)" /* name of the option in messages */

/* CLV_EINVAL for a clv_job_options.control that cannot be parsed. */
clv_status clv_control_check_spec(const char *spec, clv_error *err);
/* Called by all processes of a job alike, once job->members is known. spec: clv_job_options.control; "": defaults.
 * Fails in all processes or in none; *out stays NULL for one process or spec "off". */
clv_status clv_control_open(clv_control **out, struct clv_job *job, const char *spec, clv_error *err);
/* Sends goodbye and closes the connections; why: the failure because of which the process leaves; NULL: none. control
 * NULL is a no-op, here and below. */
void clv_control_close(clv_control *control, const clv_error *why);

/* Whether a process was lost; fills error (may be NULL) with the first loss. */
bool clv_control_has_lost_process(const clv_control *control, clv_error *error);
/* Time since the last message of a process, not counting time in which this process did not run. */
int64_t clv_control_since_heartbeat_ns(const clv_control *control, int process);
/* Registers a world: it fails when a process is lost (at once, if one was lost before) or another process sends a
 * failure of it. */
void clv_control_add_world(clv_control *control, struct clv_world *world);
void clv_control_remove_world(clv_control *control, const struct clv_world *world);
/* Asks the other processes for the progress of their ranks in a world, and waits for the answers, 80 ms at most; fills
 * all[ranks]. group_set: for clv_rank_progress.set_begun. A process that neither answers nor sends heartbeats is marked
 * unresponsive. */
void clv_control_query_progress(clv_control *control, struct clv_world *world, int group_set,
                                struct clv_rank_progress *all);
/* Sends a world's failure to the other processes. After a timeout, unresponsive processes count as lost. */
void clv_control_notify_failure(clv_control *control, uint64_t world, const clv_error *error);
