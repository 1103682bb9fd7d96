/* fuzz_rules.c - files of logical axis rules. What parses lays out any tensor. */
#include <stdlib.h>

#include "cleave/rules.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const clv_logical_axis names[] = {CLV_BATCH, CLV_SEQ, CLV_HEADS, CLV_EMBED, CLV_EMBED_KERNEL, CLV_MLP};
    clv_mesh mesh;
    clv_axis_rules rules;
    clv_layout layout;
    if (clv_mesh_parse(&mesh, "data=2,model=3,X=4", NULL) == CLV_OK &&
        clv_axis_rules_parse(&rules, (const char *)data, size, &mesh, "rules", NULL) == CLV_OK &&
        clv_axis_rules_layout(&layout, &rules, &mesh, 6, names, NULL) != CLV_OK)
        abort();
    return 0;
}
