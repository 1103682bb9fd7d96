/** @file flight.h - what ranks did last: flight recorders, their dumps, and who is behind.
 *
 * Each rank of a session keeps a record of its last 256 instructions, always, at the cost of some nanoseconds each: ops
 * and collectives of programs, and what is moved outside of them. A dump is what the ranks of one process have kept, as
 * a file; those of all processes together say who waits for whom, and in what.
 * @code
 * clv_flight *flight;
 * clv_flight_options where = {.size = sizeof where, .path = "run.flight"};
 * CLV_TRY(clv_flight_new(&flight, &where, err));
 * clv_session_options options = {.size = sizeof options, .flight = flight};    // or clv_model_options
 * ...                                          // run.flight; in several processes run.flight.0, run.flight.1, ...
 * clv_flight_free(flight);                     // when the sessions are freed
 * @endcode
 * `cleave flight run.flight.*` reads them.
 *
 * **When it is written.** When a call of a session fails and the session with it (a deadline passed, a rank failed, a
 * process died); and when a session ends, unless one that failed was written before. A process that is killed writes
 * none, and is found by that; one that is stopped writes when it goes on.
 *
 * **The file** is JSON, version 1 (`"cleave_flight": 1`): the run (equal in all processes of a job), process, host and
 * pid; the failure; each group set as lists of ranks; and of each rank how many instructions it began, whether it is in
 * the last (busy) and has something to do at all (works), how many steps of each group set it began and ended, and its
 * records, oldest first: number, instruction of the program, name, kind, begun and ended (nanoseconds since 1970, by
 * this host's clock, which is read for one instruction in four); of a step its group set, its number there (seq), tag,
 * phase ("begun", "waits", "moves", "waits for the end", "ended"), bytes expected of others and seen, members that were
 * not heard of (lacks), and since when it waits.
 */
#ifndef CLEAVE_FLIGHT_H
#define CLEAVE_FLIGHT_H

#include "cleave/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct clv_session;

/** Where dumps of this process go. Sessions of several threads may share one. */
typedef struct clv_flight clv_flight;

/** Zero-initialised = defaults. */
typedef struct clv_flight_options {
    size_t size;         /**< sizeof the struct; 0: as its first version had it */
    const char *path;    /**< the file, replaced if it is there; of a session in several processes the number of the
                              process follows: path.0, path.1 */
    int only_on_timeout; /**< nonzero: it is written only when a call fails with CLV_ETIMEOUT or CLV_EPEER */
} clv_flight_options;

/** Writes nothing yet. Free with clv_flight_free. @return CLV_EINVAL without a path; CLV_ENOMEM */
CLV_API clv_status clv_flight_new(clv_flight **out, const clv_flight_options *options, clv_error *err);
/** When the sessions that were told of it are freed; NULL is a no-op. */
CLV_API void clv_flight_free(clv_flight *flight);
/** The file that was written last, which lives with the object; NULL: none was yet.
 *  @return what the last writing failed by: CLV_EIO, CLV_ENOTFOUND, CLV_ENOMEM; CLV_OK else */
CLV_API clv_status clv_flight_last_path(const char **path, const clv_flight *flight, clv_error *err);

/** Writes what the ranks of this process have kept, of a session that runs or has failed, to `path` itself. Not while
 *  the session is freed, or a program of it unloaded.
 *  @return CLV_EIO, CLV_ENOTFOUND, CLV_ENOMEM */
CLV_API clv_status clv_flight_write(const struct clv_session *session, const char *path, clv_error *err);

/* ---- reading ---- */

/** Dumps of one run, merged. */
typedef struct clv_flight_report clv_flight_report;

/** Reads n dumps, in any order; those of processes that are not among them are missing. Free with
 *  clv_flight_report_free.
 *  @return CLV_EFORMAT naming the file for what is no dump, or damaged; CLV_EUNSUPPORTED for another version;
 *          CLV_EINVAL for dumps of different runs, or two of one process; CLV_EIO, CLV_ENOTFOUND, CLV_ELIMIT (a file
 *          of more than 256 MiB), CLV_ENOMEM */
CLV_API clv_status clv_flight_read(clv_flight_report **out, const char *const *paths, int n, clv_error *err);
/** NULL is a no-op. */
CLV_API void clv_flight_report_free(clv_flight_report *report);
/** Ranks of all processes, those that are missing, too; 0 for NULL. */
CLV_API int clv_flight_report_rank_count(const clv_flight_report *report);

/** How far a rank had come. Texts live with the report. */
typedef struct clv_flight_rank {
    size_t size;         /**< the caller's: sizeof the struct, or 0 */
    int process;         /**< -1: missing, and nothing else is known */
    const char *host;    /**< NULL: missing */
    int64_t begun;       /**< instructions, and steps outside of programs */
    const char *done;    /**< name of the last that ended; NULL: not known */
    const char *current; /**< name of the one that it is in; NULL: in none */
    const char *kind;    /**< of that one: an op's or a step's */
    int64_t instruction; /**< of the program; -1: in none */
    double waits;        /**< seconds, for others, when the dump was written; 0: it does not */
    int set;             /**< group set of the step that it is in; -1: in none */
    int64_t seq;         /**< which step of the group set, from 1 */
    int64_t expected;    /**< bytes of others in it */
    int64_t seen;        /**< of these */
} clv_flight_rank;
/** Fills *out, whose `size` the caller has set. @return CLV_EINVAL for a rank that there is not, or a size that no
 *  version had */
CLV_API clv_status clv_flight_report_rank(const clv_flight_report *report, int rank, clv_flight_rank *out,
                                          clv_error *err);

/** What is wrong. The first finding, unless it is one of the last two kinds, names the culprit. */
typedef enum clv_flight_kind {
    CLV_FLIGHT_FAILED,    /**< the rank failed by itself */
    CLV_FLIGHT_DIFFERS,   /**< it is in another step than its peer: they do not run the same */
    CLV_FLIGHT_MISSING,   /**< it left no dump: killed, stopped, or not given here */
    CLV_FLIGHT_STRAGGLER, /**< others wait for it, and it waits for none */
    CLV_FLIGHT_LOST,      /**< what it sent to its peer did not come, or not as it should */
    CLV_FLIGHT_WAITS,     /**< it waits for its peer */
    CLV_FLIGHT_REPORTED   /**< the words with which the process of this rank failed */
} clv_flight_kind;

/** One finding. The text lives with the report. */
typedef struct clv_flight_finding {
    size_t size; /**< the caller's: sizeof the struct, or 0 */
    clv_flight_kind kind;
    int rank, peer;   /**< peer -1: there is none */
    const char *text; /**< a sentence; NULL: past the end */
} clv_flight_finding;
/** By number, culprits first. Fills *out, whose `size` the caller has set.
 *  @return CLV_EINVAL for a number below 0, or a size that no version had */
CLV_API clv_status clv_flight_report_finding(const clv_flight_report *report, int i, clv_flight_finding *out,
                                             clv_error *err);
/** "failed", "differs", "missing", "behind", "lost", "waits", "said"; "unknown" for a value outside the enum. */
CLV_API const char *clv_flight_kind_name(clv_flight_kind kind);

#ifdef __cplusplus
}
#endif
#endif
