/* random_graph.h - random graphs on random meshes in random layouts, each made from a few numbers: what the tests of
 * the partitioner and the soak run. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "cleave/machine.h"
#include "cleave/program.h"

enum {
    RANDOM_SLOTS =
        20, /* ops at most; each is drawn from a stream of its own, so that leaving one out keeps the others */
    RANDOM_LEAVES = 64, /* inputs and state */
    RANDOM_OUTPUTS = RANDOM_SLOTS + RANDOM_LEAVES + 2,
    RANDOM_SPEC_TEXT = 64
};

/* Parts of a case that can be left out, to find what a failure needs. */
typedef enum random_part {
    RANDOM_GRADIENTS = 1,    /* the backward pass */
    RANDOM_UPDATES = 2,      /* state that is assigned */
    RANDOM_STEPS = 4,        /* more than one run */
    RANDOM_RELAYOUT = 8,     /* a second program of the same graph in other layouts, run in turn with the first */
    RANDOM_NONFINITE = 16,   /* NaN and Inf among the inputs */
    RANDOM_OPTIONS = 32,     /* options of the partitioner */
    RANDOM_OUT_LAYOUTS = 64, /* stated layouts of outputs */
    RANDOM_MAXIMA = 128,     /* ops of maxima that ranks have parts of, instead of others */
    RANDOM_BLOCKS = 256,     /* blocks, of which the backward pass makes things again */
    RANDOM_STAGES = 512,     /* an axis of pipeline stages, and ops on them in any order */
    RANDOM_NAMED = 1024      /* an axis that splits the sequences of attention, or the experts of mixtures */
} random_part;

/* A case: the seed, and what was left out of what the seed makes. */
typedef struct random_spec {
    uint64_t seed;
    uint32_t dropped; /* bit k: op k is not made */
    uint32_t plain;   /* bit k: op k states no layouts */
    uint32_t without; /* random_part */
} random_spec;

/* "17", or "17/3f/0/4" with the masks in hexadecimal. */
void random_spec_print(char out[RANDOM_SPEC_TEXT], const random_spec *spec);
bool random_spec_parse(random_spec *out, const char *text);

/* What fills an input or state. */
typedef enum random_fill {
    RANDOM_REAL,   /* [-1, 1) */
    RANDOM_INDEX,  /* [-1, bound]: at times outside [0, bound) */
    RANDOM_LABEL,  /* [0, bound), at times RANDOM_IGNORED */
    RANDOM_BIT,    /* 0 or 1 */
    RANDOM_OFFSET, /* [0, bound] */
    RANDOM_STEP    /* the number of the run, from 1 */
} random_fill;

enum { RANDOM_IGNORED = -100 };

typedef struct random_leaf {
    clv_value value;
    random_fill fill;
    int64_t bound;
} random_leaf;

typedef enum random_special { RANDOM_ALL_FINITE, RANDOM_WITH_NAN, RANDOM_WITH_INF } random_special;

typedef struct random_output {
    char name[16];
    clv_value value;
} random_output;

/* A graph, and how it is to be compiled and run. */
typedef struct random_graph {
    clv_graph *graph;
    clv_mesh mesh;
    clv_compile_options options;
    clv_machine *machine; /* of the options; NULL: by default */
    int steps;
    bool relayout;
    random_special special;
    int n_leaves, n_outputs;
    random_leaf leaf[RANDOM_LEAVES];
    random_output output[RANDOM_OUTPUTS];
} random_graph;

/* Builds the graph of a case; layouts are drawn anew for each `layouts`, all else stays. A failure is in the graph. */
void random_graph_build(random_graph *out, const random_spec *spec, uint64_t layouts);
void random_graph_free(random_graph *g);

/* The values of a leaf at a run, as its dtype stores them. */
void random_leaf_fill(const random_graph *g, const random_leaf *leaf, const random_spec *spec, int step, void *out);

/* Writes the graph: mesh, options, a line an op with types, attributes and layouts. */
void random_graph_print(FILE *out, const random_graph *g);
