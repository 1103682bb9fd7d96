/* slow_links.h - a machine on which it pays to cut every step that can be cut. */
#ifndef CLEAVE_TESTS_SLOW_LINKS_H
#define CLEAVE_TESTS_SLOW_LINKS_H

#include "cleave/machine.h"
#include "must.h"

/* Free with clv_machine_free. */
static inline clv_machine *must_slow_links(void)
{
    static const char profile[] =
        "{\"name\": \"slow links\", \"ranks_per_host\": 8, \"hosts\": 1, \"memory_bytes\": 1e9,"
        " \"flops_per_s\": {\"f32\": 1e7}, \"memory_bytes_per_s\": 1e9, \"efficiency\": 1, \"instruction_s\": 1e-9,"
        " \"host\": {\"alpha_s\": 1e-9, \"bytes_per_s\": 2e6}}";
    clv_error err = {0};
    clv_machine *machine;
    must(clv_machine_parse(&machine, profile, sizeof profile - 1, "slow links", &err), &err);
    return machine;
}

#endif
