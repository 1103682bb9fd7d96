/* trace_file.h - trace file: writes session events as a Chrome/Perfetto trace, reads it back as a summary table. */
#pragma once

#include <stdbool.h>

#include "cleave/status.h"

typedef enum clv_trace_kind {
    CLV_TRACE_RUN,         /* a run of a program */
    CLV_TRACE_INSTRUCTION, /* an op or a collective; the start of an overlapped collective */
    CLV_TRACE_WAIT,        /* waiting for other ranks, within another event */
    CLV_TRACE_COMPLETION,  /* waiting for the completion of an overlapped collective */
    CLV_TRACE_TRANSFER     /* the transfer of an overlapped collective */
} clv_trace_kind;

/* An event. Processes exchange it as five 64-bit words. */
typedef struct clv_trace_event {
    int64_t begun_ns, ended_ns;
    int64_t stealing_ns; /* of a wait: time spent on stolen tasks */
    int32_t rank, step;
    int32_t instruction; /* index in the program; -1 for a run */
    int16_t program, kind;
} clv_trace_event;

/* The part of a model that an instruction belongs to. */
typedef enum clv_trace_place {
    CLV_TRACE_ATTENTION,
    CLV_TRACE_FEED_FORWARD,
    CLV_TRACE_REST,
    CLV_TRACE_PLACE_COUNT
} clv_trace_place;

/* "attention", "feed-forward", "rest". */
const char *clv_trace_place_name(clv_trace_place place);

/* An instruction of a traced program. */
typedef struct clv_trace_op {
    const char *name, *kind;
    char axes[96]; /* mesh axes of a collective; "": none */
    int64_t layer; /* -1: none */
    clv_trace_place place;
    bool moves;    /* a collective */
    bool flies;    /* overlapped with ops */
    bool backward; /* of the backward pass */
    double flops, bytes;
} clv_trace_op;

typedef struct clv_trace_program {
    int n;
    clv_trace_op *ops; /* [n] */
} clv_trace_program;

/* Predicted seconds of a step. */
typedef struct clv_trace_seconds {
    double seconds, communication;
} clv_trace_seconds;

typedef struct clv_trace_content {
    const char *mesh;
    int ranks, processes;
    int seen;              /* ranks with events */
    const int *process_of; /* [ranks] */
    int64_t steps, dropped_events;
    bool aligned;                                       /* clocks of other hosts were set by the ends of collectives */
    const char *machine;                                /* of the predictions */
    clv_trace_seconds predicted[CLV_TRACE_PLACE_COUNT]; /* of a step, mean */
    int n_programs;
    clv_trace_program *programs;
    int64_t n;
    clv_trace_event *events; /* [n]; writing sorts them */
} clv_trace_content;

clv_status clv_trace_file_write(clv_trace_content *content, const char *path, clv_error *err);

/* Times of a part of the model: means over ranks and steps, in seconds. */
typedef struct clv_trace_sums {
    double compute, moving, waiting, overlapped; /* waiting: communication time in which nothing moves */
    double stealing;                             /* part of waiting spent on stolen tasks */
    double bytes;                                /* a step, on the rank that receives most */
    int64_t collectives;                         /* a step of a rank */
    clv_trace_seconds predicted;
} clv_trace_sums;

/* Times of one kind of op or collective. */
typedef struct clv_trace_op_sums {
    char name[64];
    double calls, seconds, waiting, stealing; /* a step, on a rank; seconds include waiting, which includes stealing */
} clv_trace_op_sums;

enum { CLV_TRACE_OP_KINDS = 128 };

typedef struct clv_trace_table {
    int64_t ranks, seen, processes, steps, dropped_events;
    double seconds; /* of a step */
    char mesh[256], machine[128];
    clv_trace_sums of[CLV_TRACE_PLACE_COUNT];
    int n_kinds;
    clv_trace_op_sums kinds[CLV_TRACE_OP_KINDS]; /* longest first */
} clv_trace_table;

/* @return CLV_EFORMAT, CLV_EUNSUPPORTED (another version), clv_json_load's */
clv_status clv_trace_file_read(clv_trace_table *out, const char *path, clv_error *err);
