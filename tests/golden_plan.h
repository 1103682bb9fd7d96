/* golden_plan.h - training steps of models of tests/golden, planned, and what they move counted. */
#pragma once

#include <string.h>

#include "cleave/plan.h"
#include "golden_path.h"
#include "must.h"

/* A step of how.batch sequences of how.seq by a preset's rules; the rest of `how` as it is. */
static inline clv_program *golden_plan(const char *model, const char *mesh_text, const char *preset,
                                       clv_plan_options how)
{
    clv_error err = {0};
    clv_mesh mesh;
    clv_axis_rules rules;
    clv_program *program;
    must(clv_mesh_parse(&mesh, mesh_text, &err), &err);
    must(clv_axis_rules_preset(&rules, preset, &mesh, &err), &err);
    how.size = sizeof how;
    how.model = golden_path("%s", model);
    how.mode = CLV_PLAN_MODE_TRAIN;
    how.mesh = &mesh;
    how.rules = &rules;
    must(clv_plan_compile(&program, &how, &err), &err);
    return program;
}

/* How many collectives of a kind it has. */
static inline int collectives_of(const clv_program *program, const char *kind)
{
    clv_error err = {0};
    int n = 0;
    for (int i = 0; i < clv_program_collective_count(program); i++) {
        clv_collective c = {.size = sizeof c};
        must(clv_program_collective(program, i, &c, &err), &err);
        n += strcmp(c.kind, kind) == 0;
    }
    return n;
}
