/* plan_search_options_text.c - writes the options of a candidate of `cleave plan --search`: columns of JSON, or as they
 * stand on a command line. */
#include <stdio.h>

#include "cleave/plan_search.h"
#include "cli/reports/plan_search_table.h"

size_t clv_plan_candidate_print_kept(char *out, size_t size, const clv_plan_candidate *c, clv_recompute recompute,
                                     clv_reshard_after_forward reshard)
{
    static const char *const options[] = {[CLV_RESHARD_WEIGHTS] = "--reshard-weights",
                                          [CLV_RESHARD_ALL] = "--reshard-after-forward",
                                          [CLV_RESHARD_NONE] = "--keep-gathered"};
    size_t n = 0;
    out[0] = '\0';
    if (c->recompute != recompute)
        n += (size_t)snprintf(out, size, " --recompute %s", clv_recompute_name(c->recompute));
    if (c->reshard_after_forward != reshard)
        n += (size_t)snprintf(out + n, size - n, " %s", options[c->reshard_after_forward]);
    return n;
}

void clv_plan_candidate_add_options(clv_table *t, const clv_plan_candidate *c, bool searched_batch, bool json)
{
    char text[160] = "";
    size_t size = sizeof text, n = 0;
    if (json) {
        clv_table_int(t, "batch", c->batch);
        clv_table_int(t, "accumulate", c->accumulate);
        clv_table_text(t, "recompute", clv_recompute_name(c->recompute));
        clv_table_text(t, "reshard_after_forward", clv_reshard_after_forward_name(c->reshard_after_forward));
        clv_table_text(t, "schedule", c->schedule ? clv_plan_schedule_name(c->schedule) : "none");
        clv_table_int(t, "virtual_stages", c->virtual_stages > 1 ? c->virtual_stages : 1);
        clv_table_bool(t, "no_sync", c->no_sync);
        return;
    }
    if (searched_batch)
        n += (size_t)snprintf(text + n, size - n, " --batch %lld", (long long)c->batch);
    if (c->accumulate > 1 || c->schedule) /* with stages the default is another one */
        n += (size_t)snprintf(text + n, size - n, " --accumulate %lld", (long long)c->accumulate);
    if (c->no_sync && c->can_run)
        n += (size_t)snprintf(text + n, size - n, " --no-sync");
    n += clv_plan_candidate_print_kept(text + n, size - n, c, CLV_RECOMPUTE_NONE, CLV_RESHARD_WEIGHTS);
    if (c->virtual_stages > 1)
        n += (size_t)snprintf(text + n, size - n, " --virtual-stages %lld", (long long)c->virtual_stages);
    else if (c->schedule && c->schedule != CLV_SCHEDULE_1F1B)
        n += (size_t)snprintf(text + n, size - n, " --schedule %s", clv_plan_schedule_name(c->schedule));
    clv_table_text(t, "options", n > 0 ? text + 1 : "");
}
