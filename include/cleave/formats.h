/** @file formats.h - layouts in the words of JAX, PyTorch, Shardy and Megatron-LM: written, and read as rules.
 *
 *   jax       Python with a JSON text: a mesh, and a PartitionSpec for each parameter by its name in the checkpoint
 *   dtensor   likewise: a plan for torch's parallelize_module, and what fully_shard or DDP split
 *   shardy    sdy.mesh and the sdy.sharding of each parameter
 *   megatron  flags of Megatron-LM
 *
 * A layout that a format cannot say is refused, with the reason. docs/programs.md shows each. All functions are
 * thread-safe and keep no pointers.
 */
#ifndef CLEAVE_FORMATS_H
#define CLEAVE_FORMATS_H

#include "cleave/plan_search.h"

#ifdef __cplusplus
extern "C" {
#endif

/** A format of layouts. */
typedef enum clv_layout_format {
    CLV_FORMAT_NONE,
    CLV_FORMAT_JAX,
    CLV_FORMAT_DTENSOR,
    CLV_FORMAT_SHARDY,
    CLV_FORMAT_MEGATRON
} clv_layout_format;

/** "none", "jax", "dtensor", "shardy", "megatron"; "unknown" for a value outside the enum. */
CLV_EXPERIMENTAL const char *clv_layout_format_name(clv_layout_format format);

/** Writes the layout of a model's training step: plan->model, mesh and rules, and where the format has them batch, seq,
 *  dtype, accumulate and recompute. The caller frees *out with free().
 *  @return CLV_EUNSUPPORTED naming what the format cannot say, and what it can; CLV_EINVAL for a plan without a model;
 *          errors of clv_model_open and clv_axis_rules_preset; CLV_ENOMEM */
CLV_EXPERIMENTAL clv_status clv_layouts_write(char **out, clv_layout_format format, const clv_plan_options *plan,
                                              clv_error *err);
/** Writes the stated layouts of a graph's inputs and state, by name: jax and shardy. The caller frees *out with free().
 *  @return CLV_EUNSUPPORTED as clv_layouts_write, and for the other formats; CLV_ENOMEM */
CLV_EXPERIMENTAL clv_status clv_layouts_write_graph(char **out, clv_layout_format format, const clv_graph *graph,
                                                    clv_error *err);

/** A layout that was read. */
typedef struct clv_read_layouts {
    size_t size; /**< set by the caller: sizeof the struct, or 0 */
    clv_layout_format format;
    clv_saved_plan plan;    /**< mesh, rules and options; rules that are a preset's have its name */
    int64_t batch, seq;     /**< of Megatron's flags; 0: not stated */
    int64_t virtual_stages; /**< likewise */
    clv_dtype dtype;        /**< likewise; CLV_F32: not stated */
} clv_read_layouts;

/** Reads what clv_layouts_write wrote as jax, dtensor or megatron, or such a text by other hands: a JSON object with
 *  "mesh" and "specs" or "plan", alone or in Python, or flags. Flags that say nothing of layouts are passed over.
 *  @param model  config.json or its folder, whose parameters are named; NULL for Megatron's flags
 *  @return CLV_EFORMAT for a text of no such form; CLV_EINVAL naming the parameter or module that the model does not
 *          have, or the flag that is not known; CLV_EUNSUPPORTED naming the first parameter whose layout no rules give;
 *          CLV_EAXIS for an axis that the mesh does not have; errors of clv_model_open; CLV_ENOMEM */
CLV_EXPERIMENTAL clv_status clv_layouts_read(clv_read_layouts *out, const char *text, size_t size, const char *where,
                                             const char *model, clv_error *err);

#ifdef __cplusplus
}
#endif
#endif
