/* generation_config_note.h - stderr line of `cleave generate` listing what generation_config.json set. */
#ifndef CLEAVE_CLI_REPORTS_GENERATION_CONFIG_NOTE_H
#define CLEAVE_CLI_REPORTS_GENERATION_CONFIG_NOTE_H

#include <stdbool.h>

#include "cleave/generate.h"

/* Of the keys of a clv_generation_config's values those that options have overridden. */
typedef struct clv_overridden_key {
    const char *key;
    bool is;
} clv_overridden_key;

/* On stderr, where anything was taken, or is not supported; overridden ends in a key of NULL. */
void clv_generation_config_note(const clv_generation_config *says, const clv_overridden_key *overridden,
                                const char *command);

#endif
