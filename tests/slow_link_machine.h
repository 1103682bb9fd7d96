/* slow_link_machine.h - machines on which it pays to cut every step that can be cut, or to send beside every op. */
#pragma once

#include <string.h>

#include "cleave/machine.h"
#include "must.h"

#define SLOW_RANKS                                                                                                     \
    "\"memory_bytes\": 1e9, \"flops_per_s\": {\"f32\": 1e7}, \"memory_bytes_per_s\": 1e9, \"efficiency\": 1,"          \
    "\"instruction_s\": 1e-9"

/* Free with clv_machine_free. */
static inline clv_machine *must_machine(const char *profile)
{
    clv_error err = {0};
    clv_machine *machine;
    must(clv_machine_parse(&machine, profile, strlen(profile), "a test's machine", &err), &err);
    return machine;
}

/* Cores as by default, whose collectives run beside ops. */
static inline clv_machine *must_overlapping_cores(void)
{
    return must_machine("{\"name\": \"cores\", \"ranks_per_host\": 64, \"hosts\": 1, \"memory_bytes\": 1e12,"
                        "\"flops_per_s\": {\"f32\": 1e11}, \"memory_bytes_per_s\": 2e10, \"efficiency\": 1,"
                        "\"instruction_s\": 0, \"host\": {\"alpha_s\": 5e-6, \"bytes_per_s\": 4e9}}");
}

static inline clv_machine *must_slow_links(void)
{
    return must_machine("{\"name\": \"slow links\", \"ranks_per_host\": 8, \"hosts\": 1," SLOW_RANKS
                        ", \"host\": {\"alpha_s\": 1e-9, \"bytes_per_s\": 2e6}}");
}

/* Ops take so long that they hide what is sent beside them. */
static inline clv_machine *must_slow_ops(void)
{
    return must_machine("{\"name\": \"slow ops\", \"ranks_per_host\": 64, \"hosts\": 1, \"memory_bytes\": 1e9,"
                        " \"flops_per_s\": {\"f32\": 1e5, \"f64\": 1e5, \"bf16\": 1e5}, \"memory_bytes_per_s\": 1e9,"
                        " \"efficiency\": 1, \"instruction_s\": 1e-9,"
                        " \"host\": {\"alpha_s\": 1e-9, \"bytes_per_s\": 1e7}}");
}

/* Two ranks a host. */
static inline clv_machine *must_slow_network(void)
{
    return must_machine("{\"name\": \"slow network\", \"ranks_per_host\": 2, \"hosts\": 2," SLOW_RANKS
                        ", \"host\": {\"alpha_s\": 1e-9, \"bytes_per_s\": 2e7},"
                        " \"network\": {\"alpha_s\": 1e-9, \"bytes_per_s\": 2e6}}");
}
