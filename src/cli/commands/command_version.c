/* command_version.c - the `cleave version` command: build configuration and CPU features. */
#include <jansson.h>

#include "cleave/machine.h"
#include "cli/command.h"

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
#endif
    return n;
}

clv_status command_version(clv_invocation *run, clv_error *err)
{
    const clv_option options[] = {
        CLV_FORMAT_OPTIONS(&run->format, "", "print JSON"),
    };
    const char *features[16];
    clv_cpu_info cpu = {.size = sizeof cpu};
    if (!CLV_PARSE(run, options))
        return CLV_OK;
    CLV_TRY(clv_cpu_get_info(&cpu, err));
    clv_table *t = run->table = clv_table_new(NULL);
    clv_table_text(t, "cleave", CLV_VERSION);
    clv_table_text(t, "products", cpu.products);
    clv_table_text(t, "jansson", jansson_version_str());
    clv_table_text_list(t, "cpu_features", features, cpu_features(features));
    clv_table_text(t, "kernels", cpu.kernels);
    clv_table_int(t, "cores", cpu.cores);
    clv_table_int(t, "ranks_at_full_speed", cpu.cores); /* more ranks than cores work, but slower */
    return CLV_OK;
}
