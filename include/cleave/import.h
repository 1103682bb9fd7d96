/** @file import.h - programs that others wrote: StableHLO text, as jax.jit(f).lower(...).as_text() gives it, and
 *  archives of PyTorch's torch.export.save.
 *
 * A program is read (clv_import_read), listed (clv_import_argument_or_result, clv_import_op_kind, ...), and put into a
 * graph on any mesh (clv_import_stablehlo): its arguments become inputs, its results outputs, its shardings (Shardy's)
 * stated layouts, and each op is named after the line of Python that made it. From there on it is a graph like any
 * other: compiled, planned, explained, run (docs/programs.md).
 *
 * Manual SPMD (shard_map) becomes ops on whole tensors that have a dimension for each axis over which devices differ;
 * clv_import_fault says what is wrong with its psums and out_specs.
 *
 * Of an archive, parameters and buffers are state of the graph, by PyTorch's names, and ops are named after the module
 * that made them. Its weights are read from the file when a session loads them.
 *
 * Layouts may be stated beside the program, by names of tensors (clv_import_layout): so one that states none, as
 * PyTorch's do, is planned and run with tensor parallelism or FSDP.
 *
 * Loops of a known number of turns (scan) are unrolled; calls are put in place. What is not supported (other dtypes,
 * dynamic shapes, ops without a counterpart) is an error that names file, line and column, or file and node.
 *
 * **Threads.** Any thread may list a program; one at a time may put it into graphs.
 */
#ifndef CLEAVE_IMPORT_H
#define CLEAVE_IMPORT_H

#include "cleave/session.h"

