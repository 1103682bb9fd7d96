/* prompts.h - reads the prompts of `cleave generate`: one text, or the lines of a file; reads standard input. */
#pragma once

#include "cleave/status.h"

/* Nothing follows an empty line of a file: its text is empty, too. */
typedef struct clv_prompts {
    int64_t n, n_nonempty;
    const char **text;  /* [n], in the order given */
    const char **asked; /* [n_nonempty] those that are not empty */
    char *content;      /* of the file */
} clv_prompts;

/* Of -p TEXT or -f FILE, the other being NULL; "-" is standard input: of -p all of it is the prompt, without the end
 * of its last line. A byte order mark at the begin is none of the text. Free with clv_prompts_free, whatever it
 * returns. */
clv_status clv_prompts_read(clv_prompts *p, const char *text, const char *file, const char *command, clv_error *err);
void clv_prompts_free(clv_prompts *p);

/* Reads to its end, as clv_text_read does; the caller frees. On a terminal the command says that it waits.
 * @return CLV_EINVAL where several processes run the command, of which the first alone has one; CLV_EIO; CLV_ENOMEM */
clv_status clv_standard_input_read(char **out, size_t *size, int raw, const char *command, clv_error *err);
