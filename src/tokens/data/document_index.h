/* document_index.h - index of document starts in a list of token files. */
#ifndef CLEAVE_TOKENS_DATA_DOCUMENT_INDEX_H
#define CLEAVE_TOKENS_DATA_DOCUMENT_INDEX_H

#include "tokens/data/token_file.h"

typedef struct clv_document_index {
    int64_t n;
    int64_t *first; /* [n + 1] index of each document's first id among the joined files, then the number of ids */
} clv_document_index;

/* Ids after the last end of a file are a document, too.
 * @return CLV_EINVAL for a file without an end id; CLV_EIO, CLV_ENOMEM */
clv_status clv_document_index_build(clv_document_index *out, const clv_token_file *files, int n, clv_error *err);
/* Does nothing for a zeroed index. */
void clv_document_index_free(clv_document_index *documents);

#endif
