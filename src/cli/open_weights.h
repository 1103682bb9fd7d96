/* open_weights.h - a model folder's weights for a command: mapped, with what goes wrong under the map as an error. */
#ifndef CLEAVE_CLI_OPEN_WEIGHTS_H
#define CLEAVE_CLI_OPEN_WEIGHTS_H

#include "models/checkpoint.h"

/* clv_checkpoint_open with mapped files, and a handler of SIGBUS: a file that becomes shorter while it is read is CLV_EIO. Tensors
 * that the model does not use are noted on stderr. */
clv_status clv_open_weights(clv_checkpoint **out, const clv_model_config *model, const char *folder,
                            const char *command, clv_error *err);

#endif
