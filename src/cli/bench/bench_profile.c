/* bench_profile.c - the `cleave bench profile` benchmark: measures this machine and writes a hardware profile for
 * --hardware.
 */
#include "cli/bench/measured_machine.h"
#include "cli/command.h"

static void report(clv_table *t, const char *path, const clv_machine *machine)
{
    clv_machine_info info = {.size = sizeof info};
    clv_machine_get_info(machine, &info, NULL);
    clv_table_text(t, "profile", path);
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
}

/* Only the first process writes. */
static clv_status measure(clv_machine **out, const char *path, int64_t ranks, int blocks, const clv_comm_option *comm,
                          clv_error *err)
{
    clv_status status = clv_measured_machine_new(out, ranks, blocks, comm, err);
    if (status == CLV_OK && clv_processes_is_first())
        status = clv_machine_write(*out, path, err);
    return clv_processes_agree(status, err);
}

clv_status bench_profile(clv_invocation *run, clv_error *err)
{
    const char *out = "profile.json";
    int64_t ranks = 0, blocks = 0;
    clv_comm_option comm = {0};
    clv_machine *machine = NULL;
    const clv_option options[] = {
        CLV_OUT_OPTION(&out, "FILE", FILE, "the profile (profile.json)"),
        CLV_OPT_INT("--ranks", &ranks, 0, 4096, "N",
                    "ranks of a host that run at once; 0: one a core, or a process (0)"),
        CLV_OPT_INT("--blocks", &blocks, 0, 11, "N",
                    "blocks to trace: of seven in f32 the smallest first, then four in bf16; 0: all (0)"),
        CLV_COMM_OPTIONS(&comm),
        CLV_FORMAT_OPTIONS(&run->format, "", "print the summary as JSON"),
    };
    if (!CLV_PARSE(run, options))
        return CLV_OK;
    clv_status status = measure(&machine, out, ranks, (int)blocks, &comm, err);
    run->table = clv_table_new(NULL);
    if (status == CLV_OK)
        report(run->table, out, machine);
    clv_machine_free(machine);
    return status;
}
