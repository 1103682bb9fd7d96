/* layout_array.c - a growable array of layouts. */
#include <stdlib.h>

#include "base/error.h"
#include "models/plan/search/layouts.h"

clv_status clv_layout_list_append(clv_layout_list *list, const clv_plan_search_layout *layout, clv_error *err)
{
    if (list->n == list->capacity) {
        int capacity = list->capacity ? 2 * list->capacity : 64;
        clv_plan_search_layout *more = realloc(list->item, (size_t)capacity * sizeof *more);
        if (!more)
            return clv_fail_memory(err, "the layouts of a search", (size_t)capacity * sizeof *more);
        list->item = more;
        list->capacity = capacity;
    }
    list->item[list->n++] = *layout;
    return CLV_OK;
}
