/** @file rules.h - logical axes, and rules that map them to mesh axes (like flax's logical axis rules).
 *
 * Layers name the dimensions of their weights and activations (batch, heads, ...). A list of rules says which mesh axes
 * split each name. The same model runs data-parallel, fully sharded, tensor-parallel or 2-D with another list.
 *
 *   name          dimension                                  in
 *   batch         sequences                                  activations
 *   seq           positions of a sequence                    activations
 *   embed         model width M                              activations, norms, biases of width M
 *   embed_kernel  model width M                              weight matrices, embedding tables
 *   mlp           feed-forward width F                       weights, activations
 *   heads         query heads                                weights, activations
 *   kv_heads      key and value heads                        weights, activations, KV caches
 *   head_dim      width of a head                            weights, activations
 *   vocab         vocabulary                                 embedding table, logits
 *   expert        experts of a mixture                       weights (custom names have the same properties)
 *   cache_seq     positions of a KV cache                    KV caches
 *   layers        none: layers are not stacked, so a rule for it must have no mesh axis
 *
 * **Custom names.** A custom layer may use any other name ("experts") in clv_named_layout, clv_linear_options.features
 * and rules: 1 to 63 letters, digits, "_", "-" and ".", starting with a letter. clv_compile refuses a rule for a name
 * that is neither in the table above nor used by a clv_named_layout of the graph, because it is probably misspelt:
 * CLV_EINVAL, with the names that the graph has.
 *
 * **Resolution** (flax.linen.logical_to_mesh_axes). Rules are tried in order. A rule assigns its mesh axes to the
 * dimension with its name, unless that dimension already has axes or the tensor already uses one of them. So the first
 * match wins, each mesh axis is used at most once per tensor, and a later rule for the same name is a fallback. With
 * heads -> model before seq -> model, activations are split by heads inside attention and by sequence outside it: this
 * is Megatron's sequence parallelism.
 *
 * **Stationary weights.** The axes of heads, kv_heads, mlp, vocab and custom names are tensor-parallel: a weight is
 * never moved over them (clv_keep_stationary). Over the axes of embed_kernel a weight is gathered before use (FSDP, and
 * the X axis of GSPMD's 2-D layouts).
 *
 * Functions return CLV_EINVAL for a damaged clv_axis_rules (a count out of range, a name without an end), and CLV_EAXIS
 * for an axis that the mesh does not have.
 *
 * **Threads.** Rules are plain values: any number of threads may read one that nobody writes.
 */
#ifndef CLEAVE_RULES_H
#define CLEAVE_RULES_H

#include "cleave/layout.h"
#include "cleave/mesh.h"
#include "cleave/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/** The name of a dimension. CLV_UNNAMED: the dimension has no name, and no rule splits it. */
typedef const char *clv_logical_axis;

#define CLV_UNNAMED      ((clv_logical_axis)0)
#define CLV_BATCH        "batch"
#define CLV_SEQ          "seq"
#define CLV_EMBED        "embed"
#define CLV_EMBED_KERNEL "embed_kernel"
#define CLV_MLP          "mlp"
#define CLV_HEADS        "heads"
#define CLV_KV_HEADS     "kv_heads"
#define CLV_HEAD_DIM     "head_dim"
#define CLV_VOCAB        "vocab"
#define CLV_EXPERT       "expert"
#define CLV_CACHE_SEQ    "cache_seq"
#define CLV_LAYERS       "layers"

enum {
    CLV_MAX_RULES = 32,
    CLV_MAX_RULE_AXES = CLV_MAX_AXES,
    CLV_RULES_NAME_SIZE = 256,
    CLV_MAX_VIRTUAL_STAGES = 256, /**< most runs of layers of all pipeline stages together */
    CLV_LOGICAL_AXIS_SIZE = 64    /**< bytes of the longest name, with its terminating 0 */
};

/** A logical axis, and the mesh axes that split it. */
typedef struct clv_axis_rule {
    char name[CLV_LOGICAL_AXIS_SIZE];
    int n_axes;                  /**< 0: not split */
    int axis[CLV_MAX_RULE_AXES]; /**< mesh axes, major to minor */
} clv_axis_rule;

/** A list of rules. Zero-initialised: nothing is split. */
typedef struct clv_axis_rules {
    /** Name that explanations print: the preset's, or the file name without its folder; "": none. */
    char name[CLV_RULES_NAME_SIZE];
    int n;
    clv_axis_rule rule[CLV_MAX_RULES];
    int n_optimizer; /**< axes that split optimizer state further than its parameter (ZeRO stage 1) */
    int optimizer[CLV_MAX_RULE_AXES];
    int virtual_stages; /**< runs of layers of each pipeline stage: clv_axis_rules_set_stages; 0: one */
    int n_stage_layers; /**< 0: layers are balanced */
    int stage_layers[CLV_MAX_VIRTUAL_STAGES];
    double head_layers; /**< the time of the head in layers, by which they are; clv_model_open and _new predict it */
} clv_axis_rules;

