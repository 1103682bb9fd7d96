/** @file plan_search.h - searches meshes, rules and options for a number of devices, priced by the programs that would
 * run, or by estimates.
 *
 *   clv_plan_options base = {.size = sizeof base, .model = "llama-70b", .batch = 512, .seq = 8192, .dtype = CLV_BF16};
 *   base.compile.machine = machine;
 *   clv_plan_search_options how = {.size = sizeof how, .base = &base, .devices = 64};
 *   clv_plan_search_run(&search, &how, &err);
 *   for (int i = 0; i < clv_plan_search_count(search); i++) {
 *       clv_plan_candidate c = {.size = sizeof c};
 *       clv_plan_search_at(search, i, &c, &err);
 *   }
 *
 * A layout is a mesh (devices as data x model or X x Y, on several hosts in both orders) with the rules of a preset
 * that fits it; a candidate is a layout with a number of microbatches (each that gives the ranks equally many rows),
 * recomputation and reshard_after_forward. The base's mesh and accumulate are kept if they are not 0, its recompute and
 * reshard_after_forward if they are not the default or `keep_recompute` and `keep_reshard_after_forward` say so; the
 * rest is searched. The batch must have a row for each rank of the data
 * axis, and each rank of the model axis a head.
 *
 * A larger microbatch, less recomputation and weights that stay gathered are taken to be never slower: of the options
 * of a layout those are priced that could be its fastest that fits, and those that need the least memory. Seconds and
 * memory of models of more than three layers are extrapolated from two and three layers, of more than five
 * microbatches from four and five; the ranked candidates, and those of the front that need more than nine tenths of
 * the limit, are then compiled with all layers.
 *
 * For a model's training step meshes with stages, context and experts are searched, too, by estimates; what is listed
 * is then priced as clv_plan_estimate_step does: `can_run` is false of what is not priced by its program, and
 * `runnable` leaves it out. Pipe, context (up to 64), expert
 * and model are any divisors of the devices with rules of ZeRO-1 and FSDP (with SP); schedules are 1F1B, interleaved
 * and ZB-H1. Of stages fewer microbatches are taken to be faster up to some number, and slower from there on. Layouts
 * that cannot be among the reported ones by a lower bound of their seconds are not priced. The best one that runs, of
 * what four rounds of programs with all layers price, is ranked, after `most` others if need be.
 *
 * Thread-safe; a clv_plan_search is immutable.
 */
#ifndef CLEAVE_PLAN_SEARCH_H
#define CLEAVE_PLAN_SEARCH_H

#include "cleave/plan_estimate.h"

