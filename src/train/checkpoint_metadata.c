/* checkpoint_metadata.c - key-value strings that the caller stores in checkpoints (data position, data checksum). */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text/utf8.h"
#include "train/trainer.h"

static clv_trainer_metadata *find(const clv_trainer *t, const char *key)
{
    for (int i = 0; i < t->n_metadata; i++)
        if (strcmp(t->notes[i].key, key) == 0)
            return &t->notes[i];
    return NULL;
}

const char *clv_trainer_get_metadata(const clv_trainer *t, const char *key)
{
    const clv_trainer_metadata *note = t && key ? find(t, key) : NULL;
    return note ? note->text : NULL;
}

static clv_status add(clv_trainer *t, const char *key, const char *text, clv_error *err)
{
    clv_trainer_metadata *grown = realloc(t->notes, ((size_t)t->n_metadata + 1) * sizeof *grown);
    if (grown)
        t->notes = grown;
    clv_trainer_metadata note = {grown ? strdup(key) : NULL, grown ? strdup(text) : NULL};
    if (note.key && note.text) {
        t->notes[t->n_metadata++] = note;
        return CLV_OK;
    }
    free(note.key);
    free(note.text);
    return clv_fail_memory(err, "a note", strlen(text));
}

clv_status clv_trainer_set_metadata(clv_trainer *t, const char *key, const char *text, clv_error *err)
{
    CLV_TRY(clv_require(t && key && text, "clv_trainer_set_metadata", "a trainer, a key and a text", err));
    if (!clv_utf8_valid(key, strlen(key)) || !clv_utf8_valid(text, strlen(text)))
        return clv_fail(err, CLV_EINVAL, "clv_trainer_set_metadata: \"%.64s\" or its text is not UTF-8", key);
    clv_trainer_metadata *note = find(t, key);
    if (!note)
        return add(t, key, text, err);
    char *copy = strdup(text);
    if (!copy)
        return clv_fail_memory(err, "a note", strlen(text));
    free(note->text);
    note->text = copy;
    return CLV_OK;
}

void clv_trainer_clear_metadata(clv_trainer *t)
{
    for (int i = 0; i < t->n_metadata; i++) {
        free(t->notes[i].key);
        free(t->notes[i].text);
    }
    free(t->notes);
    t->notes = NULL;
    t->n_metadata = 0;
}
