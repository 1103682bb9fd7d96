/* delimiter_behavior.c - splits a text at matches: isolated, removed, contiguous, merged with previous or next. */
#include "tokens/pre_tokenizers/delimiter_behavior.h"

clv_status clv_component_read_behavior(clv_delimiter_behavior *out, clv_json_need need, const clv_component_reader *r,
                                       const json_t *json)
{
    static const char *const names[] = {"Isolated", "Removed", "Contiguous", "MergedWithPrevious", "MergedWithNext"};
    const char *name = NULL;
    if (need == CLV_JSON_OPTIONAL && !json_object_get(json, "behavior"))
        return CLV_OK;
    CLV_TRY(clv_json_get_string(&name, json, "behavior", CLV_JSON_REQUIRED, r->where, r->err));
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(names[i], name) == 0) {
            *out = (clv_delimiter_behavior)i;
            return CLV_OK;
        }
    return clv_component_fail_unsupported(r, "the behavior", name,
                                          "Isolated, Removed, Contiguous, MergedWithPrevious, MergedWithNext");
}

/* Whether a pre-token ends between two segments. */
static bool is_boundary(clv_delimiter_behavior behavior, bool before, bool behind)
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

clv_status clv_splitter_finish(clv_splitter *c, clv_error *err)
{
    bool removed = c->behavior == CLV_SPLIT_REMOVED && c->match;
    return removed ? CLV_OK : clv_pre_tokens_add(c->out, c->pre_token, c->begin, c->end, err);
}

clv_status clv_splitter_add(clv_splitter *c, size_t end, bool match, clv_error *err)
{
    if (c->any && is_boundary(c->behavior, c->match, match)) {
        CLV_TRY(clv_splitter_finish(c, err));
        c->begin = c->end;
    }
    c->end = end;
    c->match = match;
    c->any = true;
    return CLV_OK;
}
