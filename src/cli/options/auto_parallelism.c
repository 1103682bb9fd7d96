/* auto_parallelism.c - chooses ranks and threads when none of -tp, --mesh, --threads is given: all cores of the
 * machine. */
#include "cli/options/auto_parallelism.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleave/machine.h"
#include "cli/job/job_processes.h"
#include "cli/output/messages.h"

/* What the user lets OpenMP programs have; INT64_MAX: all. Of a list, one a level of nesting, the first counts. */
static int64_t allowed(void)
{
    const char *text = getenv("OMP_NUM_THREADS");
    int64_t n = text ? strtoll(text, NULL, 10) : 0;
    return n > 0 ? n : INT64_MAX;
}

static int64_t usable(void)
{
    clv_cpu_info cpu = {.size = sizeof cpu};
    if (clv_processes_count() > 1 || clv_cpu_get_info(&cpu, NULL) != CLV_OK)
        return 1;
    int64_t most = allowed();
    return cpu.cores < most ? cpu.cores : most;
}

bool clv_auto_parallelism_applies(const clv_mesh_option *option, int64_t threads)
{
    return option->tp == 0 && !option->text && threads == 0 && usable() > 1;
}

clv_auto_parallelism clv_auto_parallelism_choose(int64_t cores, int64_t kv_heads)
{
    enum { MOST_RANKS = 8 };
    int64_t n = MOST_RANKS;
    while (cores % n != 0 || kv_heads % n != 0)
        n--;
    return (clv_auto_parallelism){.ranks = n, .threads = cores / n};
}

/* As the mesh of -tp is: over the axis model alone. */
static bool fits_tp(const char *rules)
{
    return !rules || strcmp(rules, "megatron") == 0 || strcmp(rules, "megatron-sp") == 0;
}

clv_auto_parallelism clv_auto_parallelism_fill(clv_mesh_option *option, int64_t *threads, int64_t kv_heads)
{
    clv_auto_parallelism chosen = {0};
    clv_mesh_option_read_rules_file(option);
    if (clv_auto_parallelism_applies(option, *threads))
        chosen = clv_auto_parallelism_choose(usable(), fits_tp(option->rules) ? kv_heads : 1);
    if (chosen.ranks > 1 && !option->rules && !option->whole_sequences)
        chosen.sp = option->sp = true;
    if (option->tp == 0)
        option->tp = chosen.ranks > 0 ? chosen.ranks : 1;
    if (*threads == 0)
        *threads = chosen.threads > 0 ? chosen.threads : 1;
    return chosen;
}

void clv_auto_parallelism_print(clv_auto_parallelism chosen, const char *command)
{
    char ranks[32] = "", threads[32] = "";
    if (chosen.ranks == 0)
        return;
    if (chosen.ranks > 1)
        snprintf(ranks, sizeof ranks, " -tp %lld", (long long)chosen.ranks);
    if (chosen.threads > 1)
        snprintf(threads, sizeof threads, " -t %lld", (long long)chosen.threads);
    clv_log("%s: on all %lld cores, as with%s%s%s; -tp, --mesh or -t choose otherwise", command,
            (long long)(chosen.ranks * chosen.threads), ranks, threads, chosen.sp ? " --sp" : "");
}