#ifdef __cplusplus
extern "C" {
#endif

/** A program that was read. Immutable, but for clv_import_layout, and clv_import_stablehlo, which notes constants
 *  in it. */
typedef struct clv_import clv_import;

/** Reads a file: text, or an archive, which stays open until the program is freed. Free with clv_import_free.
 *  @return CLV_ESYNTAX, CLV_EUNSUPPORTED, CLV_ELIMIT naming file, line and column; CLV_ENOTFOUND, CLV_EFORMAT for
 *          what is no file, or a damaged archive, CLV_ENOMEM
 */
CLV_EXPERIMENTAL clv_status clv_import_read(clv_import **out, const char *path, clv_error *err);
/** The same of `size` bytes of text, or of an archive, which are copied; `name` stands for the file in messages. Free
 *  with clv_import_free.
 *  @return clv_import_read's, but for those of files */
CLV_EXPERIMENTAL clv_status clv_import_parse(clv_import **out, const char *text, size_t size, const char *name,
                                             clv_error *err);
/** NULL is a no-op. */
CLV_EXPERIMENTAL void clv_import_free(clv_import *program);
/** Whether a file is named as a program (.mlir, .pt2), or begins as one does: with "module", "#loc" or a comment of
 *  StableHLO text, or as an archive. */
CLV_EXPERIMENTAL bool clv_import_is_program(const char *path);

/** The mesh of clv_import_layouts, or that the text names: of several, the one with the most axes.
 *  @return whether there is one with axes */
CLV_EXPERIMENTAL bool clv_import_mesh(const clv_import *program, clv_mesh *out);

/** An argument or result of the program. Strings live with the program. */
typedef struct clv_import_argument_or_result_info {
    size_t size;          /**< set by the caller: sizeof the struct, or 0 */
    const char *name;     /**< "p['w']", "arg0"; "result[0]" */
    bool is_result;       /**< a result, not an argument */
    clv_type type;        /**< of a tensor that is supported: clv_import_stablehlo says which are not */
    const char *sharding; /**< the layout that the text states, or clv_import_layout, as text: "data,_"; NULL: none */
    int line;             /**< in the text; of an archive the number of the argument or node */
    bool is_state;        /**< an argument that is a parameter or buffer: state of the graph */
    bool is_constant;     /**< an argument that is a constant of an archive */
    const char *same_as;  /**< the parameter whose other name this is, of tied weights; NULL: it is one of its own */
} clv_import_argument_or_result_info;
/** Describes argument or result i in *out: the arguments, then the results; past the end the name is NULL.
 *  @return CLV_EINVAL for a negative i or an invalid size */
CLV_EXPERIMENTAL clv_status clv_import_argument_or_result(const clv_import *program, int i,
                                                          clv_import_argument_or_result_info *out, clv_error *err);

/** A kind of op of the text. */
typedef struct clv_import_op_kind_info {
    size_t size;      /**< set by the caller: sizeof the struct, or 0 */
    const char *name; /**< "stablehlo.dot_general"; past the end NULL */
    int count;        /**< in the text; a function that is called twice counts once */
    bool supported;
    int line; /**< of the first one; of an archive the number of its node */
} clv_import_op_kind_info;
/** Describes kind i, by name, in *out. @return CLV_EINVAL for a negative i or an invalid size */
CLV_EXPERIMENTAL clv_status clv_import_op_kind(const clv_import *program, int i, clv_import_op_kind_info *out,
                                               clv_error *err);

/** Name of function i of the text, and the number of its ops; NULL past the end. */
CLV_EXPERIMENTAL const char *clv_import_function(const clv_import *program, int i, int *ops);

/** States a layout, as clv_layout_parse reads it ("_,model"), of each argument, parameter and result whose name fits
 *  `names`, in which '*' stands for any characters, and of which none was stated so before. It takes the place of what
 *  the program states. It names axes of the graph's mesh, or of clv_import_mesh, which may lack there.
 *  @return CLV_EINVAL if no name fits; CLV_ENOMEM */
CLV_EXPERIMENTAL clv_status clv_import_layout(clv_import *program, const char *names, const char *layout,
                                              clv_error *err);
/** States those of a file, in their order: {"mesh": "data=2,model=4", "layouts": {"*.q_proj.weight": "model,_"}}.
 *  "mesh", which may be left out, is clv_import_mesh from then on.
 *  @return CLV_EFORMAT naming the file and the key; CLV_EINVAL as clv_import_layout; CLV_ENOTFOUND, CLV_ENOMEM */
CLV_EXPERIMENTAL clv_status clv_import_layouts(clv_import *program, const char *path, clv_error *err);

/** Zero-initialised = defaults. */
typedef struct clv_import_options {
    size_t size;  /**< sizeof the struct, or 0 */
    bool each_op; /**< also an output for each op of the text, in the order of execution: "model.py:12.dot_general #41";
                       elements that are repeated are given once */
    bool differences;         /**< also an output for each clv_import_fault_info.output: how far devices differ */
    const char *gradients_of; /**< name of a result, a float scalar, or "" for the only one: also outputs "grad.NAME",
                                   its gradients with respect to the parameters; NULL: none */
    bool no_patterns; /**< ops as they are in the text; false: what attention, norms, activations and the cross-entropy
                           are made of becomes the library's op */
} clv_import_options;

/** Puts the program into a graph: an input for each argument, state for each parameter and buffer, an output for each
 *  result, by clv_import_argument_or_result_info.name. Shardings that the text states, and clv_import_layout, are those
 *  of inputs, state, outputs and constraints; axes that the graph's mesh lacks have one rank there. Constants of
 *  several values become state "constant.N". Values of state: clv_import_state_source. options NULL: defaults.
 *  @return CLV_EUNSUPPORTED, CLV_EDTYPE, CLV_ESHAPE naming file, line and column (or node) of what cannot be imported;
 *          CLV_ELIMIT for a loop of more than 4096 turns, or more than 2^22 ops; CLV_EINVAL for a layout that does not
 *          fit, and for gradients of what is no scalar result; CLV_ENOMEM */
CLV_EXPERIMENTAL clv_status clv_import_stablehlo(clv_graph *graph, clv_import *program,
                                                 const clv_import_options *options, clv_error *err);
/** What is wrong with the program's manual SPMD (shard_map), found when it was last put into a graph. */
typedef struct clv_import_fault_info {
    size_t size;        /**< set by the caller: sizeof the struct, or 0 */
    const char *kind;   /**< "missing psum", "psum too many", "psum of means", "wrong axis", "psum too late",
                             "counted too often", "out_specs"; past the end NULL */
    const char *tensor; /**< the result that is wrong, "result[0]", or the psum, "model.py:12.all_reduce" */
    const char *axes;   /**< of the mesh: "data, model" */
    const char *text;   /**< which op is at fault, and what to write */
    const char *output; /**< the output that says how far devices differ: a scalar, 0 if values are alike after all;
                             NULL: none. It is made with clv_import_options.differences */
    int line;           /**< of the op at fault, in the text */
} clv_import_fault_info;
/** Describes fault i in *out. @return CLV_EINVAL for a negative i or an invalid size */
CLV_EXPERIMENTAL clv_status clv_import_fault(const clv_import *program, int i, clv_import_fault_info *out,
                                             clv_error *err);
/** Ops of the library whose parts are in a program, as the last clv_import_stablehlo found them. */
typedef struct clv_import_pattern_info {
    size_t size;       /**< set by the caller: sizeof the struct, or 0 */
    const char *name;  /**< "attention"; past the end NULL */
    bool gradient;     /**< its gradient */
    int recognised;    /**< places, with loops unrolled, where the op stands for its parts */
    int left;          /**< places where it does not, as others read the inside */
    const char *where; /**< the first place that was left: "model.py:12"; NULL: none */
} clv_import_pattern_info;
/** Describes pattern i in *out. @return CLV_EINVAL for a negative i or an invalid size */
CLV_EXPERIMENTAL clv_status clv_import_pattern(const clv_import *program, int i, clv_import_pattern_info *out,
                                               clv_error *err);
/** A clv_state_source: the values of constants, parameters and buffers. arg: the clv_import.
 *  @return CLV_OK; CLV_ENOTFOUND for a parameter whose values the archive does not have; errors of reading it */
CLV_EXPERIMENTAL clv_status clv_import_state_source(void *arg, const char *name, const clv_type *type,
                                                    const clv_shard *box, void *out, int *known, clv_error *err);

#ifdef __cplusplus
}
#endif
#endif
