/* unfit.c - nothing fits: the least memory or time that a plan search found, and how many devices would do. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "cleave/text.h"
#include "models/plan/search/search.h"

static const clv_search_candidate *find_smallest(const clv_plan_search *s)
{
    const clv_search_candidate *least = NULL;
    for (int i = 0; i < s->n_layouts; i++) {
        const clv_search_candidate *c = s->layouts[i].n > 0 ? clv_search_least_memory(&s->layouts[i]) : NULL;
        least = c && (!least || c->price.memory < least->price.memory) ? c : least;
    }
    return least;
}

/* Of those within the limit of memory, one of which there is, the one with the least latency. */
static const clv_search_candidate *find_fastest(const clv_plan_search *s)
{
    const clv_search_candidate *fastest = NULL;
    for (int i = 0; i < s->n_layouts; i++)
        for (int k = 0; k < s->layouts[i].n; k++) {
            const clv_search_candidate *c = &s->layouts[i].item[k];
            if (c->price.memory <= s->memory_limit && (!fastest || c->price.seconds < fastest->price.seconds))
                fastest = c;
        }
    return fastest;
}

/* The smallest number of devices, doubled again and again, at which a candidate fits; 0: none up to 1024 times. */
static int64_t find_enough_devices(const clv_plan_search *s)
{
    if (!s->space.programs)
        return 0;
    for (int64_t devices = 2 * s->space.devices; devices <= CLV_PLAN_MAX_RANKS && devices <= 1024 * s->space.devices;
         devices *= 2) {
        clv_plan_search more = {.base = s->base,
                                .space = s->space,
                                .memory_limit = s->memory_limit,
                                .threads = s->threads,
                                .n_variants = s->n_variants};
        memcpy(more.variants, s->variants, sizeof more.variants);
        more.space.devices = devices;
        more.space.both_axis_orders = false;
        more.space.base = &more.base;
        more.space.planned = false;
        if (clv_search_list_layouts(&more, NULL) != CLV_OK)
            return 0;
        clv_search_run_all(&more, clv_search_corners, NULL, more.n_layouts);
        const clv_search_candidate *least = find_smallest(&more);
        bool enough = least && least->price.memory <= s->memory_limit;
        for (int i = 0; i < more.n_layouts; i++)
            free(more.layouts[i].item);
        free(more.layouts);
        free(more.ranked);
        if (enough)
            return devices;
    }
    return 0;
}

clv_status clv_search_fail_unfit(clv_plan_search *s, clv_error *err)
{
    const clv_search_candidate *least = find_smallest(s);
    char needs[CLV_QUANTITY_TEXT], limit[CLV_QUANTITY_TEXT], seconds[CLV_QUANTITY_TEXT], mesh[CLV_MESH_TEXT],
        enough[96] = "";
    for (int i = 0; !least && i < s->n_layouts; i++)
        if (s->layouts[i].status != CLV_OK)
            return clv_fail(err, s->layouts[i].err.code, "%s", s->layouts[i].err.message);
    if (!least)
        return clv_fail(err, CLV_EINVAL, "no candidate compiles");
    const clv_searched_layout *l = &s->layouts[least->layout];
    clv_print_bytes(needs, sizeof needs, least->price.memory);
    clv_print_bytes(limit, sizeof limit, s->memory_limit);
    clv_mesh_print(mesh, sizeof mesh, &l->at.mesh);
    if (s->latency_limit > 0 && least->price.memory <= s->memory_limit) {
        const clv_search_candidate *fastest = find_fastest(s);
        clv_print_seconds(seconds, sizeof seconds, fastest->price.seconds);
        clv_mesh_print(mesh, sizeof mesh, &s->layouts[fastest->layout].at.mesh);
        return clv_fail(err, CLV_ELIMIT, "no candidate takes at most %g s in %s; the least is %s: %s, %s, batch %lld",
                        s->latency_limit, limit, seconds, mesh, s->layouts[fastest->layout].at.rules.name,
                        (long long)fastest->batch);
    }
    const int64_t devices = s->base.mesh ? 0 : find_enough_devices(s);
    if (devices > 0)
        snprintf(enough, sizeof enough, "; %lld devices would do", (long long)devices);
    else if (l->at.stages > 1) /* the search has them by time */
        snprintf(enough, sizeof enough, "; plan without --search gives stages layers by memory, too");
    return clv_fail(
        err, CLV_ELIMIT,
        "nothing fits %s a rank on %lld device%s; the least is %s: %s, %s, recompute %s, %lld microbatch%s%s", limit,
        (long long)s->space.devices, s->space.devices == 1 ? "" : "s", needs, mesh,
        l->at.rules.name[0] ? l->at.rules.name : "no rules", clv_recompute_name(s->variants[least->variant].recompute),
        (long long)least->accumulate, least->accumulate == 1 ? "" : "es", enough);
}
