/* h100_machine.h - the machine h100-nvlink-ib and a folder, there from a group's set-up to its tear-down. */
#pragma once

#include "cleave/machine.h"
#include "must.h"
#include "temp_folder.h"

static clv_machine *h100;

static inline int open_h100(void **state)
{
    clv_error err = {0};
    if (make_folder(state) != 0)
        return -1;
    must(clv_machine_open(&h100, "h100-nvlink-ib", NULL, &err), &err);
    return 0;
}

static inline int close_h100(void **state)
{
    clv_machine_free(h100);
    return remove_folder(state);
}
