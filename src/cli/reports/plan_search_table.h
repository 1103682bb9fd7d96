/* plan_search_table.h - runs `cleave plan --search`: checks its options, searches, fills the table of ranked layouts,
 * writes --save. */
#ifndef CLEAVE_CLI_REPORTS_PLAN_SEARCH_REPORT_H
#define CLEAVE_CLI_REPORTS_PLAN_SEARCH_REPORT_H

#include "cli/command.h"
#include "cli/options/plan_target_options.h"

typedef struct clv_plan_search_args {
    bool search, matrix;
    int64_t devices;       /* 0: not given */
    const char *inventory; /* "8 hosts x 8"; NULL: not given, as the next ones */
    const char *cost, *save;
    double latency_limit; /* 0: not given */
    int64_t most;         /* 0: not given */
    bool runnable;
    clv_plan_schedule schedule; /* of --schedule, which plan has without --search, too; as the next one */
    int64_t virtual_stages;
} clv_plan_search_args;

#define CLV_PLAN_SEARCH_OPTIONS(a)                                                                                     \
    CLV_OPT_FLAG("--search", &(a)->search, "rank meshes, rules and options for --devices instead",                     \
                 .conflicts_with = "--show, -tp"),                                                                     \
        CLV_OPT_FLAG("--matrix", &(a)->matrix,                                                                         \
                     "TP degree x SP x data parallelism for --devices: which fit, how fast, and why",                  \
                     .conflicts_with = "--search, --show, -tp, --mesh, --rules, --sp, --block, --prefill, --decode, "  \
                                       "--latency-limit, --save, --cost"),                                             \
        CLV_OPT_INT("--devices", &(a)->devices, 1, CLV_PLAN_MAX_RANKS, "N", "ranks of --search and --matrix"),         \
        CLV_OPT_STRING("--inventory", &(a)->inventory, "HOSTS",                                                        \
                       "hosts and devices of each, \"8 hosts x 8\", instead of the profile's",                         \
                       .conflicts_with = "--devices"),                                                                 \
        CLV_OPT_REAL(                                                                                                  \
            "--latency-limit", &(a)->latency_limit, 1e-9, 1e6, "S",                                                    \
            "with --search: most tokens/s of batches (up to --batch, 4096) whose step takes at most S seconds",        \
            .conflicts_with = "--train, --forward, --grad"),                                                           \
        CLV_OPT_INT("--most", &(a)->most, 1, 100000, "N", "with --search: layouts that are listed (10)",               \
                    .conflicts_with = "--matrix", .advanced = true),                                                   \
        CLV_OPT_FLAG("--runnable", &(a)->runnable,                                                                     \
                     "with --search: leave out what is estimated, not priced by its program",                          \
                     .conflicts_with = "--matrix"),                                                                    \
        CLV_OPT_STRING("--cost", &(a)->cost, "PRICE",                                                                  \
                       "with --search: of a device, 2.5/h; adds the price of 1e9 tokens"),                             \
        CLV_OPT_STRING("--save", &(a)->save, "FILE",                                                                   \
                       "with --search or --rules auto: write or replace FILE: the mesh, rules and options (of the "    \
                       "first one), for --rules of plan, train and generate",                                          \
                       .use = CLV_OPTION_OUTPUT_FILE)

/* --inventory; text NULL: not given. */
clv_status clv_inventory_option_apply(clv_plan_option *option, const char *text, clv_error *err);
/* Fills how->base and how->rules: what the command line states is not searched. base, mesh: they live as long. */
clv_status clv_plan_search_fill_base(clv_plan_search_options *how, clv_plan_options *base,
                                     const clv_plan_option *option, clv_mesh *mesh, clv_error *err);
/* Writes what a candidate recomputes and gathers again, where it is not what is given: options, each after a blank.
 * Returns their length. */
size_t clv_plan_candidate_print_kept(char *out, size_t size, const clv_plan_candidate *candidate,
                                     clv_recompute recompute, clv_reshard_after_forward reshard);
/* Adds the options that give a candidate: columns in JSON, else those of the command line in one. */
void clv_plan_candidate_add_options(clv_table *t, const clv_plan_candidate *c, bool searched_batch, bool json);
/* Refuses options of --search without it, but for --save with --rules auto. */
clv_status clv_plan_search_check_args(const clv_plan_search_args *args, bool auto_rules, clv_error *err);
/* Searches and fills run->table. memory_limit 0: the machine's. */
clv_status clv_plan_search_run_to_table(clv_invocation *run, clv_plan_option *option, const clv_plan_search_args *args,
                                        int64_t memory_limit, clv_error *err);

#endif
