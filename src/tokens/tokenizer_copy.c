/* tokenizer_copy.c - a tokenizer of the Hub is many files, few of which a folder has. */
#include <string.h>

#include "base/error.h"
#include "cleave/tokenizer.h"
#include "io/folder.h"

/* For clv_folder_copy. */
static bool is_another(const void *arg, const char *name)
{
    static const char *const names[] = {"tokenizer.json",
                                        "tokenizer_config.json",
                                        "special_tokens_map.json",
                                        "added_tokens.json",
                                        "vocab.json",
                                        "merges.txt",
                                        "vocab.txt",
                                        "tokenizer.model",
                                        "chat_template.jinja",
                                        "generation_config.json"};
    (void)arg;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(name, names[i]) == 0)
            return false;
    return true;
}

clv_status clv_tokenizer_copy(const char *from, const char *to, clv_error *err)
{
    CLV_TRY(clv_require(from && to, "clv_tokenizer_copy", "two folders", err));
    return clv_folder_copy(from, to, is_another, NULL, err);
}
