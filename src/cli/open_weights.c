/* open_weights.c - see open_weights.h. */
#include "cli/open_weights.h"

#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "cleave/status.h"
#include "cli/command.h"
#include "cli/say.h"
#include "io/file.h"

/* In a read of weights this becomes that read's failure; elsewhere nothing can go on. */
static void on_lost_page(int signal)
{
    static const char message[] = "cleave: a page of memory or of a mapped file is gone (SIGBUS)\n";
    (void)signal;
    clv_file_lost_page();
    ssize_t ignored = write(STDERR_FILENO, message, sizeof message - 1);
    (void)ignored;
    _exit(CLV_EXIT_FAILED);
}

static void handle_lost_pages(void)
{
    struct sigaction action = {.sa_handler = on_lost_page, .sa_flags = SA_NODEFER};
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, NULL);
}

clv_status clv_open_weights(clv_checkpoint **out, const clv_model_config *model, const char *folder,
                            const char *command, clv_error *err)
{
    const char *first;
    handle_lost_pages();
    CLV_TRY(clv_checkpoint_open(out, model, folder, &(clv_checkpoint_options){.map = true}, err));
    int64_t extra = clv_checkpoint_extra(*out, &first);
    if (extra > 0)
        clv_say("%s: note: %lld tensors of %s are not used, the first is %s", command, (long long)extra, folder, first);
    return CLV_OK;
}
