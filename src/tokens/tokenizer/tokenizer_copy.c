/* tokenizer_copy.c - copies the tokenizer files of one Hugging Face folder to another. */
#include <string.h>

#include "base/error.h"
#include "cleave/tokenizer.h"
#include "io/files/atomic_folder.h"

/* For clv_folder_copy. */
static bool is_not_tokenizer_file(const void *arg, const char *name)
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
    return clv_folder_copy(from, to, is_not_tokenizer_file, NULL, err);
}
