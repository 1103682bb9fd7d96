/* fuzz_profile.c - hardware profiles. */
#include "fuzz.h"
#include "program/profile.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static clv_profile profile;
    if (clv_profile_parse(&profile, (const char *)data, size, "profile", NULL) == CLV_OK)
        clv_rate_at(&profile.busy, "dot_general", CLV_F32, 1e6);
    return 0;
}
