/* delimiter_behavior.h - what happens to a matched delimiter (`tokenizers`' SplitDelimiterBehavior). */
#ifndef CLEAVE_TOKENS_PRE_TOKENIZERS_DELIMITER_BEHAVIOR_H
#define CLEAVE_TOKENS_PRE_TOKENIZERS_DELIMITER_BEHAVIOR_H

#include "tokens/tokenizer/tokenizer_components.h"

typedef enum clv_delimiter_behavior {
    CLV_SPLIT_ISOLATED,
    CLV_SPLIT_REMOVED,
    CLV_SPLIT_CONTIGUOUS,
    CLV_SPLIT_MERGED_WITH_PREVIOUS,
    CLV_SPLIT_MERGED_WITH_NEXT
} clv_delimiter_behavior;

/* json's "behavior"; *out stays when it may be absent and is. */
clv_status clv_component_read_behavior(clv_delimiter_behavior *out, clv_json_need need, const clv_component_reader *r,
                                       const json_t *json);

/* A piece being cut up; the first three are set, the others zero at first. */
typedef struct clv_splitter {
    clv_pre_tokens *out;
    const clv_pre_token *piece;
    clv_delimiter_behavior behavior;
    size_t begin, end; /* of what is cut next */
    bool any, match;   /* the last segment's */
} clv_splitter;

/* The next segment of the piece, up to `end`: a match or what is between matches. */
clv_status clv_splitter_add(clv_splitter *c, size_t end, bool match, clv_error *err);
/* Behind the last segment. */
clv_status clv_splitter_finish(clv_splitter *c, clv_error *err);

#endif
