#include "cli/convert.h"

#include <stdio.h>

#include "cleave/status.h"
#include "cli/progress.h"
#include "io/folder.h"

/* Progress counts MiB. */
typedef struct bar {
    clv_progress progress;
    const char *what;
    bool begun;
} bar;

static void show(void *arg, int64_t done, int64_t total)
{
    bar *b = arg;

    if (!b->begun)
        clv_progress_begin(&b->progress, b->what, total >> 20);
    b->begun = true;
    clv_progress_update(&b->progress, done >> 20, "MiB");
}

static bool owns(const void *arg, const char *name)
{
    return clv_weights_owns(arg, name);
}

clv_status clv_checkpoint_convert(const char *from, const clv_weights *weights, const char *to, const char *what,
                                  clv_checkpoint_writer *write, const void *arg, clv_error *err)
{
    clv_new_folder folder;
    bar b = {.what = what};

    CLV_TRY(clv_new_folder_open(&folder, to, err));
    clv_status status = write(arg, weights, folder.temporary, show, &b, err);
    if (b.begun)
        clv_progress_end(&b.progress);
    if (status == CLV_OK)
        status = clv_folder_copy(from, folder.temporary, owns, weights, err);
    if (status == CLV_OK)
        return clv_new_folder_commit(&folder, err);
    clv_new_folder_abandon(&folder);
    return status;
}