/** Writes the rules of a preset:
 *
 *   dp                batch -> data
 *   fsdp              batch, embed_kernel -> data
 *   megatron          batch -> data if the mesh has it; heads, kv_heads, mlp, vocab -> model
 *   megatron-sp       megatron, and seq -> model
 *   fsdp+megatron-sp  megatron-sp, and embed_kernel -> data
 *   gspmd-2d          batch, embed_kernel -> X; mlp, heads, kv_heads, vocab, embed -> Y
 *                     (Xu et al. 2021, arXiv:2105.04663)
 *   zero1             megatron if the mesh has "model"; optimizer state also split over data
 *   zero1+megatron-sp megatron-sp, and optimizer state also split over data (Megatron's distributed optimizer)
 *
 * Each but gspmd-2d also takes a mesh axis "expert": expert -> expert; batch, and what is split over data, also over
 * expert, where a tensor has no experts. So an expert axis is one of data parallelism outside of experts.
 *
 * Each but gspmd-2d also takes a mesh axis "context": seq, and with SP seq over context and model, and cache_seq. What
 * is split over data by fsdp and zero1 is also split over context.
 *
 * Each but gspmd-2d also takes a mesh axis "pipe": layers -> pipe, whose coordinates are pipeline stages of
 * consecutive layers (clv_axis_rules_set_stages). Embeddings are on the first, the head on the last.
 *
 * preset NULL: megatron, using whichever of the axes data, expert, context and model the mesh has.
 * @return CLV_EAXIS if the mesh lacks an axis that the preset needs or has one that it does not use, naming the presets
 *         that fit; CLV_EINVAL for an unknown preset */
CLV_API clv_status clv_axis_rules_preset(clv_axis_rules *out, const char *preset, const clv_mesh *mesh, clv_error *err);
/** Name of preset i ("dp", ...); NULL past the last. */
CLV_API const char *clv_axis_rules_preset_name(int i);

/** Parses rules from JSON; // and slash-star comments are allowed:
 *
 *   { "rules": [["batch", "data"], ["embed_kernel", ["data", "pod"]], ["seq", null]],
 *     "optimizer": ["data"] }
 *
 * Each rule is a pair: a name, and one mesh axis, a list of mesh axes (major to minor), or null for none. "optimizer"
 * is optional, as "virtual_stages": N and "stages": [8, 8, 9, 7] are (clv_axis_rules_set_stages). Keys of
 * a saved plan (clv_saved_plan of plan_search.h: mesh, accumulate, ...) are passed over.
 * @param where  name of the text in messages
 * @return CLV_EFORMAT; CLV_EINVAL for an invalid name; CLV_EAXIS for an axis that the mesh does not have or that a rule
 *         has twice; CLV_ELIMIT for more than CLV_MAX_RULES rules, or CLV_MAX_RULE_AXES axes of one; CLV_ENOMEM */
CLV_API clv_status clv_axis_rules_parse(clv_axis_rules *out, const char *json, size_t size, const clv_mesh *mesh,
                                        const char *where, clv_error *err);
/** Parses rules from a JSON file.
 *  @return as clv_axis_rules_parse; CLV_ENOTFOUND, CLV_EIO and CLV_ELIMIT name the file */
CLV_API clv_status clv_axis_rules_read(clv_axis_rules *out, const char *path, const clv_mesh *mesh, clv_error *err);

/** Appends a rule.
 *  @param axes  mesh axes, major to minor: "data" or "data,pod"; "" or NULL: not split
 *  @return CLV_EINVAL for an invalid name, CLV_EAXIS, CLV_ELIMIT (CLV_MAX_RULES), CLV_EUNSUPPORTED (two axes for
 *          layers) */
CLV_API clv_status clv_axis_rules_add(clv_axis_rules *rules, clv_logical_axis name, const char *axes,
                                      const clv_mesh *mesh, clv_error *err);

/** Sets how the layers go over the axis of pipeline stages, that of CLV_LAYERS: in runs of consecutive layers, of which
 *  stage s of p has runs s, p + s, 2 p + s, ...
 *  @param virtual_stages  runs a stage, 1 or more: the interleaved schedule
 *  @param layers          [n] layers of each run, 1 or more, n = p virtual_stages; NULL (n 0): as even as
 *                         can be or, if that makes the longest run shorter by a twentieth, balanced; the last one
 *                         counts as `head_layers` longer
 *  @return CLV_EAXIS: the rules have no axis of stages; CLV_EINVAL for another n, or a run without layers; CLV_ELIMIT:
 *          more than CLV_MAX_VIRTUAL_STAGES runs */
CLV_EXPERIMENTAL clv_status clv_axis_rules_set_stages(clv_axis_rules *rules, const clv_mesh *mesh, int virtual_stages,
                                                      const int *layers, int n, clv_error *err);

/** Returns a copy without the rules for `name`. */
CLV_API clv_axis_rules clv_axis_rules_without(const clv_axis_rules *rules, clv_logical_axis name);

/** Writes the layout of a tensor whose dimensions have these names; rules NULL: replicated.
 *  @return CLV_EINVAL for an invalid name or damaged rules; CLV_EAXIS for an axis that the mesh does not have */
CLV_API clv_status clv_axis_rules_layout(clv_layout *out, const clv_axis_rules *rules, const clv_mesh *mesh, int rank,
                                         const clv_logical_axis *names, clv_error *err);

/** Writes the layout of a parameter's optimizer state: the parameter's layout, with its largest dimension split further
 *  by those optimizer axes of the rules that the parameter does not use.
 *  @return CLV_EINVAL and CLV_EAXIS as clv_axis_rules_layout; errors of clv_layout_check for the parameter's layout */
CLV_API clv_status clv_axis_rules_optimizer_layout(clv_layout *out, const clv_axis_rules *rules, const clv_mesh *mesh,
                                                   const clv_layout *parameter, const int64_t *shape, clv_error *err);

#ifdef __cplusplus
}
#endif
#endif
