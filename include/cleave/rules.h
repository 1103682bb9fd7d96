/** @file rules.h - logical axes, and rules that map them to the axes of a mesh (as flax's logical axis rules).
 *
 * Layers name the dimensions of their weights and activations (batch, heads, ...); a list of rules says over which mesh
 * axes each name is split. So one model runs data-parallel, fully sharded, tensor-parallel or 2-D by another list.
 *
 *   name          dimension                                                    of
 *   batch         sequences                                                    activations
 *   seq           tokens of a sequence                                         activations
 *   embed         the model's width M                                          activations, norms, biases added to them
 *   embed_kernel  M as a dimension of a weight                                 kernels, embedding tables
 *   hidden        the feed-forward width F                                     weights and activations
 *   heads         query heads; kv_heads: key and value heads; head_dim         weights and activations
 *   vocab         the vocabulary                                               embedding, logits
 *   layers        no tensor has it, as layers are not stacked: it takes no axis
 *
 * **Names of one's own.** A layer of one's own may use any name of 1 to 63 letters, digits, "_", "-" and ".", that
 * begins with a letter ("experts"), in clv_named_layout, clv_linear_options.features and rules. A rule for a name that
 * is neither of the table nor of a tensor that clv_named_layout laid out in the graph is probably misspelt:
 * clv_compile refuses it (CLV_EINVAL, with the names that the graph has).
 *
 * **How a tensor's layout follows** (flax.linen.logical_to_mesh_axes): rules are tried in order; a rule gives its axes
 * to the dimension of that name which has none yet, provided that the tensor uses none of them already, so the first
 * match wins and an axis is used at most once a tensor; a later rule for the same name is a fallback. With
 * heads -> model before seq -> model, activations between products are split over the sequence, and those between heads
 * over heads: Megatron's sequence parallelism.
 *
 * **Rules that weights stay by.** The axes of heads, kv_heads, hidden, vocab and of names of one's own are those that
 * products are split by: a weight is never moved over them (clv_keep_stationary). Over the axes of embed_kernel it is
 * gathered before use (FSDP, and the X axis of GSPMD's 2-D layouts).
 *
 * Rules that say more of themselves than they hold, or axes that the mesh lacks, are CLV_EINVAL and CLV_EAXIS.
 *
 * **Threads.** Rules are values: what nobody changes meanwhile, any number of threads may read.
 */
#ifndef CLEAVE_RULES_H
#define CLEAVE_RULES_H

#include "cleave/layout.h"
#include "cleave/mesh.h"
#include "cleave/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/** The name of a dimension, a text. CLV_UNNAMED: a dimension that no rule splits. */
typedef const char *clv_logical_axis;

#define CLV_UNNAMED      ((clv_logical_axis)0)
#define CLV_BATCH        "batch"
#define CLV_SEQ          "seq"
#define CLV_EMBED        "embed"
#define CLV_EMBED_KERNEL "embed_kernel"
#define CLV_HIDDEN       "hidden"
#define CLV_HEADS        "heads"
#define CLV_KV_HEADS     "kv_heads"
#define CLV_HEAD_DIM     "head_dim"
#define CLV_VOCAB        "vocab"
#define CLV_LAYERS       "layers"

enum {
    CLV_MAX_RULES = 32,
    CLV_MAX_RULE_AXES = CLV_MAX_AXES,
    CLV_RULES_NAME_SIZE = 256,
    CLV_LOGICAL_AXIS_SIZE = 64 /**< bytes that hold any name */
};

/** A name's axes. */
typedef struct clv_axis_rule {
    char name[CLV_LOGICAL_AXIS_SIZE];
    int n_axes;                  /**< 0: explicitly whole */
    int axis[CLV_MAX_RULE_AXES]; /**< of the mesh, major to minor */
} clv_axis_rule;

/** A plain value; zero-initialised: nothing is split. */
typedef struct clv_axis_rules {
    char name
        [CLV_RULES_NAME_SIZE]; /**< the preset's, or the file's without its folder; what causes call them; "": none */
    int n;
    clv_axis_rule rule[CLV_MAX_RULES];
    int n_optimizer; /**< axes that optimizer state is split over beyond its parameter (ZeRO stage 1) */
    int optimizer[CLV_MAX_RULE_AXES];
} clv_axis_rules;

