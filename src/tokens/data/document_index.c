/* document_index.c - builds the index of document starts in token files by scanning for the end-of-document id. */
#include "tokens/data/token_file.h"

#include <stdlib.h>

#include "base/error.h"
#include "base/memory/grow.h"

enum { BLOCK = 1 << 14 /* ids */ };

/* Adds a document that ends before id `end`. */
static clv_status add(clv_document_index *d, int64_t end, clv_error *err)
{
    CLV_TRY(clv_grow(&d->first, &d->capacity, d->n + 2, sizeof *d->first, "documents", err));
    d->first[0] = 0;
    d->first[++d->n] = end;
    return CLV_OK;
}

static clv_status find_in(clv_document_index *d, const clv_token_file *f, int64_t before, clv_error *err)
{
    int32_t ids[BLOCK];
    if (f->header.end_id < 0)
        return clv_fail(err, CLV_EINVAL, "%s: does not say which id ends a document, and cannot be padded", f->path);
    for (int64_t at = 0; at < f->header.count; at += BLOCK) {
        int64_t n = f->header.count - at < BLOCK ? f->header.count - at : BLOCK;
        CLV_TRY(clv_token_file_read(f, at, n, ids, err));
        for (int64_t i = 0; i < n; i++)
            if (ids[i] == f->header.end_id || at + i + 1 == f->header.count)
                CLV_TRY(add(d, before + at + i + 1, err));
    }
    return CLV_OK;
}

clv_status clv_document_index_build(clv_document_index *out, const clv_token_file *files, int n, clv_error *err)
{
    clv_document_index d = {0};
    clv_status status = CLV_OK;
    int64_t before = 0;
    for (int i = 0; status == CLV_OK && i < n; i++) {
        status = find_in(&d, &files[i], before, err);
        before += files[i].header.count;
    }
    if (status == CLV_OK)
        *out = d;
    else
        clv_document_index_free(&d);
    return status;
}

void clv_document_index_free(clv_document_index *d)
{
    free(d->first);
    *d = (clv_document_index){0};
}
