/* model_option.h - the options of commands that run a model: which one, on what mesh, by which rules, how ranks run, in which dtype; and opening it. */
#ifndef CLEAVE_CLI_MODEL_OPTION_H
#define CLEAVE_CLI_MODEL_OPTION_H

#include "cleave/model.h"
#include "cli/mesh_option.h"
#include "cli/run_option.h"

typedef struct clv_model_option {
    const char *path;
    clv_mesh_option mesh;
    clv_run_option run;
    const char *dtype;
} clv_model_option;

/* What holds where nothing is given. */
#define CLV_MODEL_DEFAULTS                                                                                             \
    {                                                                                                                  \
        .mesh = {.tp = 1}, .run = {.threads = 1}, .dtype = "f32"                                                       \
    }

/* Opens the model, its files mapped, with a handler of SIGBUS: a file that becomes shorter while it is read is CLV_EIO. Warns on stderr
 * when there are more ranks than processors. */
clv_status clv_model_option_open(clv_model **out, const clv_model_option *option, const char *command, clv_error *err);

/* Says on stderr that tensors of the folder are not the model's, if there are any: before it runs. */
void clv_note_unused_tensors(const clv_model *model, const char *folder, const char *command);

#endif
