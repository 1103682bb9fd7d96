#include "cli/whole_machine.h"

#include <stdlib.h>

#include "cleave/machine.h"
#include "cli/processes.h"
#include "cli/say.h"

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
    if (clv_processes_count() > 1 || clv_cpu_describe(&cpu, NULL) != CLV_OK)
        return 1;
    int64_t most = allowed();
    return cpu.cores < most ? cpu.cores : most;
}

int64_t clv_whole_machine(clv_mesh_option *option, int64_t *threads)
{
    bool nothing_given = option->tp == 0 && !option->text && *threads == 0;
    int64_t chosen = nothing_given ? usable() : 0;
    if (option->tp == 0)
        option->tp = 1;
    if (*threads == 0)
        *threads = chosen > 0 ? chosen : 1;
    return chosen;
}

void clv_whole_machine_note(int64_t chosen, const char *command)
{
    if (chosen > 1)
        clv_say("%s: on all %lld cores, as with -t %lld; -tp, --mesh or -t choose otherwise", command,
                (long long)chosen, (long long)chosen);
}
