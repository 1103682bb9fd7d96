/* split_behavior.c - see split_behavior.h. */
#include "tokens/split_behavior.h"

#include <string.h>

#include "base/error.h"

clv_status clv_reader_behavior(clv_split_behavior *out, clv_json_need need, const clv_token_reader *r,
                               const json_t *json)
{
    static const char *const names[] = {"Isolated", "Removed", "Contiguous", "MergedWithPrevious", "MergedWithNext"};
    const char *name = NULL;
    if (need == CLV_JSON_OPTIONAL && !json_object_get(json, "behavior"))
        return CLV_OK;
    CLV_TRY(clv_json_string(&name, json, "behavior", CLV_JSON_REQUIRED, r->where, r->err));
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(names[i], name) == 0) {
            *out = (clv_split_behavior)i;
            return CLV_OK;
        }
    return clv_reader_unsupported(r, "the behavior", name,
                                  "Isolated, Removed, Contiguous, MergedWithPrevious, MergedWithNext");
}

/* Whether a piece ends between two segments. */
static bool is_cut(clv_split_behavior behavior, bool before, bool behind)
{
    switch (behavior) {
    case CLV_SPLIT_CONTIGUOUS:
        return before != behind;
    case CLV_SPLIT_MERGED_WITH_PREVIOUS:
        return before || !behind;
    case CLV_SPLIT_MERGED_WITH_NEXT:
        return !before || behind;
    default:
        return true;
    }
}

clv_status clv_cut_end(clv_cutter *c, clv_error *err)
{
    bool removed = c->behavior == CLV_SPLIT_REMOVED && c->match;
    return removed ? CLV_OK : clv_pieces_add(c->out, c->piece, c->begin, c->end, err);
}

clv_status clv_cut(clv_cutter *c, size_t end, bool match, clv_error *err)
{
    if (c->any && is_cut(c->behavior, c->match, match)) {
        CLV_TRY(clv_cut_end(c, err));
        c->begin = c->end;
    }
    c->end = end;
    c->match = match;
    c->any = true;
    return CLV_OK;
}
