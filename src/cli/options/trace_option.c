/* trace_option.c - --trace-out FILE: writes a session's trace for Perfetto and `cleave trace`. */
#include "cli/options/trace_option.h"

clv_status clv_trace_option_write(clv_session *session, const char *path, const clv_machine *machine, bool alone,
                                  clv_error *err)
{
    const clv_trace_options options = {
        .size = sizeof options, .path = path, .machine = machine, .this_process_only = alone};
    return clv_trace_end(session, &options, err);
}
