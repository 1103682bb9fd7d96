/* reshard_step.c - the kinds of reshard steps (collectives, sends, local slice and mask): name, whether it
 * reduces, whether it moves bytes. */
#include "program/reshard_step.h"

static const struct {
    const char *name;
    bool reduces, moves;
} steps[] = {
#define CLV_STEP_ROW(code, name, reduces, moves) [code] = {name, reduces, moves},
    CLV_STEP_TABLE(CLV_STEP_ROW)
#undef CLV_STEP_ROW
};

const char *clv_step_name(clv_step_kind kind)
{
    return steps[kind].name;
}

bool clv_step_reduces(clv_step_kind kind)
{
    return steps[kind].reduces;
}

bool clv_step_moves(clv_step_kind kind)
{
    return steps[kind].moves;
}
