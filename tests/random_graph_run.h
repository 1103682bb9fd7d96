/* random_graph_run.h - a random graph on one rank, op by op on whole tensors, against the same graph on its mesh; and
 * what a failure needs, by leaving out what it does not need. */
#pragma once

#include "random_graph.h"

/* Bits: what programs of a case do that only some meshes ask for. */
enum {
    RANDOM_RING = 1,       /* attention to blocks that go around a ring */
    RANDOM_GATHER = 2,     /* to keys and values gathered over `context` */
    RANDOM_ALL_TO_ALL = 4, /* to heads or sequences that came for positions */
    RANDOM_SEND = 8,       /* between stages */
    RANDOM_DISPATCH = 16,  /* rows to the ranks of their experts */
    RANDOM_WAYS = 5
};

typedef struct random_result {
    bool failed;
    uint32_t ways;
    char message[768];
} random_result;

/* Compiles and runs the case: all outputs of every run, and all state after it. Results that are finite on one rank are
 * finite on the mesh, and the others are not; they differ by no more than rounding does to each (rounding_bounds.c
 * tells how that is known). */
random_result random_run(const random_spec *spec);

/* One rank against itself with one addend of one sum lost, or counted twice, so many times: how many of these runs had
 * other results that are no narrower than f32, and how many of those the comparison noticed. */
typedef struct random_keenness {
    int other, noticed;
} random_keenness;
random_keenness random_keen(const random_spec *spec, int tries);

/* A run of the case in a process of its own: a crash, or `seconds` without an end, is a failure. */
random_result random_run_apart(const random_spec *spec, int seconds);

/* The smallest case found that still fails, in processes of their own; *result is its failure. */
random_spec random_shrink(const random_spec *spec, random_result *result, int seconds);

/* Writes the case, its failure and its graph. */
void random_report(FILE *out, const random_spec *spec, const random_result *result);
