/* router_losses.h - the routers of a graph, recorded for the losses that training adds for them, and for the number of
 * rows that found no place. */
#pragma once

#include "cleave/nn.h"

typedef struct clv_graph_routers {
    int n, room;
    bool balances;           /* loads are wanted */
    clv_value *logits, *ids; /* [room] of each router, in order */
    clv_value *bias, *load;  /* [room] likewise, if loads are wanted: rows that chose each expert */
    clv_value dropped;       /* choices that found no place, an f64 scalar, summed over routers; none: no capacity */
} clv_graph_routers;

enum { CLV_MAX_CAPACITY_FACTOR = 1000 };

/* Adds a router to graph->routers, if that is not NULL. bias, mask: CLV_NONE, there is none. */
void clv_nn_record_router(clv_graph *graph, clv_value logits, clv_value ids, clv_value bias, clv_value mask);
/* Balances experts without a loss, after an update (Wang et al. 2024, arXiv:2408.15664, algorithm 1): bias += rate *
 * sign(mean(load) - load), but if `finite` is NaN; CLV_NONE: always. */
void clv_nn_balance_router(clv_graph *graph, clv_value bias, clv_value load, double rate, clv_value finite);
/* Adds the choices of a router (ids that are not -1) without a place, which have this number, to graph->routers, if
 * that is not NULL. */
void clv_nn_record_places(clv_graph *graph, clv_value ids, clv_value places, int64_t none);
