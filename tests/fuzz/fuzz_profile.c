/* fuzz_profile.c - hardware profiles. */
#include "fuzz.h"
#include "cleave/machine.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    clv_machine *machine;
    if (clv_machine_parse(&machine, (const char *)data, size, "profile", NULL) != CLV_OK)
        return 0;
    clv_machine_rate(machine, "dot_general", CLV_F32, 1e6, 0);
    clv_machine_free(machine);
    return 0;
}
