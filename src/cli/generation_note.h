/* generation_note.h - the line by which generate says what it took from the model's folder. */
#ifndef CLEAVE_CLI_GENERATION_NOTE_H
#define CLEAVE_CLI_GENERATION_NOTE_H

#include <stdbool.h>

#include "cleave/generate.h"

/* Of the keys of a clv_generation_config's values those that options have overridden. */
typedef struct clv_overridden {
    const char *key;
    bool is;
} clv_overridden;

/* On stderr, where anything was taken, or is not supported; overridden ends in a key of NULL. */
void clv_generation_note(const clv_generation_config *says, const clv_overridden *overridden, const char *command);

#endif
