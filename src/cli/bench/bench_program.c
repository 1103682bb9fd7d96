/* bench_program.c - the `cleave bench program` benchmark: runs of a program of JAX or PyTorch. */
#include "cleave/import.h"
#include "cli/command.h"
#include "cli/evaluation/imported_run.h"
#include "cli/options/mesh_options.h"
#include "cli/options/model_options.h"
#include "cli/options/run_options.h"

typedef struct program_args {
    clv_model_option model;
    const char *inputs;
    bool gradients;
    int64_t iterations;
} program_args;

static bool parse(program_args *a, clv_invocation *run)
{
    const clv_option options[] = {
        CLV_MODEL_ROW(&a->model.path, "FILE", ACCEPTED, "StableHLO text, or what torch.export.save writes",
                      .required = true),
        CLV_OPT_INPUT("--inputs", &a->inputs, "FILE", "the arguments by name: safetensors (random)"),
        CLV_OPT_FLAG("--grad", &a->gradients, "also the gradients of its loss"),
        CLV_ITERATIONS_OPTION(&a->iterations, NULL),
        CLV_NO_PATTERNS_OPTION(&a->model.no_patterns),
        CLV_MESH_OPTIONS(&a->model.mesh),
        CLV_LAYOUTS_OPTION(&a->model.mesh, NULL),
        CLV_THREADS_OPTION(&a->model.threads, NULL),
        CLV_COMM_DTYPE_OPTION(&a->model.options.compile),
        CLV_OVERLAP_OPTION(&a->model.options.compile),
        CLV_HARDWARE_OPTION(&a->model.hardware, NULL),
        CLV_COMM_OPTIONS(&a->model.comm),
        CLV_FORMAT_OPTIONS(&run->format, "", "print JSON"),
    };
    return CLV_PARSE(run, options);
}

static clv_status report(clv_table *t, const clv_imported_run *r, const program_args *a, clv_error *err)
{
    const clv_mesh *mesh = clv_program_mesh(r->compiled);
    clv_prediction p = {.size = sizeof p};
    clv_machine *machine;
    char text[CLV_MESH_TEXT];
    double median = r->seconds[a->iterations / 2];
    clv_mesh_print(text, sizeof text, mesh);
    clv_table_text(t, "mesh", text[0] ? text : "one rank");
    clv_table_real(t, "median_ms", 1e3 * median);
    clv_table_real(t, "min_ms", 1e3 * r->seconds[0]);
    CLV_TRY(clv_hardware_option_open(&machine, a->model.hardware, NULL, err));
    clv_status status = clv_program_predict(r->compiled, machine, &p, err);
    clv_machine_free(machine);
    CLV_TRY(status);
    if (a->model.hardware)
        clv_table_real(t, "predicted_ms", 1e3 * p.seconds);
    clv_table_real(t, "gflops_per_rank", 1e-9 * p.flops / median);
    return CLV_OK;
}

clv_status bench_program(clv_invocation *run, clv_error *err)
{
    program_args a = {.iterations = 7};
    clv_imported_run r;
    if (!parse(&a, run))
        return CLV_OK;
    const clv_import_options what = {
        .size = sizeof what, .gradients_of = a.gradients ? "" : NULL, .no_patterns = a.model.no_patterns};
    clv_status status = clv_imported_run_execute(&r, &a.model, a.inputs, 1, &what, a.iterations, err);
    run->table = clv_table_new(NULL);
    if (status == CLV_OK)
        status = report(run->table, &r, &a, err);
    if (status == CLV_OK)
        clv_imported_note_mesh(r.compiled);
    clv_imported_run_free(&r);
    return status;
}
