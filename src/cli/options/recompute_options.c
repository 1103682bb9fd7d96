/* recompute_options.c - --recompute none|selective|full and --reshard-after-forward: option rows. */
#include "cli/options/recompute_options.h"

#include "cleave/status.h"

clv_status clv_recompute_option_read(clv_recompute *out, const clv_recompute_option *option, clv_error *err)
{
    clv_recompute mode = option->activations ? CLV_RECOMPUTE_SELECTIVE : CLV_RECOMPUTE_NONE;
    if (option->mode)
        CLV_TRY(clv_recompute_parse(&mode, option->mode, err));
    *out = mode;
    return CLV_OK;
}
