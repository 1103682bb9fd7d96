/* verify_against.h - compares a model's results on a mesh with a reference file of another framework. */
#ifndef CLEAVE_CLI_EVALUATION_VERIFY_AGAINST_H
#define CLEAVE_CLI_EVALUATION_VERIFY_AGAINST_H

#include <stdbool.h>

#include "cli/options/model_options.h"
#include "cli/output/table.h"

/* Runs the model and adds a row for its mesh, whose text is given: how many tensors of the file were compared, the
 * largest error, relative to a tensor's largest element or (gradients) a thousandth of the largest gradient, and the
 * first tensor beyond the tolerance, with its worst element; *same becomes false where there is one. NaN and infinity
 * are beyond any tolerance, even where both have them. CLV_EINVAL when the file has ids alone. */
clv_status clv_verify_against(clv_table *table, bool *same, clv_model_option *model, const char *file, double tolerance,
                              const char *command, clv_error *err);

#endif
