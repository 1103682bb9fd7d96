/* traced_steps.c - --trace FROM:TO: which training steps are traced, and writing that trace. */
#include "cli/train/traced_steps.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/job/job_processes.h"
#include "cli/output/messages.h"
#include "cli/parser/output_path.h"
#include "cli/timing/op_times.h"

/* Whether a word of --trace is the name of a file, not FROM:TO. */
static bool is_file(const char *word)
{
    return strchr(word, ':') == NULL && word[strspn(word, "0123456789-+")] != '\0';
}

/* The file may follow the steps, or stand alone. --trace-out was checked by the parser. */
static clv_status take_file(clv_traced_steps *t, clv_error *err)
{
    const int steps = t->words.n > 0 && !is_file(t->words.item[0]);
    if (t->words.n > steps + 1 || (t->words.n > steps && t->path))
        return clv_fail(err, CLV_EINVAL, "--trace: '%.60s' is a second file; valid: FROM:TO and one file",
                        t->words.item[t->words.n - 1]);
    if (t->words.n > steps) {
        t->path = t->words.item[steps];
        t->words.n = steps;
        clv_status status = clv_output_path_check(clv_processes_output_path(t->path), false, err);
        if (status != CLV_OK)
            return err->code = CLV_EINVAL;
    }
    if (steps == 0 || t->path || t->ops)
        return CLV_OK;
    return clv_fail(err, CLV_EINVAL, "--trace needs a file; valid: --trace FROM:TO FILE");
}

clv_status clv_traced_steps_resolve(clv_traced_steps *t, int64_t steps, clv_error *err)
{
    enum { LAST = 3 };
    long long from, to;
    int end = 0;
    CLV_TRY(take_file(t, err));
    t->enabled = t->ops || t->path;
    t->from = steps > LAST ? steps - LAST : 0;
    t->to = steps - 1;
    if (t->words.n == 0)
        return CLV_OK;
    const char *text = t->words.item[0];
    if (sscanf(text, "%9lld:%9lld%n", &from, &to, &end) != 2 || text[end] != '\0' || from < 0 || to < from)
        return clv_fail(err, CLV_EINVAL, "--trace '%.60s'; valid: FROM:TO, whole numbers, 0 <= FROM <= TO", text);
    if (from >= steps)
        return clv_fail(err, CLV_EINVAL, "--trace '%.60s': the last step is %lld", text, (long long)steps - 1);
    t->from = from;
    t->to = to < steps ? to : steps - 1;
    return CLV_OK;
}

clv_status clv_traced_steps_open(clv_traced_steps *t, clv_error *err)
{
    return t->ops && !t->path && clv_processes_is_first()
               ? clv_trace_create_temp_file(t->temp_path, sizeof t->temp_path, err)
               : CLV_OK;
}

clv_status clv_traced_steps_before_step(clv_traced_steps *t, clv_session *session, int64_t step, clv_error *err)
{
    if (!t->enabled || step < t->from || step > t->to)
        return CLV_OK;
    if (!t->active) {
        CLV_TRY(clv_trace_begin(session, err));
        t->first_traced = step;
    }
    t->active = true;
    t->last_traced = step;
    return clv_trace_step(session, step, err);
}

static clv_status write_out(clv_traced_steps *t, clv_session *session, const clv_machine *machine,
                            bool this_process_only, const char *where, const char *command, clv_error *err)
{
    clv_error why = {0};
    t->active = false;
    t->ended = true;
    clv_status status =
        clv_trace_end_and_write(session, t->path ? t->path : t->temp_path, machine, this_process_only, &why);
    if (status == CLV_EIO || status == CLV_ENOTFOUND) {
        clv_log("%s: note: no trace: %s", command, why.message);
        return CLV_OK;
    }
    t->written = status == CLV_OK && clv_processes_is_first();
    if (status != CLV_OK)
        *err = why;
    else if (t->written && t->path)
        clv_log("%s: wrote the trace of steps %lld to %lld%s to %s", command, (long long)t->first_traced,
                (long long)t->last_traced, where, t->path);
    return status;
}

static void print_no_trace(clv_traced_steps *t, const char *command)
{
    if (t->enabled && !t->ended)
        clv_log("%s: note: no trace: steps %lld to %lld did not run", command, (long long)t->from, (long long)t->to);
    t->ended = true;
}

clv_status clv_traced_steps_write_early(clv_traced_steps *t, clv_session *session, const clv_machine *machine,
                                        const char *command, clv_error *err)
{
    if (t->active)
        return write_out(t, session, machine, false, t->last_traced < t->to ? ", where the run ended," : "", command,
                         err);
    print_no_trace(t, command);
    return CLV_OK;
}

void clv_traced_steps_write_after_failure(clv_traced_steps *t, clv_session *session, const clv_machine *machine,
                                          bool this_process_only, const char *command)
{
    clv_error why = {0};
    if (!t->active)
        print_no_trace(t, command);
    else if (write_out(t, session, machine, this_process_only, ", where the run failed,", command, &why) != CLV_OK)
        clv_log("%s: note: no trace: %s", command, why.message);
}

clv_status clv_traced_steps_after_step(clv_traced_steps *t, clv_session *session, int64_t step,
                                       const clv_machine *machine, const char *command, clv_error *err)
{
    if (!t->active)
        return CLV_OK;
    return step >= t->to ? clv_traced_steps_write_early(t, session, machine, command, err)
                         : clv_trace_step(session, -1, err);
}

clv_status clv_traced_steps_add_op_times(clv_table *t, const clv_traced_steps *trace, clv_error *err)
{
    return trace->ops && trace->written ? clv_op_times_add_file(t, trace->path ? trace->path : trace->temp_path, err)
                                        : CLV_OK;
}

void clv_traced_steps_close(clv_traced_steps *t)
{
    if (*t->temp_path)
        unlink(t->temp_path);
}