#ifdef __cplusplus
extern "C" {
#endif

/** The candidates of a search. */
typedef struct clv_plan_search clv_plan_search;

enum { CLV_PLAN_SEARCH_MOST = 10 /**< default of clv_plan_search_options.most */ };

/** What is searched. Zero-initialised = defaults; set `base` and `devices`. */
typedef struct clv_plan_search_options {
    size_t size;                  /**< sizeof the struct, or 0 for the same */
    const clv_plan_options *base; /**< the model or block, and what all candidates share; borrowed during the call. Its
                                       `rules` and `sp` must not be set */
    int64_t devices;              /**< ranks; 0: those of base->mesh, or hosts * ranks_per_host */
    int64_t hosts;                /**< hosts of the machine; 0: as its profile says */
    int64_t ranks_per_host;       /**< consecutive ranks that share a host; 0: as its profile says */
    const char *rules;            /**< the preset of all candidates; NULL: each that fits */
    double memory_limit;          /**< bytes of a rank; 0: the machine's */
    double latency_limit; /**< seconds of a prefill or decode step: the batch is searched, in powers of two up to
                                       the base's batch (0: 4096), for the most tokens/s within this limit; 0: none */
    int most;             /**< ranked layouts; 0: CLV_PLAN_SEARCH_MOST */
    int threads;          /**< that compile; 0: one per core */
    bool every_layout;    /**< rank each layout, with the data axis or X first; after those that fit the others,
                                       with the options that need the least memory. `most` is ignored */
    bool exhaustive;      /**< price every candidate */
    bool keep_recompute;  /**< do not search base->compile.recompute, though it be the default */
    bool keep_reshard_after_forward; /**< likewise */
    bool runnable;                   /**< search what clv_plan_compile makes alone, not estimates */
    clv_plan_schedule schedule;      /**< of all meshes with stages; DEFAULT: each but GPipe */
    int64_t virtual_stages;          /**< likewise; 0: each number */
} clv_plan_search_options;

/** A candidate. Its pointers live as long as the clv_plan_search. */
typedef struct clv_plan_candidate {
    size_t size; /**< the caller's: sizeof the struct, or 0 */
    const clv_mesh *mesh;
    const clv_axis_rules *rules; /**< `name` is the preset's */
    int64_t batch;
    int64_t accumulate; /**< microbatches; at least 1 */
    clv_recompute recompute;
    clv_reshard_after_forward reshard_after_forward;
    bool can_run;               /**< false: estimated (cleave/plan_estimate.h); then the rules have a name alone */
    clv_plan_schedule schedule; /**< of stages; DEFAULT: there are none */
    int64_t virtual_stages;     /**< at least 1 */
    bool fits;                  /**< memory and, if there is a limit, latency */
    int front;           /**< place on the front, from 1; 0: a faster candidate that fits needs as little memory */
    double memory;       /**< bytes of a rank */
    double seconds;      /**< of a step */
    double tokens_per_s; /**< of all ranks */
    double mfu;          /**< model flops utilisation, as clv_prediction.model_utilisation */
    double comm_share;   /**< exposed communication, as a fraction of the seconds */
    double bubble_share; /**< what the slowest stage waits for others, likewise */
    const char *why;     /**< why it is not first, by the part of the seconds that grew most against the first, with
                          its bubble and memory: "11 % slower: +6.2 s weight gathers, network; memory -2.1 GiB"; "" for
                          the first */
    bool no_sync;        /**< as in clv_plan_options: of stages gradients are reduced once a step */
} clv_plan_candidate;

/** Searches. Free with clv_plan_search_free.
 *  @return CLV_EINVAL for no base, devices out of range (1 to CLV_PLAN_MAX_RANKS) or other than base->mesh has, rules
 *          or sp in the base, an unknown preset, a latency limit without prefill or decode, more devices than the hosts
 *          have, a profile without a network link where devices need several hosts, and where no layout has a sequence
 *          for each rank of the data axis and a head for each of the model axis; CLV_ELIMIT if nothing fits
 *          (with every_layout: is ranked), with the least memory found and how many devices would do; errors of
 *          clv_plan_compile if no candidate compiles */
CLV_EXPERIMENTAL clv_status clv_plan_search_run(clv_plan_search **out, const clv_plan_search_options *options,
                                                clv_error *err);
/** Does nothing for NULL. */
CLV_EXPERIMENTAL void clv_plan_search_free(clv_plan_search *search);
/** Number of ranked candidates: of each layout the one with the most tokens/s that fits, best first; 0 for NULL. */
CLV_EXPERIMENTAL int clv_plan_search_count(const clv_plan_search *search);
/** Fills *out with ranked candidate i; set out->size first. CLV_EINVAL for an index out of range. */
CLV_EXPERIMENTAL clv_status clv_plan_search_at(const clv_plan_search *search, int i, clv_plan_candidate *out,
                                               clv_error *err);
/** Number of candidates on the front of time and memory: those that fit and of which no other one is faster and needs
 *  less memory; 0 for NULL. */
CLV_EXPERIMENTAL int clv_plan_search_front_count(const clv_plan_search *search);
/** Fills *out with candidate i of the front, fastest first; set out->size first. CLV_EINVAL for an index out of range.
 */
CLV_EXPERIMENTAL clv_status clv_plan_search_front_at(const clv_plan_search *search, int i, clv_plan_candidate *out,
                                                     clv_error *err);
/** Number of candidates that were priced; 0 for NULL. */
CLV_EXPERIMENTAL int clv_plan_search_priced_count(const clv_plan_search *search);
/** Fills *out with priced candidate i, layout by layout; set out->size first. With `exhaustive` these are all. Its
 *  `why` is "" where it is neither ranked nor on the front. CLV_EINVAL for an index out of range. */
CLV_EXPERIMENTAL clv_status clv_plan_search_priced_at(const clv_plan_search *search, int i, clv_plan_candidate *out,
                                                      clv_error *err);
/** Bytes of a rank that candidates may need; infinity for no limit, 0 for NULL. */
CLV_EXPERIMENTAL double clv_plan_search_memory_limit(const clv_plan_search *search);

/** @name Saved plans
 *  A file keeps a mesh with rules and options: a rules file (clv_axis_rules_parse) with more keys, each optional.
 *
 *    { "mesh": "data=8,model=8", "rules": [["batch", "data"], ...], "optimizer": ["data"],
 *      "accumulate": 64, "recompute": "full", "reshard_after_forward": "all",
 *      "hosts": 8, "ranks_per_host": 8, "schedule": "zero-bubble", "no_sync": true } @{ */

/** A mesh with rules and options. */
typedef struct clv_saved_plan {
    size_t size;   /**< the caller's: sizeof the struct, or 0 */
    bool has_mesh; /**< the file has a mesh; not read by clv_saved_plan_write */
    clv_mesh mesh;
    clv_axis_rules rules;
    int64_t accumulate; /**< microbatches; at least 1 */
    clv_recompute recompute;
    clv_reshard_after_forward reshard_after_forward;
    int64_t hosts, ranks_per_host; /**< that the mesh is for, as of clv_machine_with_hosts; 0: any */
    clv_plan_schedule schedule;    /**< of stages, one that runs */
    bool no_sync;
} clv_saved_plan;

/** Writes a file, which is replaced.
 *  @return CLV_EAXIS for rules with axes that the mesh does not have; CLV_EINVAL for damaged rules; CLV_ENOTFOUND for a
 *          folder that is missing */
CLV_EXPERIMENTAL clv_status clv_saved_plan_write(const clv_saved_plan *plan, const char *path, clv_error *err);
/** Reads a file; set out->size first.
 *  @param mesh  that the rules are for, instead of the file's; NULL: the file's, one rank if it has none
 *  @return CLV_EFORMAT naming the key; as clv_axis_rules_read */
CLV_EXPERIMENTAL clv_status clv_saved_plan_read(clv_saved_plan *out, const char *path, const clv_mesh *mesh,
                                                clv_error *err);
/** @} */

#ifdef __cplusplus
}
#endif
#endif
