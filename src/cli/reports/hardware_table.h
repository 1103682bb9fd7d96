/* hardware_table.h - makes the table of built-in hardware profiles, for `cleave plan --hardware list`. */
#pragma once

#include "cleave/status.h"
#include "cli/output/table.h"

/* {"profiles": [{"name","memory","bf16_flops","bandwidth","host_link","network","host_ranks","software"}]}: bytes of a
 * rank; its peak flops/s in bf16; bytes/s of its memory, of collectives inside a host, and of those across hosts; ranks
 * of a host; names for --software. */
clv_status clv_hardware_table_new(clv_table **out, clv_error *err);
