/** @file export.h - writes graphs as StableHLO text, so that JAX, or whatever else reads it, can run them.
 *
 * The text is a module of one function. Its arguments are the graph's inputs and state, its results the outputs and, as
 * "new.NAME", the state that is assigned; the mesh and every stated layout are Shardy's (sdy.mesh, sdy.sharding,
 * sdy.sharding_constraint). Ops that StableHLO lacks (attention, norms, rotary positions, cross-entropy, optimizers)
 * are written as their parts. clv_import_parse (import.h) reads it, too (docs/programs.md).
 *
 * **Threads.** Any thread may write a graph that nobody builds.
 */
#ifndef CLEAVE_EXPORT_H
#define CLEAVE_EXPORT_H

#include "cleave/session.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Writes the graph as text, which the caller frees with free(); *size, unless size is NULL, receives its length.
 *  Alignments of layouts are left out. JAX splits arguments and results evenly: dimensions that are not even are whole
 *  there, and arguments get their layouts in the body.
 *  @param source  state that it knows, and that is not assigned, is written as constants; it is asked for whole tensors
 *                 (clv_import_state_source for a program of import.h). NULL: all state is arguments
 *  @return CLV_EUNSUPPORTED naming an op without a form in StableHLO (experts with a capacity or in groups, quantized
 *          and prepacked products, custom ops); the status of a graph that failed; errors of the source;
 *          CLV_ENOMEM */
CLV_EXPERIMENTAL clv_status clv_export_stablehlo(char **out, size_t *size, const clv_graph *graph,
                                                 clv_state_source *source, void *arg, clv_error *err);

#ifdef __cplusplus
}
#endif
#endif
