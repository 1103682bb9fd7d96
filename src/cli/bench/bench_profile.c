/* bench_profile.c - the `cleave bench profile` benchmark: measures this machine and writes a hardware profile for
 * --hardware.
 */
#include "cleave/machine.h"
#include "cleave/status.h"
#include "cli/command.h"
#include "cli/job/job_processes.h"
#include "cli/options/output_options.h"
#include "cli/output/progress.h"
#include "cli/output/table.h"
#include "cli/parser/option_parser.h"

typedef struct profile_args {
    const char *out;
    clv_comm_option comm;
    int64_t blocks;
    clv_table_format form;
} profile_args;

static int parse(profile_args *a, int argc, char **argv)
{
    const clv_option options[] = {
        CLV_OUT_OPTION(&a->out, "FILE", NULL, CLV_OPTION_OUTPUT_FILE, false, "where the profile goes (profile.json)"),
        {.names = "--blocks",
         .kind = CLV_OPTION_INT,
         .out = &a->blocks,
         .min = 0,
         .max = 7,
         .value = "N",
         .help = "blocks that are traced, the smallest first; 0: all seven, the last in bf16 (0)"},
        CLV_COMM_OPTIONS(&a->comm),
        CLV_FORMAT_OPTIONS(&a->form, "", "print the summary as JSON"),
    };
    return clv_options_parse(options, sizeof options / sizeof options[0], argc, argv);
}

static int report(const profile_args *a, const clv_machine *machine)
{
    clv_machine_info info = {.size = sizeof info};
    clv_table *t = clv_table_new(NULL);
    clv_machine_get_info(machine, &info, NULL);
    clv_table_text(t, "profile", a->out);
    clv_table_int(t, "ranks", info.ranks_per_host);
    clv_table_int(t, "hosts", info.hosts);
    clv_table_real(t, "f32_gflops_per_rank", 1e-9 * clv_machine_flops(machine, CLV_F32));
    clv_table_real(t, "bf16_gflops_per_rank", 1e-9 * clv_machine_flops(machine, CLV_BF16));
    clv_table_real(t, "memory_gb_per_s", 1e-9 * info.memory_bytes_per_s);
    clv_table_real(t, "collective_us", 1e6 * info.host.alpha_s);
    clv_table_real(t, "collective_gb_per_s", 1e-9 * info.host.bytes_per_s);
    if (info.hosts > 1) {
        clv_table_real(t, "network_us", 1e6 * info.network.alpha_s);
        clv_table_real(t, "network_mb_per_s", 1e-6 * info.network.bytes_per_s);
    }
    clv_table_real(t, "instruction_us", 1e6 * info.instruction_s);
    return clv_table_finish(t, &a->form);
}

/* The first process alone writes: its figures count. */
static clv_status measure(clv_machine **out, const profile_args *a, clv_error *err)
{
    clv_counted_progress progress = {.what = "profile"};
    clv_measure_options options = {.size = sizeof options,
                                   .blocks = (int)a->blocks,
                                   .progress = clv_counted_progress_show,
                                   .progress_arg = &progress};
    CLV_TRY(clv_processes_job(&options.job, &a->comm, err));
    clv_status status = clv_machine_measure(out, &options, err);
    clv_counted_progress_end(&progress);
    if (status == CLV_OK && clv_processes_is_first())
        status = clv_machine_write(*out, a->out, err);
    return clv_processes_agree(status, err);
}

int bench_profile(int argc, char **argv)
{
    profile_args a = {.out = "profile.json"};
    clv_error err = {0};
    int code = parse(&a, argc, argv);
    if (code != CLV_OPTIONS_RUN)
        return code;
    clv_machine *machine = NULL;
    clv_status status = measure(&machine, &a, &err);
    code = status == CLV_OK ? report(&a, machine) : clv_command_print_error(argv[0], &err);
    clv_machine_free(machine);
    return code;
}
