/* fuzz_graph.c - texts of graphs. What parses prints, and parses back to what prints the same. */
#include <stdlib.h>
#include <string.h>

#include "cleave/graph.h"
#include "fuzz.h"

static char *text_of(const clv_graph *graph)
{
    size_t size = clv_graph_print(NULL, 0, graph) + 1;
    char *text = malloc(size);
    if (text)
        clv_graph_print(text, size, graph);
    return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    clv_graph *graph = NULL, *again = NULL;
    char *text = malloc(size + 1), *printed = NULL, *other = NULL;
    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    if (clv_graph_parse(&graph, text, NULL) == CLV_OK) {
        printed = text_of(graph);
        if (clv_graph_parse(&again, printed, NULL) != CLV_OK)
            abort();
        other = text_of(again);
        if (strcmp(printed, other) != 0)
            abort();
    }
    clv_graph_free(graph);
    clv_graph_free(again);
    free(text);
    free(printed);
    free(other);
    return 0;
}
