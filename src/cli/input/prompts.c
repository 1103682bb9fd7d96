/* prompts.c - reads the prompts of `cleave generate`: one text, or the lines of a file; reads standard input. */
#include "cli/input/prompts.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cleave/sequences.h"
#include "cli/job/job_processes.h"
#include "cli/output/messages.h"

void clv_prompts_free(clv_prompts *p)
{
    free(p->text);
    free(p->asked);
    free(p->content);
}

static void add(clv_prompts *p, const char *text)
{
    p->text[p->n++] = text;
    if (text[0] != '\0')
        p->asked[p->n_nonempty++] = text;
}

static clv_status make_room(clv_prompts *p, int64_t n, clv_error *err)
{
    p->text = calloc((size_t)n, sizeof *p->text);
    p->asked = calloc((size_t)n, sizeof *p->asked);
    return p->text && p->asked ? CLV_OK : clv_fail_memory(err, "prompts", (size_t)n * sizeof *p->text);
}

static bool is_standard_input(const char *name)
{
    return strcmp(name, "-") == 0;
}

/* Lines of the file, which all end with "\n"; the last may lack its end. */
static clv_status read_lines(clv_prompts *p, const char *file, const char *command, clv_error *err)
{
    size_t size;
    int64_t lines = 1;
    CLV_TRY(is_standard_input(file) ? clv_standard_input_read(&p->content, &size, 0, command, err)
                                    : clv_text_read(&p->content, &size, file, 0, err));
    char *end = p->content + size;
    for (size_t i = 0; i < size; i++)
        lines += p->content[i] == '\n';
    CLV_TRY(make_room(p, lines, err));
    for (char *line = p->content; line < end;) {
        char *stop = memchr(line, '\n', (size_t)(end - line));
        stop = stop ? stop : end; /* behind the text, too, there is a byte */
        *stop = '\0';
        add(p, line);
        line = stop + 1;
    }
    return p->n_nonempty > 0 ? CLV_OK
                             : clv_fail(err, CLV_EINVAL, "%s: no prompt; one a line is needed",
                                        is_standard_input(file) ? "standard input" : file);
}

/* Standard input as it is, but for the end of its last line, of which Windows' has two bytes. */
static clv_status read_whole(clv_prompts *p, const char *command, clv_error *err)
{
    size_t size;
    CLV_TRY(clv_standard_input_read(&p->content, &size, 1, command, err));
    const char *zero = memchr(p->content, '\0', size);
    if (zero)
        return clv_fail(err, CLV_EINVAL, "standard input: byte %lld is 0; a prompt has no zero bytes",
                        (long long)(zero - p->content));
    size_t ends = size > 0 && p->content[size - 1] == '\n';
    ends += ends && size > 1 && p->content[size - 2] == '\r';
    p->content[size - ends] = '\0';
    return CLV_OK;
}

static clv_status read_one(clv_prompts *p, const char *text, const char *command, clv_error *err)
{
    bool read = is_standard_input(text);
    CLV_TRY(read ? read_whole(p, command, err) : CLV_OK);
    text = read ? p->content : text;
    if (text[0] == '\0')
        return clv_fail(err, CLV_EINVAL, "%s: the prompt is empty; give at least one byte",
                        read ? "standard input" : "-p");
    CLV_TRY(make_room(p, 1, err));
    add(p, text);
    return CLV_OK;
}

clv_status clv_prompts_read(clv_prompts *p, const char *text, const char *file, const char *command, clv_error *err)
{
    if (text && file)
        return clv_fail(err, CLV_EINVAL, "-p TEXT and -f FILE are both given; give one of them");
    if (!text && !file)
        return clv_fail(err, CLV_EINVAL, "a prompt is needed: -p TEXT, or -f FILE with one a line");
    return file ? read_lines(p, file, command, err) : read_one(p, text, command, err);
}

clv_status clv_standard_input_read(char **out, size_t *size, int raw, const char *command, clv_error *err)
{
    if (clv_processes_have_joined_job())
        return clv_fail(err, CLV_EINVAL,
                        "standard input is that of the first process alone; valid with several: text as an option, or "
                        "a file that each can read");
    if (isatty(STDIN_FILENO) == 1)
        clv_log("%s: waiting for text on standard input; Ctrl-D at the begin of a line ends it", command);
    return clv_text_read(out, size, "-", raw, err);
}
