/* split_behavior.h - pieces of a text by the matches in it, as the `tokenizers` library's SplitDelimiterBehavior. */
#ifndef CLEAVE_TOKENS_SPLIT_BEHAVIOR_H
#define CLEAVE_TOKENS_SPLIT_BEHAVIOR_H

#include "tokens/tokenizer_parts.h"

typedef enum clv_split_behavior {
    CLV_SPLIT_ISOLATED,
    CLV_SPLIT_REMOVED,
    CLV_SPLIT_CONTIGUOUS,
    CLV_SPLIT_MERGED_WITH_PREVIOUS,
    CLV_SPLIT_MERGED_WITH_NEXT
} clv_split_behavior;

/* json's "behavior"; *out stays when it may be absent and is. */
clv_status clv_reader_behavior(clv_split_behavior *out, clv_json_need need, const clv_token_reader *r,
                               const json_t *json);

/* A piece being cut up; the first three are set, the others zero at first. */
typedef struct clv_cutter {
    clv_pieces *out;
    const clv_piece *piece;
    clv_split_behavior behavior;
    size_t begin, end; /* of what is cut next */
    bool any, match;   /* the last segment's */
} clv_cutter;

/* The next segment of the piece, up to `end`: a match or what is between matches. */
clv_status clv_cut(clv_cutter *c, size_t end, bool match, clv_error *err);
/* Behind the last segment. */
clv_status clv_cut_end(clv_cutter *c, clv_error *err);

#endif
