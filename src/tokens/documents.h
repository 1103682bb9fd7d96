/* documents.h - where the documents of token files begin. */
#ifndef CLEAVE_TOKENS_DOCUMENTS_H
#define CLEAVE_TOKENS_DOCUMENTS_H

#include "tokens/token_file.h"

typedef struct clv_documents {
    int64_t n;
    int64_t *first; /* [n + 1] of all ids the first of each, then their number; NULL: nobody asked */
} clv_documents;

/* Of files that are joined. What is behind the last end of a file is a document, too.
 * @return CLV_EINVAL for a file that has no id behind its documents; CLV_EIO, CLV_ENOMEM */
clv_status clv_documents_find(clv_documents *out, const clv_token_file *files, int n, clv_error *err);
/* One of zeros is none. */
void clv_documents_free(clv_documents *documents);

#endif
