/* axis_division.c - divides mesh axes into sub-axes of which all sub-axes of some layouts are made. */
#include "partition/reshard/axis_division.h"

#include <string.h>

void clv_axis_divisions_init(clv_axis_division *divisions, const clv_mesh *mesh)
{
    for (int a = 0; a < mesh->n_axes; a++) {
        divisions[a] = (clv_axis_division){.n = 1, .at = {1}};
        clv_axis_division_add(&divisions[a], mesh->axis[a].size);
    }
}

bool clv_axis_division_add(clv_axis_division *d, int64_t at)
{
    int i = 0;
    while (i < d->n && d->at[i] < at)
        i++;
    if (i < d->n && d->at[i] == at)
        return true;
    if ((i > 0 && at % d->at[i - 1] != 0) || (i < d->n && d->at[i] % at != 0))
        return false;
    memmove(d->at + i + 1, d->at + i, (size_t)(d->n - i) * sizeof *d->at);
    d->at[i] = at;
    d->n++;
    return true;
}

bool clv_axis_divisions_add_layout(clv_axis_division *divisions, const clv_layout *layout)
{
    bool nests = true;
    for (int i = 0; i < layout->begin[layout->rank + 1]; i++) {
        clv_subaxis sub = layout->axes[i];
        nests = clv_axis_division_add(&divisions[sub.axis], sub.pre) && nests;
        nests = clv_axis_division_add(&divisions[sub.axis], (int64_t)sub.pre * sub.size) && nests;
    }
    return nests;
}
