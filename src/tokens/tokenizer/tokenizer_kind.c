/* tokenizer_kind.c - name of the tokenizer kind in a folder (BPE, WordPiece, sentencepiece ...), supported or not. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "cleave/tokenizer.h"
#include "io/files/atomic_folder.h"
#include "io/files/file.h"
#include "io/json/json.h"

enum { LIMIT = 1 << 28 };

/* tokenizer.json's own word for its kind ("BPE", "WordPiece", "Unigram"). */
static clv_status read_kind(char *out, size_t size, const char *folder, clv_error *err)
{
    char *path = clv_path_join(folder, "tokenizer.json");
    json_t *document = NULL;
    const char *type = NULL;

    if (!path)
        return clv_fail_memory(err, "a path", strlen(folder));
    clv_status status = clv_json_load(&document, path, LIMIT, err);
    if (status == CLV_OK)
        status = clv_json_get_string(&type, json_object_get(document, "model"), "type", CLV_JSON_OPTIONAL, path, err);
    if (status == CLV_OK)
        snprintf(out, size, "%s (tokenizer.json)", type ? type : "of no stated kind");
    json_decref(document);
    free(path);
    return status;
}

clv_status clv_tokenizer_kind(char *out, size_t size, const char *folder, clv_error *err)
{
    static const char *const others[] = {"vocab.txt", "tokenizer.model", "vocab.json"};
    const char *kind = "none";

    CLV_TRY(clv_require(out && folder, "clv_tokenizer_kind", "out and a folder", err));
    if (clv_folder_has(folder, "tokenizer.json"))
        return read_kind(out, size, folder, err);
    for (size_t i = sizeof others / sizeof others[0]; i-- > 0;)
        if (clv_folder_has(folder, others[i]))
            kind = others[i];
    snprintf(out, size, "%s", kind);
    return CLV_OK;
}
