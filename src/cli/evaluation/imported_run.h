/* imported_run.h - programs of others (-m FILE): reading, compiling for the mesh of the options, running on
 * values of a file.
 */
#pragma once

#include "cleave/evaluate.h"
#include "cleave/import.h"
#include "cli/options/model_options.h"
#include "cli/output/table.h"

/* Reads a program, and layouts for it (NULL: none); what it does not support is a usage error, as the program is the
 * request. */
clv_status clv_imported_read(clv_import **out, const char *path, const char *layouts, clv_error *err);
/* The mesh of --mesh or -tp; else the one that --layouts or the text names; else one rank. */
clv_status clv_imported_mesh(clv_mesh *out, const clv_mesh_option *option, const clv_import *program, clv_error *err);
/* Puts it into a graph on a mesh; compiles that. how NULL: defaults. */
clv_status clv_imported_graph(clv_graph **out, clv_import *program, const clv_mesh *mesh, const clv_import_options *how,
                              clv_error *err);
clv_status clv_imported_compile(clv_program **out, clv_import *program, const clv_mesh *mesh,
                                const clv_compile_options *options, const clv_import_options *how, clv_error *err);

/* Notes on stderr: axes of the mesh whose ranks all do the same, or have nothing to do; what is wrong with the
 * program's manual SPMD, as it was last put into a graph. */
void clv_imported_note_mesh(const clv_program *compiled);
void clv_imported_note_faults(const clv_import *program);

/* An input or output with its values, which the run owns. */
typedef struct clv_imported_tensor {
    const char *name; /* lives with the compiled program */
    clv_type type;
    void *data;
    bool is_state; /* a parameter that the file of the inputs has */
} clv_imported_tensor;

/* A program on a mesh, and what came of it. */
typedef struct clv_imported_run {
    clv_import *program;
    clv_program *compiled;
    int n_in, n_out;
    clv_imported_tensor *in, *out;
    double *seconds; /* of the timed runs, the smallest first */
} clv_imported_run;

/* Runs the program of option->path on its mesh: `timed` times, at least once, after two runs that are not timed if it
 * is more than once. values: a safetensors file with the inputs by name; NULL: random ones
 * by `seed`: floats in [-1, 1), integers 0 or 1. Free with clv_imported_run_free, also on failure. */
clv_status clv_imported_run_execute(clv_imported_run *out, clv_model_option *option, const char *values, uint64_t seed,
                                    const clv_import_options *what, int64_t timed, clv_error *err);
void clv_imported_run_free(clv_imported_run *run);

/* CLV_ENONFINITE, naming the first result that is NaN or infinite. */
clv_status clv_imported_check_finite(const clv_imported_run *run, clv_error *err);
/* Compares the outputs with those of another run of the program, or, `want` NULL, with tensors of a file. */
clv_status clv_imported_compare(clv_comparison *out, const clv_imported_run *got, const clv_imported_run *want,
                                const char *file, double tolerance, clv_error *err);
/* Adds a list of what is wrong with the program's manual SPMD, but for devices that were found alike; whether there is
 * something. The run may have a program alone. */
bool clv_imported_add_faults(clv_table *t, const clv_imported_run *run, double tolerance);
/* Writes the outputs and inputs as safetensors. */
clv_status clv_imported_write(const clv_imported_run *run, const char *path, clv_error *err);
