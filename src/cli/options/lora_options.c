/* lora_options.c - --lora-rank, --lora-alpha, --lora-dropout and --lora-targets. */
#include "cli/options/lora_options.h"

#include "cleave/status.h"

clv_status clv_lora_option_read(const clv_lora_options **out, clv_lora_options *taken, const clv_lora_option *o,
                                clv_error *err)
{
    *out = NULL;
    if (o->rank == 0 && (o->alpha != 0 || o->targets || o->dropout != 0))
        return clv_fail(err, CLV_EINVAL, "%s has no effect without --lora-rank",
                        o->targets      ? "--lora-targets"
                        : o->alpha != 0 ? "--lora-alpha"
                                        : "--lora-dropout");
    *taken = (clv_lora_options){
        .size = sizeof *taken, .rank = o->rank, .alpha = o->alpha, .targets = o->targets, .dropout = o->dropout};
    if (o->rank > 0)
        *out = taken;
    return CLV_OK;
}
