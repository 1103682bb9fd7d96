/* convert.h - what shard and merge have in common: a folder in another form, put in place whole, with progress. */
#ifndef CLEAVE_CLI_CONVERT_H
#define CLEAVE_CLI_CONVERT_H

#include "io/weights.h"

/* Writes the weights into `folder`. */
typedef clv_status clv_checkpoint_writer(const void *arg, const clv_weights *weights, const char *folder,
                                         clv_shards_progress *progress, void *progress_arg, clv_error *err);

/* Makes the folder `to`: what `write` writes of the weights of `from`, and every other file of `from`. Progress is shown as `what`. */
clv_status clv_checkpoint_convert(const char *from, const clv_weights *weights, const char *to, const char *what,
                                  clv_checkpoint_writer *write, const void *arg, clv_error *err);

#endif
