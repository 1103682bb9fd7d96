/* status.c - status names: the short name and the one-line meaning of each clv_status. */
#include "cleave/status.h"

typedef struct status_row {
    const char *name;
    const char *text;
} status_row;

static const status_row status_rows[] = {
#define STATUS_ROW(code, name, text) [code] = {name, text},
    CLV_STATUS_TABLE(STATUS_ROW)
#undef STATUS_ROW
};

/* Any integer may be passed in, so the row is looked up by the unsigned value. */
static const status_row *find_row(clv_status status)
{
    static const status_row unknown = {"unknown", "not a status of this library"};
    unsigned index = (unsigned)status;

    return index < sizeof status_rows / sizeof status_rows[0] ? &status_rows[index] : &unknown;
}

const char *clv_status_name(clv_status status)
{
    return find_row(status)->name;
}

const char *clv_status_text(clv_status status)
{
    return find_row(status)->text;
}
