/* unbroadcast.h - gradient of broadcasting: sums a cotangent back to its operand's shape. */
#ifndef CLEAVE_OPS_UNBROADCAST_H
#define CLEAVE_OPS_UNBROADCAST_H

#include "graph/graph.h"

/* Sums `x` back to the shape `like` that an operand had before broadcasting. */
clv_value clv_graph_unbroadcast(clv_graph *graph, clv_value x, clv_type like);

#endif
