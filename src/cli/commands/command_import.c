/* command_import.c - the `cleave import` command: lists a program of others: inputs, state, results, ops, memory.
 */
#include "cli/command.h"
#include "cli/evaluation/imported_run.h"

static void add_ports(clv_table *t, const clv_import *program)
{
    clv_import_argument_or_result_info port = {.size = sizeof port};
    for (int i = 0; clv_import_argument_or_result(program, i, &port, NULL) == CLV_OK && port.name; i++) {
        char type[CLV_TYPE_TEXT];
        clv_type_print(type, sizeof type, &port.type);
        clv_table_begin_row(t);
        clv_table_text(t, "tensor", port.name);
        clv_table_text(t, "kind",
                       port.is_result     ? "result"
                       : port.is_state    ? "state"
                       : port.is_constant ? "constant"
                                          : "input");
        clv_table_text(t, "type", type);
        clv_table_bytes(t, "bytes", (double)clv_type_elems(&port.type) * (double)clv_dtype_size(port.type.dtype));
        clv_table_text(t, "sharding", port.same_as ? "as the same weight" : port.sharding ? port.sharding : "-");
        clv_table_int(t, "line", port.line);
    }
}

static void add_ops(clv_table *t, const clv_import *program)
{
    clv_import_op_kind_info op = {.size = sizeof op};
    clv_table_begin_list(t, "ops");
    for (int i = 0; clv_import_op_kind(program, i, &op, NULL) == CLV_OK && op.name; i++) {
        clv_table_begin_row(t);
        clv_table_text(t, "op", op.name);
        clv_table_int(t, "count", op.count);
        clv_table_bool(t, "supported", op.supported);
        clv_table_int(t, "line", op.line);
    }
}

/* Ops of the library that were recognised, and where they were not, as others read the inside. */
static void add_patterns(clv_table *t, const clv_import *program)
{
    clv_import_pattern_info p = {.size = sizeof p};
    clv_table_begin_list(t, "patterns");
    for (int i = 0; clv_import_pattern(program, i, &p, NULL) == CLV_OK && p.name; i++) {
        clv_table_begin_row(t);
        clv_table_text(t, "pattern", p.name);
        clv_table_text(t, "pass", p.gradient ? "gradient" : "forward");
        clv_table_int(t, "recognised", p.recognised);
        clv_table_int(t, "left_as_parts", p.left);
        clv_table_text(t, "first_left", p.where ? p.where : "-");
    }
}

/* What the program takes on its own mesh, if it can be compiled, and what is wrong with its manual SPMD. */
static clv_status add_memory(clv_table *t, clv_import *program, const clv_mesh *mesh, bool no_patterns, clv_error *err)
{
    const clv_import_options how = {.size = sizeof how, .no_patterns = no_patterns};
    clv_program *compiled;
    char text[CLV_MESH_TEXT];
    clv_memory memory = {.size = sizeof memory};
    CLV_TRY(clv_imported_compile(&compiled, program, mesh, NULL, &how, err));
    clv_status status = clv_program_memory(compiled, &memory, err);
    clv_mesh_print(text, sizeof text, mesh);
    int functions = 0;
    while (clv_import_function(program, functions, NULL))
        functions++;
    add_patterns(t, program);
    (void)clv_imported_add_faults(t, &(clv_imported_run){.program = program}, 0);
    clv_table_begin_top_level(t);
    clv_table_int(t, "functions", functions);
    clv_table_text(t, "mesh", text[0] ? text : "one rank");
    clv_table_int(t, "instructions", clv_program_instruction_count(compiled));
    clv_table_bytes(t, "memory_per_rank", (double)memory.total);
    clv_program_free(compiled);
    return status;
}

clv_status command_import(clv_invocation *run, clv_error *err)
{
    const char *path;
    clv_mesh_option option = {0};
    clv_mesh mesh;
    clv_import *program;
    bool no_patterns = false;
    const clv_option options[] = {
        CLV_MODEL_ROW(&path, "FILE", ACCEPTED,
                      "StableHLO text, as jax.jit(f).lower(...).as_text() gives it, "
                      "or what torch.export.save writes",
                      .required = true),
        CLV_NO_PATTERNS_OPTION(&no_patterns),
        CLV_MESH_OPTIONS(&option),
        CLV_LAYOUTS_OPTION(&option, NULL),
        CLV_FORMAT_OPTIONS(&run->format, "", "print JSON"),
    };
    if (!CLV_PARSE(run, options))
        return CLV_OK;
    CLV_TRY(clv_imported_read(&program, path, option.layouts, err));
    run->table = clv_table_new("tensors");
    add_ports(run->table, program);
    add_ops(run->table, program);
    clv_status status = clv_imported_mesh(&mesh, &option, program, err);
    if (status == CLV_OK)
        status = add_memory(run->table, program, &mesh, no_patterns, err);
    clv_import_free(program);
    return status;
}
