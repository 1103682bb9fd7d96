/* file_notes.h - what is to be said of a checkpoint's files: tensors that the model leaves unread, by kind and with the
 * reason, and what is not as config.json or the index has it. Tensors that stand for weights in a form which cannot be
 * read are refused. */
#ifndef CLEAVE_MODELS_FILE_NOTES_H
#define CLEAVE_MODELS_FILE_NOTES_H

#include "models/census.h"
#include "models/settle.h"

typedef struct clv_file_notes {
    int n;
    char **text; /* [n] sentences without a full stop, each of the folder */
} clv_file_notes;

/* of_adapters: the files hold adapters, and only those of unused parts are noted.
 * @return CLV_EUNSUPPORTED with the first tensor that is refused, and why; CLV_EIO, CLV_ENOMEM */
clv_status clv_file_notes_take(clv_file_notes *out, const clv_census *census, const clv_settled *settled,
                               const clv_weights *weights, const clv_model_config *model, bool of_adapters,
                               clv_error *err);
void clv_file_notes_free(clv_file_notes *notes);

/* Whether a tensor is of a part of transformers' classes that takes no part in logits or hidden states. */
bool clv_is_unused_part(const char *name);

#endif
