/* router_losses.h - the routers of a graph, recorded for the losses that training adds for them. */
#pragma once

#include "cleave/nn.h"

typedef struct clv_graph_routers {
    int n, room;
    clv_value *logits, *ids; /* [room] of each router, in order */
} clv_graph_routers;

/* Adds a router to graph->routers, if that is not NULL. */
void clv_nn_record_router(clv_graph *graph, clv_value logits, clv_value ids);
