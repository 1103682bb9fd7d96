/* fuzz_trace.c - files of traces. What was read has times that are numbers. */
#include <math.h>
#include <stdlib.h>

#include "cleave/trace.h"
#include "fuzz.h"
#include "fuzz_file.h"

static void check_part(const clv_trace_part *part)
{
    const double all[] = {part->compute, part->moving, part->waiting, part->overlapped, part->bytes};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (isnan(all[i]) || all[i] < 0)
            abort();
    if (part->collectives < 0)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[FUZZ_PATH];
    clv_trace_report *report;
    clv_trace_info info = {.size = sizeof info};
    if (!fuzz_file(path, data, size) || clv_trace_read(&report, path, NULL) != CLV_OK)
        return 0;
    if (clv_trace_report_get_info(report, &info, NULL) != CLV_OK)
        abort();
    for (int i = 0;; i++) {
        clv_trace_part part = {.size = sizeof part};
        if (clv_trace_report_part(report, i, &part, NULL) != CLV_OK)
            abort();
        if (!part.name)
            break;
        check_part(&part);
    }
    for (int i = 0;; i++) {
        clv_trace_op_kind kind = {.size = sizeof kind};
        if (clv_trace_report_op_kind(report, i, &kind, NULL) != CLV_OK)
            abort();
        if (!kind.name)
            break;
    }
    clv_trace_report_free(report);
    return 0;
}
