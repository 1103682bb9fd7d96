/* faults.c - what is wrong with a program's manual SPMD: noted while it is put into a graph, and listed. */
#include <string.h>

#include "base/error.h"
#include "interop/manual/manual.h"

void import_add_fault(importer *im, import_fault fault)
{
    import_faults *list = &im->program->faults;
    for (int i = 0; i < list->n; i++) { /* a loop's turns, and a function's calls, are the same ops */
        const import_fault *other = &list->item[i];
        if (other->at == fault.at && strcmp(other->kind, fault.kind) == 0 && strcmp(other->tensor, fault.tensor) == 0)
            return;
    }
    if (!fault.tensor || !fault.text || !fault.axes ||
        clv_arena_grow(im->arena, &list->item, &list->capacity, list->n, sizeof *list->item) != 0)
        return; /* out of memory: the next allocation says so */
    list->item[list->n++] = fault;
}

clv_status clv_import_fault(const clv_import *program, int i, clv_import_fault_info *out, clv_error *err)
{
    clv_import_fault_info info = {0};
    CLV_TRY(clv_require(program && out && i >= 0, __func__, "a program, out, or an index below 0", err));
    const import_faults *list = &program->faults;
    if (i < list->n) {
        const import_fault *from = &list->item[i];
        info = (clv_import_fault_info){.kind = from->kind,
                                       .tensor = from->tensor,
                                       .axes = from->axes,
                                       .text = from->text,
                                       .output = from->output,
                                       .line = from->at->at.line};
    }
    return clv_struct_copy_out(out, sizeof info, sizeof info, &info, __func__, err);
}
