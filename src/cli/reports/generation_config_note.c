/* generation_config_note.c - stderr line of `cleave generate` listing what generation_config.json set. */
#include "cli/reports/generation_config_note.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/output/messages.h"

/* Values are "temperature 0.6", or "top_k 50 by default". */
static bool is_overridden(const char *value, const clv_overridden_key *o)
{
    for (; o->key; o++)
        if (o->is && strcspn(value, " ") == strlen(o->key) && strncmp(value, o->key, strlen(o->key)) == 0)
            return true;
    return false;
}

void clv_generation_config_note(const clv_generation_config *says, const clv_overridden_key *overridden,
                                const char *command)
{
    char *text = NULL;
    size_t size;
    int taken = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out)
        return;
    for (int64_t i = 0; i < says->n_values; i++)
        if (!is_overridden(says->values[i], overridden))
            fprintf(out, "%s%s", taken++ ? ", " : " says ", says->values[i]);
    for (int64_t i = 0; i < says->n_unsupported; i++)
        fprintf(out, "%s%s",
                i       ? ", "
                : taken ? "; not supported, and left out: "
                        : " has what is not supported, and left out: ",
                says->unsupported[i]);
    bool any = taken > 0 || says->n_unsupported > 0;
    if (fclose(out) == 0 && any)
        clv_log("%s: note: %s%s", command, says->file, text);
    free(text);
}
