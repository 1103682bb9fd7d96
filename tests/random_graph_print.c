/* random_graph_print.c - a random graph as text: how it is compiled and run, then what clv_graph_print prints. */
#include <stdlib.h>

#include "random_graph.h"

void random_graph_print(FILE *out, const random_graph *g)
{
    static const char *const specials[] = {"", "; NaN among the inputs", "; Inf among the inputs"};
    size_t size = clv_graph_print(NULL, 0, g->graph) + 1;
    char *text = malloc(size);
    fprintf(out, "# %d run%s%s%s%s%s; reshard_after_forward %s%s%s%s\n", g->steps, g->steps > 1 ? "s" : "",
            g->relayout ? " of two programs in turn" : "", specials[g->special],
            g->options.by_bytes ? "; by bytes" : "", g->options.use_idle_axes ? "; idle axes" : "",
            clv_reshard_after_forward_name(g->options.reshard_after_forward), g->options.overlap ? "; overlap" : "",
            g->options.recompute ? "; recompute" : "", g->options.search_layouts ? "; search" : "");
    if (text && clv_graph_print(text, size, g->graph) < size)
        fputs(text, out);
    free(text);
}
