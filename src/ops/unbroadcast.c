/* unbroadcast.c - gradient of broadcasting: sums a cotangent back to its operand's shape. */
#include "ops/unbroadcast.h"

clv_value clv_graph_unbroadcast(clv_graph *graph, clv_value x, clv_type like)
{
    clv_type type = clv_graph_type(graph, x);
    if (!clv_valid(x) || clv_type_equal(&type, &like))
        return x;
    int dims[CLV_MAX_RANK], n = 0;
    int extra = type.rank - like.rank;
    for (int d = 0; d < type.rank; d++)
        if (d < extra || (like.shape[d - extra] == 1 && type.shape[d] != 1))
            dims[n++] = d;
    if (n == 0)
        return x;
    clv_value sum = clv_reduce(graph, CLV_SUM, x, dims, n, true);
    return extra == 0 ? sum : clv_reshape(graph, sum, like.rank, like.shape);
}
