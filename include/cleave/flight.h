/** @file flight.h - flight recorder: what each rank did last, its dumps, and the diagnosis of a stalled or failed run.
 *
 * Every rank of a session always records its last 256 instructions (ops, collectives, and transfers outside programs).
 * A dump is a file with the records of one process's ranks. The dumps of all processes together say which rank waits
 * for which, and in what.
 * @code
 * clv_flight *flight;
 * clv_flight_options where = {.size = sizeof where, .path = "run.flight"};
 * CLV_TRY(clv_flight_new(&flight, &where, err));
 * clv_session_options options = {.size = sizeof options, .flight = flight};    // or clv_model_options
 * ...                                          // run.flight; in several processes run.flight.0, run.flight.1, ...
 * clv_flight_free(flight);                     // after the sessions are freed
 * @endcode
 * `cleave flight run.flight.*` reads them.
 *
 * **When a dump is written.** When a call of a session fails and poisons it (a deadline passed, a rank failed, a
 * process died), and when a session is freed, unless a failed one was dumped before. A killed process leaves no dump,
 * which itself is a finding; a stopped process writes its dump when it continues.
 *
 * **The file** is JSON, version 1 (`"cleave_flight": 1`). It holds the run's id (equal in all processes of a job),
 * process, host, pid, the failure, and each group set as lists of ranks. For each rank: how many instructions it began;
 * whether the last one still runs (busy); whether it has work at all (works); how many collectives of each group set it
 * began and ended; and its records, oldest first. A record has a number, the instruction's index, name and kind, and
 * when it began and ended (nanoseconds since 1970 by the host's clock, which is read for one instruction in four). A
 * collective's record also has its group set, its sequence number there (seq), tag, phase ("begun", "waits", "moves",
 * "waits for the end", "ended"), bytes expected from other ranks and bytes received (seen), the members nothing was
 * received from (lacks), and since when it waits.
 */
#ifndef CLEAVE_FLIGHT_H
#define CLEAVE_FLIGHT_H

#include "cleave/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct clv_session;

/** Where the dumps of this process are written. Sessions on several threads may share one. */
typedef struct clv_flight clv_flight;

/** Zero-initialised = defaults. */
typedef struct clv_flight_options {
    size_t size;         /**< sizeof the struct, or 0 */
    const char *path;    /**< the file, overwritten if it exists; in a session of several processes the process's index
                              is appended: path.0, path.1 */
    int only_on_timeout; /**< nonzero: write only when a call fails with CLV_ETIMEOUT or CLV_EPEER */
} clv_flight_options;

/** Makes one; writes no file yet. Free with clv_flight_free. @return CLV_EINVAL without a path; CLV_ENOMEM */
CLV_EXPERIMENTAL clv_status clv_flight_new(clv_flight **out, const clv_flight_options *options, clv_error *err);
/** Frees it. Free the sessions that use it first. NULL is a no-op. */
CLV_EXPERIMENTAL void clv_flight_free(clv_flight *flight);
/** Path of the last dump written, which lives with the object; NULL: none yet.
 *  @return the failure of the last write, as clv_flight_write's; else CLV_OK */
CLV_EXPERIMENTAL clv_status clv_flight_last_path(const char **path, const clv_flight *flight, clv_error *err);

/** Writes a dump of this process's ranks to exactly `path`. The session may be running or failed; it must not be freed,
 *  nor a program of it unloaded, meanwhile.
 *  @return CLV_EINVAL for a path where no file can be; CLV_EIO, CLV_ENOTFOUND, CLV_ENOMEM */
CLV_EXPERIMENTAL clv_status clv_flight_write(const struct clv_session *session, const char *path, clv_error *err);

/* ---- reading ---- */

/** The dumps of one run, merged, and their diagnosis. */
typedef struct clv_flight_report clv_flight_report;