/** The rules of a preset:
 *
 *   dp                batch -> data
 *   fsdp              batch, embed_kernel -> data
 *   megatron          batch -> data where the mesh has it; heads, kv_heads, hidden, vocab -> model
 *   megatron-sp       megatron, and seq -> model
 *   fsdp+megatron-sp  megatron-sp, and embed_kernel -> data
 *   gspmd-2d          batch, embed_kernel -> X; hidden, heads, kv_heads, vocab, embed -> Y
 *                     (Xu et al. 2021, arXiv:2105.04663)
 *   zero1             megatron where the mesh has "model"; optimizer state split over data as well
 *
 * NULL: megatron, over those of the axes data and model that the mesh has.
 * @return CLV_EAXIS when the mesh lacks an axis that the preset needs, or has one that it does not use, with the
 *         presets that fit; CLV_EINVAL for an unknown preset */
CLV_API clv_status clv_axis_rules_preset(clv_axis_rules *out, const char *preset, const clv_mesh *mesh, clv_error *err);
/** The presets' names, by number: "dp", ...; NULL past the end. */
CLV_API const char *clv_axis_rules_preset_name(int i);

/** Rules as JSON, comments (two slashes, or slash-star) allowed:
 *
 *   { "rules": [["batch", "data"], ["embed_kernel", ["data", "pod"]], ["seq", null]],
 *     "optimizer": ["data"] }
 *
 * A pair's second half is an axis, a list of axes (major to minor), or null for none. "optimizer" is optional.
 * @param where names the text in messages
 * @return CLV_EFORMAT, CLV_EINVAL (what is no name), CLV_EAXIS (axis that the mesh lacks, or twice in a rule),
 *         CLV_ELIMIT, CLV_ENOMEM */
CLV_API clv_status clv_axis_rules_parse(clv_axis_rules *out, const char *json, size_t size, const clv_mesh *mesh,
                                        const char *where, clv_error *err);
/** The same from a file.
 *  @return clv_axis_rules_parse's; CLV_ENOTFOUND, CLV_EIO and CLV_ELIMIT, naming it; CLV_ENOMEM */
CLV_API clv_status clv_axis_rules_read(clv_axis_rules *out, const char *path, const clv_mesh *mesh, clv_error *err);

/** Adds a rule behind those there are. axes: of the mesh, major to minor, "data" or "data,pod"; "" or NULL: explicitly
 *  whole.
 *  @return CLV_EINVAL (what is no name), CLV_EAXIS, CLV_ELIMIT (CLV_MAX_RULES), CLV_EUNSUPPORTED (axes for layers) */
CLV_API clv_status clv_axis_rules_add(clv_axis_rules *rules, clv_logical_axis name, const char *axes,
                                      const clv_mesh *mesh, clv_error *err);

/** The rules without those for `name`. */
CLV_API clv_axis_rules clv_axis_rules_without(const clv_axis_rules *rules, clv_logical_axis name);

/** The layout of a tensor whose dimensions have these names. rules may be NULL: replicated.
 *  @return CLV_EINVAL for a name that is none, or rules that say more than they hold; CLV_EAXIS for axes that the mesh
 *          lacks */
CLV_API clv_status clv_axis_rules_layout(clv_layout *out, const clv_axis_rules *rules, const clv_mesh *mesh, int rank,
                                         const clv_logical_axis *names, clv_error *err);

/** The layout of optimizer state of a parameter: as the parameter, its largest dimension cut further by the rules'
 *  optimizer axes that the parameter does not use.
 *  @return CLV_EINVAL and CLV_EAXIS as clv_axis_rules_layout; clv_layout_check's of the parameter's */
CLV_API clv_status clv_axis_rules_optimizer_layout(clv_layout *out, const clv_axis_rules *rules, const clv_mesh *mesh,
                                                   const clv_layout *parameter, const int64_t *shape, clv_error *err);

#ifdef __cplusplus
}
#endif
#endif
