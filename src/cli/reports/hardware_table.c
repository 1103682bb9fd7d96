/* hardware_table.c - makes the table of built-in hardware profiles, for `cleave plan --hardware list`. */
#include "cli/reports/hardware_table.h"

#include "cleave/machine.h"

static clv_status add_profile(clv_table *t, const char *name, clv_error *err)
{
    clv_machine *machine;
    clv_machine_info info = {.size = sizeof info};
    CLV_TRY(clv_machine_open(&machine, name, NULL, err));
    clv_status status = clv_machine_get_info(machine, &info, err);
    if (status == CLV_OK) {
        clv_table_begin_row(t);
        clv_table_text(t, "name", name);
        clv_table_bytes(t, "memory", info.memory_bytes);
        clv_table_count(t, "bf16_flops", clv_machine_flops(machine, CLV_BF16));
        clv_table_count(t, "bandwidth", info.memory_bytes_per_s);
        clv_table_count(t, "host_link", info.host.bytes_per_s);
        clv_table_count(t, "network", info.network.bytes_per_s);
        clv_table_int(t, "host_ranks", info.ranks_per_host);
        clv_table_text(t, "software", info.all_software[0] ? info.all_software : "-");
    }
    clv_machine_free(machine);
    return status;
}

clv_status clv_hardware_table_new(clv_table **out, clv_error *err)
{
    const char *name;
    *out = clv_table_new("profiles");
    for (int i = 0; (name = clv_machine_builtin_name(i)) != NULL; i++)
        CLV_TRY(add_profile(*out, name, err));
    return CLV_OK;
}
