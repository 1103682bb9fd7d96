/* open_weights.c - see open_weights.h. */
#include "cli/open_weights.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "cli/command.h"

/* What the handler says: written here before, for it may call next to nothing. */
static char message[4096];

static void end_on_lost_page(int signal)
{
    (void)signal;
    ssize_t ignored = write(STDERR_FILENO, message, strlen(message));
    (void)ignored;
    _exit(CLV_EXIT_FAILED);
}

static void handle_lost_pages(const char *folder, const char *command)
{
    struct sigaction action = {.sa_handler = end_on_lost_page};
    snprintf(message, sizeof message,
             "%s: %.3800s: a weight file could not be read to its end (was it cut while open?)\n", command, folder);
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, NULL);
}

clv_status clv_open_weights(clv_checkpoint **out, const clv_model *model, const char *folder, const char *command,
                            clv_error *err)
{
    const char *first;
    handle_lost_pages(folder, command);
    CLV_TRY(clv_checkpoint_open(out, model, folder, &(clv_checkpoint_options){.map = true}, err));
    int64_t extra = clv_checkpoint_extra(*out, &first);
    if (extra > 0)
        fprintf(stderr, "%s: note: %lld tensors of %s are not used, the first is %s\n", command, (long long)extra,
                folder, first);
    return CLV_OK;
}
