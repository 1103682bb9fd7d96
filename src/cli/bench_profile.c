/* bench_profile.c - cleave bench profile: what this host can do, for plan --hardware. */
#include "cleave/machine.h"
#include "cleave/status.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/output_option.h"
#include "cli/progress.h"
#include "cli/table.h"

typedef struct profile_args {
    const char *out;
    bool json;
} profile_args;

static int parse(profile_args *a, int argc, char **argv)
{
    const clv_option options[] = {
        CLV_OUT_OPTION(&a->out, "FILE", CLV_OPTION_WRITES, false, "where the profile goes (profile.json)"),
        CLV_JSON_OPTION_BESIDE(&a->json, NULL, "print the summary as JSON"),
    };
    return clv_options_parse(options, sizeof options / sizeof options[0], argc, argv);
}

static int report(const profile_args *a, const clv_machine *machine)
{
    clv_machine_info info = {.size = sizeof info};
    clv_table *t = clv_table_new(NULL);
    clv_machine_describe(machine, &info, NULL);
    clv_table_text(t, "profile", a->out);
    clv_table_int(t, "ranks", info.ranks_per_host);
    clv_table_real(t, "f32_gflops_per_rank", 1e-9 * clv_machine_flops(machine, CLV_F32));
    clv_table_real(t, "bf16_gflops_per_rank", 1e-9 * clv_machine_flops(machine, CLV_BF16));
    clv_table_real(t, "memory_gb_per_s", 1e-9 * info.memory_bytes_per_s);
    clv_table_real(t, "collective_us", 1e6 * info.host.alpha_s);
    clv_table_real(t, "collective_gb_per_s", 1e-9 * info.host.bytes_per_s);
    clv_table_real(t, "instruction_us", 1e6 * info.instruction_s);
    return clv_table_finish(t, a->json);
}

int bench_profile(int argc, char **argv)
{
    profile_args a = {.out = "profile.json"};
    clv_error err = {0};
    int code = parse(&a, argc, argv);
    if (code != CLV_OPTIONS_RUN)
        return code;
    clv_machine *machine = NULL;
    clv_counted_progress progress = {.what = "profile"};
    const clv_measure_options options = {
        .size = sizeof options, .progress = clv_counted_progress_show, .progress_arg = &progress};
    clv_status status = clv_machine_measure(&machine, &options, &err);
    clv_counted_progress_end(&progress);
    if (status == CLV_OK)
        status = clv_machine_write(machine, a.out, &err);
    code = status == CLV_OK ? report(&a, machine) : clv_command_report(argv[0], &err);
    clv_machine_free(machine);
    return code;
}
