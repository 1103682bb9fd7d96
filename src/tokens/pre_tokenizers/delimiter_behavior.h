/* delimiter_behavior.h - what happens to a matched delimiter (`tokenizers`' SplitDelimiterBehavior). */
#pragma once

#include "tokens/tokenizer/tokenizer_components.h"

typedef enum clv_delimiter_behavior {
    CLV_SPLIT_ISOLATED,
    CLV_SPLIT_REMOVED,
    CLV_SPLIT_CONTIGUOUS,
    CLV_SPLIT_MERGED_WITH_PREVIOUS,
    CLV_SPLIT_MERGED_WITH_NEXT
} clv_delimiter_behavior;

/* Reads "behavior"; *out stays if it is optional and absent. */
clv_status clv_component_read_behavior(clv_delimiter_behavior *out, clv_json_need need, const clv_component_reader *r,
                                       const json_t *json);

/* State of splitting a pre-token; set the first three fields, zero the others. */
typedef struct clv_splitter {
    clv_pre_tokens *out;
    const clv_pre_token *pre_token;
    clv_delimiter_behavior behavior;
    size_t begin, end; /* of the pre-token in progress */
    bool any, match;   /* of the last segment */
} clv_splitter;

/* Adds the next segment, up to `end`: a match, or text between matches. */
clv_status clv_splitter_add(clv_splitter *c, size_t end, bool match, clv_error *err);
/* After the last segment. */
clv_status clv_splitter_finish(clv_splitter *c, clv_error *err);
