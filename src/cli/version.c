/* version.c - cleave version: what this binary is made of and what the machine offers it. */
#include <jansson.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

#include "cli/command.h"
#include "cli/options.h"
#include "cli/table.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/isa.h"

/* Cores that this process may run on (a container or taskset may allow fewer than the machine has). */
static int64_t usable_cores(void)
{
    cpu_set_t set;

    if (sched_getaffinity(0, sizeof set, &set) == 0)
        return CPU_COUNT(&set);
    return sysconf(_SC_NPROCESSORS_ONLN);
}

static int cpu_features(const char *out[16])
{
    int n = 0;
#if defined(__x86_64__)
#define FEATURE(name)                                                                                                  \
    if (__builtin_cpu_supports(name))                                                                                  \
    out[n++] = name
    __builtin_cpu_init();
    FEATURE("sse4.2");
    FEATURE("avx2");
    FEATURE("fma");
    FEATURE("avx512f");
    FEATURE("avx512bw");
    FEATURE("avx512vl");
    FEATURE("avx512vnni");
    FEATURE("avx512bf16");
#undef FEATURE
#else
    (void)out;
#endif
    return n;
}

int command_version(int argc, char **argv)
{
    bool json = false;
    const clv_option options[] = {
        {.names = "--json", .kind = CLV_OPTION_FLAG, .out = &json, .help = "print JSON"},
    };
    int code = clv_options_parse(options, sizeof options / sizeof options[0], argc, argv);
    const char *features[16];
    char onednn[32] = "";

    if (code != CLV_OPTIONS_RUN)
        return code;

    clv_table *t = clv_table_new(NULL);
    clv_table_text(t, "cleave", CLV_VERSION);
    clv_gemm_library(onednn, sizeof onednn);
    clv_table_text(t, "onednn", onednn);
    clv_table_text(t, "jansson", jansson_version_str());
    clv_table_texts(t, "cpu_features", features, cpu_features(features));
    clv_table_text(t, "kernels", clv_isa_text(clv_cpu_isa()));
    clv_table_int(t, "cores", usable_cores());
    /* More ranks than cores work too, only slower: a rank is a thread. */
    clv_table_int(t, "ranks_at_full_speed", usable_cores());
    return clv_table_finish(t, json);
}
