/* command_version.c - the `cleave version` command: build configuration and CPU features. */
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include "cleave/machine.h"
#include "cli/command.h"
#include "cli/options/output_options.h"
#include "cli/output/table.h"
#include "cli/parser/option_parser.h"

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
    clv_table_format form = {0};
    const clv_option options[] = {
        CLV_FORMAT_OPTIONS(&form, "", "print JSON"),
    };
    int code = clv_options_parse(options, sizeof options / sizeof options[0], argc, argv);
    const char *features[16];
    clv_cpu_info cpu = {.size = sizeof cpu};

    if (code != CLV_OPTIONS_RUN)
        return code;

    clv_table *t = clv_table_new(NULL);
    clv_table_text(t, "cleave", CLV_VERSION);
    clv_cpu_get_info(&cpu, NULL);
    clv_table_text(t, "products", cpu.products);
    clv_table_text(t, "jansson", jansson_version_str());
    clv_table_text_list(t, "cpu_features", features, cpu_features(features));
    clv_table_text(t, "kernels", cpu.kernels);
    clv_table_int(t, "cores", cpu.cores);
    /* More ranks than cores work too, only slower: a rank is a thread. */
    clv_table_int(t, "ranks_at_full_speed", cpu.cores);
    return clv_table_finish(t, &form);
}
