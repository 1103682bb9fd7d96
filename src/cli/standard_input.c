#include "cli/standard_input.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/processes.h"
#include "cli/say.h"

clv_status clv_standard_input_read(char **out, size_t *size, const char *command, clv_error *err)
{
    size_t room = 1 << 16, n = 0;
    if (clv_processes_are_joined())
        return clv_fail(err, CLV_EINVAL,
                        "standard input is that of the first process alone; valid with several: text as an option, or "
                        "a file that each can read");
    if (isatty(STDIN_FILENO) == 1)
        clv_say("%s: waiting for text on standard input; Ctrl-D at the begin of a line ends it", command);
    char *text = malloc(room);
    while (text) {
        n += fread(text + n, 1, room - 1 - n, stdin);
        if (n < room - 1)
            break;
        char *grown = realloc(text, room *= 2);
        if (!grown)
            free(text);
        text = grown;
    }
    if (!text)
        return clv_fail_memory(err, "the text", room);
    if (ferror(stdin)) { /* a folder, or closed: not an empty text */
        int code = errno;
        free(text);
        return clv_fail(err, CLV_EIO, "standard input: cannot read: %s", strerror(code));
    }
    text[n] = '\0';
    *out = text;
    *size = n;
    return CLV_OK;
}