/** Reads n dumps, in any order; processes without a dump count as missing. Free with clv_flight_report_free.
 *  @return CLV_EFORMAT naming a file that is not a dump or is damaged; CLV_EUNSUPPORTED for another version; CLV_EINVAL
 *          for dumps of different runs, or two of one process; CLV_EIO, CLV_ENOTFOUND, CLV_ELIMIT (a file of more than
 *          256 MiB), CLV_ENOMEM */
CLV_EXPERIMENTAL clv_status clv_flight_read(clv_flight_report **out, const char *const *paths, int n, clv_error *err);
/** NULL is a no-op. */
CLV_EXPERIMENTAL void clv_flight_report_free(clv_flight_report *report);
/** Number of ranks of the run, missing ones included; 0 for NULL. */
CLV_EXPERIMENTAL int clv_flight_report_rank_count(const clv_flight_report *report);

/** How far a rank got. Strings live with the report. */
typedef struct clv_flight_rank {
    size_t size;                /**< set by the caller: sizeof the struct, or 0 */
    int process;                /**< -1: missing, then all else is unset */
    const char *host;           /**< NULL: missing */
    int64_t n_begun;            /**< instructions, and collectives outside programs, that it began */
    const char *last_completed; /**< name of the last instruction that ended; NULL: unknown */
    const char *current;        /**< name of the instruction that it is in; NULL: none */
    const char *kind;           /**< kind of the current op or collective */
    int64_t instruction;        /**< index of the current instruction in its program; -1: none */
    double waited_seconds;      /**< how long it had waited for other ranks when the dump was written; 0: not waiting */
    int group_set;              /**< group set of the current collective; -1: none */
    int64_t seq;                /**< sequence number of the current collective in its group set, from 1 */
    int64_t expected;           /**< bytes that the current collective expects from other ranks */
    int64_t received;           /**< of these, bytes received */
} clv_flight_rank;
/** State of a rank. Fills *out, whose `size` the caller has set. @return CLV_EINVAL for a rank out of range, or a size
 *  that no version had */
CLV_EXPERIMENTAL clv_status clv_flight_report_rank(const clv_flight_report *report, int rank, clv_flight_rank *out,
                                                   clv_error *err);

/** Kinds of findings. The first finding names the culprit, unless it is CLV_FLIGHT_WAITS or CLV_FLIGHT_REPORTED. */
typedef enum clv_flight_kind {
    CLV_FLIGHT_FAILED,    /**< the rank failed by itself */
    CLV_FLIGHT_DIFFERS,   /**< the rank is in another collective than its peer: they run different programs */
    CLV_FLIGHT_MISSING,   /**< the rank has no dump: killed, stopped, or its file was not passed */
    CLV_FLIGHT_STRAGGLER, /**< other ranks wait for this rank, and it waits for none */
    CLV_FLIGHT_LOST,      /**< data that the rank sent to its peer did not arrive, or not intact */
    CLV_FLIGHT_WAITS,     /**< the rank waits for its peer */
    CLV_FLIGHT_REPORTED   /**< the error message of the rank's process */
} clv_flight_kind;

/** One finding. The text lives with the report. */
typedef struct clv_flight_finding {
    size_t size; /**< set by the caller: sizeof the struct, or 0 */
    clv_flight_kind kind;
    int rank, peer;   /**< peer -1: none */
    const char *text; /**< a sentence; NULL: past the end */
} clv_flight_finding;
/** Finding i, culprits first. Fills *out, whose `size` the caller has set.
 *  @return CLV_EINVAL for a negative i, or a size that no version had */
CLV_EXPERIMENTAL clv_status clv_flight_report_finding(const clv_flight_report *report, int i, clv_flight_finding *out,
                                                      clv_error *err);
/** "failed", "differs", "missing", "straggler", "lost", "waits", "reported"; "unknown" for a value outside the enum. */
CLV_EXPERIMENTAL const char *clv_flight_kind_name(clv_flight_kind kind);

#ifdef __cplusplus
}
#endif
#endif
