/* document_index.h - index of document starts in a list of token files. */
#ifndef CLEAVE_TOKENS_DATA_DOCUMENT_INDEX_H
#define CLEAVE_TOKENS_DATA_DOCUMENT_INDEX_H

#include "tokens/data/token_file.h"

typedef struct clv_document_index {
    int64_t n;
    int64_t *first; /* [n + 1] of all ids the first of each, then their number; NULL: nobody asked */
} clv_document_index;

/* Of files that are joined. What is behind the last end of a file is a document, too.
 * @return CLV_EINVAL for a file that has no id behind its documents; CLV_EIO, CLV_ENOMEM */
clv_status clv_document_index_build(clv_document_index *out, const clv_token_file *files, int n, clv_error *err);
/* One of zeros is none. */
void clv_document_index_free(clv_document_index *documents);

#endif
