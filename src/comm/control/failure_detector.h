/* failure_detector.h - TCP mesh between a job's processes, beside MPI: heartbeats, lost-process detection, failure
 * broadcast.
 *
 * **A mesh**, and not a star: every process sees for itself that another has ended, whichever that is, and none is
 * needed for it; a link that is cut is found at both its ends. It costs each process a socket for every other, and one
 * exchange at the start; nothing a step.
 *
 * **How they find each other.** Each process listens at one port until the others have come, and tells over MPI where:
 * its addresses, the port and a random token. The higher of two connects to the lower, over loopback where both are in
 * one network namespace, else at the addresses of a network that it is in itself, then at the others. Both show the
 * token that the other told over MPI; who cannot is a stranger, and dropped. Nothing is encrypted.
 *
 * **What is said.** That one goes (goodbye); what failed in a world; and a pulse, ten times a second or less. A
 * connection that ends without goodbye is a process that died: it is lost, the job's MPI is not called any more, and
 * all its worlds fail. One that is stopped, or cut off, has no pulse.
 */
#ifndef CLEAVE_COMM_CONTROL_FAILURE_DETECTOR_H
#define CLEAVE_COMM_CONTROL_FAILURE_DETECTOR_H

#include <stdbool.h>
#include <stdint.h>

#include "cleave/status.h"

typedef struct clv_control clv_control;
struct clv_job;
struct clv_rank_progress;
struct clv_world;

enum { CLV_CONTROL_SPEC_BYTES = 64 }; /* bytes of clv_job_options.control at most */

#define CLV_CONTROL_OPTION "control (CLEAVE_CONTROL)" /* in messages: the option, or what stands for it */

/* CLV_EINVAL for a clv_job_options.control that says nothing. */
clv_status clv_control_check_spec(const char *how, clv_error *err);
/* All processes of a job call it alike, once they know each other's names. how: clv_job_options.control, ""
 * for the defaults. All return a failure, or none; *out stays NULL for one process, and where it is "off". */
clv_status clv_control_open(clv_control **out, struct clv_job *job, const char *how, clv_error *err);
/* Says goodbye: why, if the process goes because of a failure; NULL: it is well. control NULL is a no-op, here and
 * below. */
void clv_control_close(clv_control *control, const clv_error *why);

/* Whether a process was lost; fills error (may be NULL) with the first loss. */
bool clv_control_lost(const clv_control *control, clv_error *error);
/* How long nothing came of a process, counting time in which this one ran. */
int64_t clv_control_since_heartbeat_ns(const clv_control *control, int process);
/* A world hears of losses, and of what others tell, from here on; one that was lost before, at once. */
void clv_control_add_world(clv_control *control, struct clv_world *world);
void clv_control_remove_world(clv_control *control, const struct clv_world *world);
/* Asks the other processes where their ranks of a world stand, all [ranks], and in a group set of it, and waits for
 * their answers, 80 ms at most. A process that says nothing, and has had no pulse either, is lost from then on, as if
 * it had ended. */
void clv_control_query_progress(clv_control *control, struct clv_world *world, int set, struct clv_rank_progress *all);
/* Tells the other processes of a world's failure. */
void clv_control_notify_failure(clv_control *control, uint64_t world, const clv_error *error);

#endif
