/* test_versioned_structs.c - structs that begin with their size: every one of the public headers is taken and filled as
 * cleave.h says, also those of programs built against other versions, and those whose reserved room is used.
 */
#include <glob.h>
#include <string.h>

#include "byte_model.h"
#include "elementwise_op.h"
#include "must.h"
#include "op_cases.h"
#include "temp_folder.h"

#include "base/error.h"
#include "cleave/cleave.h"

static clv_error err;

/* ---- what they are taken by and filled of ---- */

static clv_model *model;
static clv_trainer *trainer;
static clv_session *session; /* the trainer's */
static clv_forwarder *hidden, *nll;
static clv_sequences *sequences;
static clv_generator *generator;
static clv_evaluation *evaluation;
static clv_checkpoint *checkpoint;
static clv_program *program; /* of a block over two ranks, with its candidates and decisions */
static clv_plan_suggestions *suggestions;
static clv_plan_search *search;
static clv_reshard *reshard;
static clv_trace_report *trace;
static clv_flight_report *flight;
static clv_data *data;
static clv_machine *machine;
static clv_import *imported;
static clv_graph *own_graph; /* new for each call of a builder */
static clv_value x, q, kv, w, lr, step;
static const char *text; /* a path */
static const int32_t ids[] = {1, 2, 3, 4};

static clv_status leave(const clv_call *call, clv_error *why)
{
    (void)why;
    memcpy(call->out[0].data, call->in[0].data, (size_t)clv_view_elems(&call->in[0]) * sizeof(float));
    return CLV_OK;
}

static const clv_op_def same = {
    .name = "test.same", .min_in = 1, .max_in = 1, .n_out = 1, .shape = same_shape, .rule = by_elements, .run = leave};
static const clv_type vector = {CLV_F32, 1, {4}};

static clv_status estimate(clv_plan_estimate *o)
{
    const clv_plan_options plan = {.model = clv_model_folder(model), .batch = 1, .seq = 4};
    return clv_plan_estimate_step(o, &(clv_plan_estimate_options){.plan = &plan}, &err);
}

static clv_graph *begin(void)
{
    clv_graph_free(own_graph);
    own_graph = new_graph();
    x = input(own_graph, "x", CLV_F32, DIMS(4, 4));
    q = input(own_graph, "q", CLV_F32, DIMS(1, 4, 2, 8));
    kv = input(own_graph, "kv", CLV_F32, DIMS(1, 4, 2, 2, 8));
    w = clv_state(own_graph, "w", CLV_F32, DIMS(4), NULL, (clv_init){CLV_INIT_ZEROS, 0});
    lr = scalar(own_graph, "lr", CLV_F32);
    step = scalar(own_graph, "step", CLV_I32);
    return own_graph;
}

static clv_status built(void)
{
    return clv_graph_status(own_graph, &err);
}

static clv_status model_graph(const clv_model_graph_options *how, const clv_update_options *update)
{
    clv_graph_free(own_graph);
    if (clv_graph_new(&own_graph, clv_model_mesh(model), &err) == CLV_OK)
        clv_model_train_step(own_graph, model, how, update);
    return built();
}

static clv_status score(clv_score *out, const clv_score_options *how)
{
    return clv_score_text(out, nll, "abc", 3, how, &err);
}

static clv_status no_rows(void *arg, int64_t i, const float *rows, int64_t n_rows, int64_t width, clv_error *why)
{
    (void)arg, (void)i, (void)rows, (void)n_rows, (void)width, (void)why;
    return CLV_OK;
}

/* Room for what the calls below would make, if they did. */
static void *made = &err;
#define MADE(type) ((type **)&made)
static float out[1024];
static clv_spmd_function *const no_function = (clv_spmd_function *)1; /* is not called */
static const clv_model_graph_options row = {.batch = 1, .seq = 4};

/* X(type, a call that takes it): each struct of options. */
#define OPTIONS(X)                                                                                                     \
    X(clv_checkpoint_options, clv_checkpoint_open(MADE(clv_checkpoint), text, o, &err))                                \
    X(clv_convert_options, clv_checkpoint_shard(model, in_folder("to"), o, &err))                                      \
    X(clv_corpus_options, clv_corpus_tokenize(NULL, in_folder("to"), &text, 1, o, &err))                               \
    X(clv_mlm_masking, clv_data_open(MADE(clv_data), &text, 1, &(clv_data_options){.seq = 2, .masking = o}, &err))     \
    X(clv_data_options, clv_data_open(MADE(clv_data), &text, 1, o, &err))                                              \
    X(clv_token_writer_options, clv_token_writer_create(MADE(clv_token_writer), in_folder("to"), o, &err))             \
    X(clv_embed_options, clv_embed(hidden, sequences, o, no_rows, NULL, &err))                                         \
    X(clv_evaluate_options, clv_evaluate(MADE(clv_evaluation), model, o, &err))                                        \
    X(clv_family, clv_model_register_family(o, &err))                                                                  \
    X(clv_flight_options, clv_flight_new(MADE(clv_flight), o, &err))                                                   \
    X(clv_forwarder_options, clv_forwarder_new(MADE(clv_forwarder), model, o, &err))                                   \
    X(clv_forward_batch, clv_forwarder_run(hidden, o, out, &err))                                                      \
    X(clv_sampling, clv_sampling_check(o, &err))                                                                       \
    X(clv_generator_options, clv_generator_new(MADE(clv_generator), model, o, &err))                                   \
    X(clv_generate_options, clv_generate(MADE(clv_generation), generator, (const char *[]){"a"}, 1, o, &err))          \
    X(clv_attention_options, (clv_attention(begin(), q, kv, o), built()))                                              \
    X(clv_router_options, (clv_router(begin(), x, o, &(clv_value){0}, &(clv_value){0}), built()))                      \
    X(clv_adamw_options, (clv_adamw(begin(), w, w, lr, step, o), built()))                                             \
    X(clv_sgd_options, (clv_sgd(begin(), w, w, lr, o), built()))                                                       \
    X(clv_lion_options, (clv_lion(begin(), w, w, lr, o), built()))                                                     \
    X(clv_job_options, clv_job_join(MADE(clv_job), o, &err))                                                           \
    X(clv_measure_options, clv_machine_measure(MADE(clv_machine), o, &err))                                            \
    X(clv_lora_options,                                                                                                \
      clv_model_open(MADE(clv_model), clv_model_folder(model), &(clv_model_options){.lora = o}, &err))                 \
    X(clv_model_options, clv_model_open(MADE(clv_model), text, o, &err))                                               \
    X(clv_model_info, clv_model_new(MADE(clv_model), o, NULL, &err))                                                   \
    X(clv_model_graph_options, model_graph(o, NULL))                                                                   \
    X(clv_update_options, model_graph(&row, o))                                                                        \
    X(clv_import_options, clv_import_stablehlo(begin(), imported, o, &err))                                            \
    X(clv_experts_options, (clv_parallel_experts(begin(), x, NULL, o), built()))                                       \
    X(clv_latent_attention_options, (clv_parallel_latent_attention(begin(), x, NULL, o), built()))                     \
    X(clv_linear_options, (clv_column_parallel_linear(begin(), x, 4, NULL, o), built()))                               \
    X(clv_op_def, clv_op_register(o, &err))                                                                            \
    X(clv_op_check_options, clv_op_check(&same, NULL, &vector, 1, o, NULL, &err))                                      \
    X(clv_plan_options, clv_plan_compile(MADE(clv_program), o, &err))                                                  \
    X(clv_plan_estimate_options, clv_plan_estimate_step(&(clv_plan_estimate){0}, o, &err))                             \
    X(clv_plan_search_options, clv_plan_search_run(MADE(clv_plan_search), o, &err))                                    \
    X(clv_saved_plan, clv_saved_plan_write(o, in_folder("plan.json"), &err))                                           \
    X(clv_compile_options, clv_compile(MADE(clv_program), begin(), o, &err))                                           \
    X(clv_score_options, score(&(clv_score){0}, o))                                                                    \
    X(clv_sequences_options, clv_sequences_read(MADE(clv_sequences), model, text, o, &err))                            \
    X(clv_session_options, clv_session_new(MADE(clv_session), clv_program_mesh(program), o, &err))                     \
    X(clv_run, clv_session_run_boxes(session, clv_trainer_program(trainer), o, &err))                                  \
    X(clv_spmd_options, clv_spmd_run(session, no_function, NULL, NULL, 0, NULL, 0, o, &err))                           \
    X(clv_trace_options, clv_trace_end(session, o, &err))                                                              \
    X(clv_trainer_options, clv_trainer_new(MADE(clv_trainer), model, o, &err))                                         \
    X(clv_trainer_checkpoint_options, clv_trainer_checkpoint(trainer, in_folder("to"), o, &err))

/* X(type, a call that fills it): each struct of results. */
#define RESULTS(X)                                                                                                     \
    X(clv_tensor_info, clv_checkpoint_tensor(checkpoint, 0, o, &err))                                                  \
    X(clv_found_rules, clv_plan_find_rules(o, &(clv_plan_options){.block = CLV_PLAN_BLOCK_FFN}, 0, &err))              \
    X(clv_plan_estimate, estimate(o))                                                                                  \
    X(clv_read_layouts, clv_layouts_read(o, "--sequence-parallel", 19, "flags", NULL, &err))                           \
    X(clv_corpus_info, clv_corpus_tokenize(o, in_folder("tokens"), &text, 1, NULL, &err))                              \
    X(clv_mlm_masking, clv_model_mlm_masking(o, model, NULL, &err))                                                    \
    X(clv_data_info, clv_data_get_info(data, o, &err))                                                                 \
    X(clv_evaluation_tensor, clv_evaluation_at(evaluation, 0, o, &err))                                                \
    X(clv_comparison, clv_evaluation_compare(o, evaluation, evaluation, 1, &err))                                      \
    X(clv_flight_rank, clv_flight_report_rank(flight, 0, o, &err))                                                     \
    X(clv_flight_finding, clv_flight_report_finding(flight, 0, o, &err))                                               \
    X(clv_generation_config, clv_model_generation_config(model, o, &err))                                              \
    X(clv_import_argument_or_result_info, clv_import_argument_or_result(imported, 0, o, &err))                         \
    X(clv_import_op_kind_info, clv_import_op_kind(imported, 0, o, &err))                                               \
    X(clv_import_fault_info, clv_import_fault(imported, 0, o, &err))                                                   \
    X(clv_import_pattern_info, clv_import_pattern(imported, 0, o, &err))                                               \
    X(clv_machine_info, clv_machine_get_info(machine, o, &err))                                                        \
    X(clv_cpu_info, clv_cpu_get_info(o, &err))                                                                         \
    X(clv_model_info, clv_model_get_info(model, o, &err))                                                              \
    X(clv_model_part_sizes, clv_model_get_part_sizes(model, o, &err))                                                  \
    X(clv_op_check_report, clv_op_check(&same, NULL, &vector, 1, NULL, o, &err))                                       \
    X(clv_plan_candidate, clv_plan_search_at(search, 0, o, &err))                                                      \
    X(clv_plan_suggestion, clv_plan_suggestion_at(suggestions, 0, o, &err))                                            \
    X(clv_collective, clv_program_collective(program, 0, o, &err))                                                     \
    X(clv_strategy_candidate, clv_program_candidate(program, 0, o, &err))                                              \
    X(clv_partition_decision, clv_program_decision(program, 0, o, &err))                                               \
    X(clv_memory, clv_program_memory(program, o, &err))                                                                \
    X(clv_program_tensor, clv_program_tensor_at(program, 0, o, &err))                                                  \
    X(clv_instruction_info, clv_program_instruction(program, 0, o, &err))                                              \
    X(clv_stage_info, clv_program_stage(program, NULL, 0, o, &err))                                                    \
    X(clv_prediction, clv_program_predict(program, NULL, o, &err))                                                     \
    X(clv_prediction_parts, clv_program_predict_parts(program, NULL, o, &err))                                         \
    X(clv_reshard_step_info, clv_reshard_get_step(reshard, 0, o, &err))                                                \
    X(clv_score, score(o, NULL))                                                                                       \
    X(clv_sequence_info, clv_sequences_at(sequences, 0, o, &err))                                                      \
    X(clv_state_info, clv_session_state(session, 0, o, &err))                                                          \
    X(clv_session_stats, clv_session_take_stats(session, o, &err))                                                     \
    X(clv_trace_info, clv_trace_report_get_info(trace, o, &err))                                                       \
    X(clv_trace_part, clv_trace_report_part(trace, 0, o, &err))                                                        \
    X(clv_trace_op_kind, clv_trace_report_op_kind(trace, 0, o, &err))                                                  \
    X(clv_train_step, clv_trainer_step(trainer, ids, ids, NULL, o, &err))                                              \
    X(clv_resumed, clv_trainer_resume(trainer, in_folder("none"), o, &err))

#define TAKE(type, call)                                                                                               \
    static clv_status take_##type(const void *given)                                                                   \
    {                                                                                                                  \
        const type *o = given;                                                                                         \
        return (call);                                                                                                 \
    }
#define FILL(type, call)                                                                                               \
    static clv_status fill_##type(void *given)                                                                         \
    {                                                                                                                  \
        type *o = given;                                                                                               \
        return (call);                                                                                                 \
    }
OPTIONS(TAKE)
RESULTS(FILL)

static int set_up(void **state)
{
    const clv_evaluate_options once = {.batch = 1, .seq = 4, .ids = ids};
    const clv_plan_options gpt = {.block = CLV_PLAN_BLOCK_GPT,
                                  .mesh = &(clv_mesh){1, {{"model", 2}}},
                                  .compile = {.keep_decisions = true, .explain = "mlp"}};
    clv_layout whole = clv_layout_replicated(1), split;
    if (make_folder(state) != 0)
        return -1;
    model = byte_model(in_folder("model"));
    must(clv_trainer_new(&trainer, model, &byte_model_step, &err), &err);
    session = clv_trainer_session(trainer);
    must(clv_forwarder_new(&hidden, model, NULL, &err), &err);
    must(clv_forwarder_new(&nll, model, &(clv_forwarder_options){.result = CLV_FORWARD_NLL}, &err), &err);
    must(clv_sequences_from_texts(&sequences, model, (const char *[]){"abc"}, NULL, 1, NULL, &err), &err);
    must(clv_generator_new(&generator, model, NULL, &err), &err);
    must(clv_evaluate(&evaluation, model, &once, &err), &err);
    must(clv_checkpoint_open(&checkpoint, in_folder("model"), NULL, &err), &err);
    must(clv_plan_compile(&program, &gpt, &err), &err);
    must(clv_plan_find_suggestions(&suggestions, &gpt, &err), &err);
    must(clv_plan_search_run(&search, &(clv_plan_search_options){.base = &gpt, .devices = 2}, &err), &err);
    must(clv_layout_parse(&split, "model", gpt.mesh, 1, &err), &err);
    must(clv_reshard_new(&reshard, gpt.mesh, &split, &whole, (int64_t[]){4}, CLV_F32, &err), &err);
    must(clv_machine_open(&machine, "tpu-v2-8", NULL, &err), &err);
    static const char main_of[] = "func.func @main(%a: tensor<f32>) -> tensor<f32> {\n  %0 = stablehlo.tanh %a : "
                                  "tensor<f32>\n  return %0 : tensor<f32>\n}\n";
    must(clv_import_parse(&imported, main_of, sizeof main_of - 1, "a", &err), &err);
    must(clv_trace_begin(session, &err), &err);
    must(clv_trainer_step(trainer, ids, ids, NULL, NULL, &err), &err);
    must(clv_trace_end(session, &(clv_trace_options){.path = in_folder("trace")}, &err), &err);
    must(clv_trace_read(&trace, in_folder("trace"), &err), &err);
    must(clv_flight_write(session, in_folder("flight"), &err), &err);
    must(clv_flight_read(&flight, (const char *[]){in_folder("flight")}, 1, &err), &err);
    text = strdup(in_folder("text"));
    FILE *f = fopen(text, "w");
    fputs("some text", f);
    fclose(f);
    must(clv_data_open(&data, &text, 1, &(clv_data_options){.seq = 2}, &err), &err);
    return 0;
}

static int tear_down(void **state)
{
    clv_import_free(imported);
    clv_data_close(data);
    clv_flight_report_free(flight);
    clv_trace_report_free(trace);
    clv_machine_free(machine);
    clv_reshard_free(reshard);
    clv_plan_suggestions_free(suggestions);
    clv_plan_search_free(search);
    clv_program_free(program);
    clv_checkpoint_close(checkpoint);
    clv_evaluation_free(evaluation);
    clv_generator_free(generator);
    clv_sequences_free(sequences);
    clv_forwarder_free(nll);
    clv_forwarder_free(hidden);
    clv_trainer_free(trainer);
    clv_model_close(model);
    clv_graph_free(own_graph);
    free((void *)(uintptr_t)text);
    return remove_folder(state);
}

/* ---- the tests ---- */

enum { LATER = 8, ROOM = (1 << 16) + 2 * LATER /* bytes */ };
static const unsigned char untouched[LATER] = {0xee, 0xee, 0xee, 0xee, 0xee, 0xee, 0xee, 0xee};
static union {
    size_t size;
    unsigned char bytes[ROOM];
} given;

static void expect(clv_status got, clv_status want, const char *type, const char *words)
{
    if (got != CLV_OK && made != &err)
        fail_msg("%s: on failure what is to be made is modified", type);
    if (got != want || (want != CLV_OK && !strstr(err.message, words)))
        fail_msg("%s of %zu bytes: %s '%s', not %s '%s'", type, given.size, clv_status_name(got), err.message,
                 clv_status_name(want), words);
    err = (clv_error){0};
}

/* Options of no version, and of a later one with an option that is not known. */
static void test_options(void **state)
{
    static const struct {
        const char *type;
        size_t size;
        clv_status (*take)(const void *given);
    } rows[] = {
#define ROW(type, call) {#type, sizeof(type), take_##type},
        OPTIONS(ROW)
#undef ROW
    };
    static const char no_size[] = "a struct whose size is ";
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        memset(&given, 0, sizeof given);
        given.size = rows[i].size - 1; /* until 1.0 no struct has had another */
        expect(rows[i].take(&given), CLV_EINVAL, rows[i].type, no_size);
        given.size = (1 << 16) + 1;
        expect(rows[i].take(&given), CLV_EINVAL, rows[i].type, no_size);
        given.size = rows[i].size + LATER;
        given.bytes[given.size - 1] = 1;
        expect(rows[i].take(&given), CLV_EUNSUPPORTED, rows[i].type, "an option that this version of the library does");
    }
}

/* Results: filled as far as the caller has room, zeros beyond what is known. */
static void test_results(void **state)
{
    static const struct {
        const char *type;
        size_t size;
        clv_status (*fill)(void *given);
    } rows[] = {
#define ROW(type, call) {#type, sizeof(type), fill_##type},
        RESULTS(ROW)
#undef ROW
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const size_t sizes[] = {rows[i].size - 1, (1 << 16) + 1, 0, rows[i].size + LATER};
        for (int k = 0; k < 4; k++) {
            memset(&given, 0xee, sizeof given);
            given.size = sizes[k];
            expect(rows[i].fill(&given), k < 2 ? CLV_EINVAL : CLV_OK, rows[i].type, "a struct whose size is ");
            bool is_filled = memcmp(given.bytes + rows[i].size - LATER, untouched, LATER) != 0;
            assert_int_equal(given.size, sizes[k]);
            if (is_filled != (k >= 2))
                fail_msg("%s, whose size is %zu, is %sfilled", rows[i].type, sizes[k], is_filled ? "" : "not ");
            if (given.bytes[rows[i].size + LATER] != 0xee || given.bytes[rows[i].size] != (k == 3 ? 0 : 0xee))
                fail_msg("%s, whose size is %zu: what is behind it", rows[i].type, sizes[k]);
        }
    }
}

/* Every struct of the headers that begins with its size is above. */
static void test_all_are_there(void **state)
{
#define NAME(type, call) #type " "
    static const char named[] = " " OPTIONS(NAME) RESULTS(NAME) "clv_family_graph_options "; /* the library's own */
#undef NAME
    static const char begin_of_struct[] = "typedef struct ", begin_of_size[] = " {\n    size_t size;";
    const char *source = getenv("CLV_SOURCE_DIR");
    char pattern[1024];
    glob_t headers;
    int found = 0;
    (void)state;
    snprintf(pattern, sizeof pattern, "%s/include/cleave/*.h", source ? source : ".");
    assert_int_equal(glob(pattern, 0, NULL, &headers), 0);
    for (size_t i = 0; i < headers.gl_pathc; i++) {
        char *header;
        size_t size;
        must(clv_text_read(&header, &size, headers.gl_pathv[i], 0, &err), &err);
        for (const char *at = header; (at = strstr(at, begin_of_struct)) != NULL;) {
            char name[128];
            at += strlen(begin_of_struct);
            size_t n = strcspn(at, " ;");
            snprintf(name, sizeof name, " %.*s ", (int)n, at);
            if (strncmp(at + n, begin_of_size, strlen(begin_of_size)) != 0)
                continue;
            found++;
            if (!strstr(named, name))
                fail_msg("%s:%s is in no list of this test", headers.gl_pathv[i], name);
        }
        free(header);
    }
    globfree(&headers);
    assert_true(found > 60);
}

/* What no public struct does yet: one that has grown, and a program that has the old one. */
static void test_older_structs(void **state)
{
    struct grown {
        size_t size;
        int64_t old, later;
    } taken = {0, 7, 7}, result = {.old = 7, .later = 7};
    const struct grown known = {sizeof known, 3, 4}, old = {offsetof(struct grown, later), 1, 2}, none = {0, 1, 2};
    (void)state;
    must(clv_options_copy_in(&taken, sizeof taken, old.size, &old, "a call", &err), &err);
    assert_true(taken.size == sizeof taken && taken.old == 1 && taken.later == 0);
    must(clv_options_copy_in(&taken, sizeof taken, old.size, &none, "a call", &err), &err);
    assert_true(taken.size == sizeof taken && taken.old == 1 && taken.later == 0);
    for (size_t size = 0; size <= old.size; size += old.size) {
        result.size = size;
        must(clv_struct_copy_out(&result, sizeof known, old.size, &known, "a call", &err), &err);
        assert_true(result.size == size && result.old == 3 && result.later == 7);
    }
}

/* Structs that others hold keep their size: their reserved room must hold nothing. */
static void test_reserved_room(void **state)
{
    const clv_block_options plain = clv_block_defaults(CLV_BLOCK_LLAMA, 2, 2, 8);
    for (int which = 0; which < 4; which++) {
        clv_block_options o = plain;
        int64_t *reserved[] = {o.reserved, o.attention.reserved, o.attention.rope.reserved, o.mlp.reserved};
        const char *const calls[] = {"clv_transformer_block", "clv_parallel_attention", "clv_rope", "clv_parallel_mlp"};
        reserved[which][2] = 1;
        clv_graph *graph = new_graph();
        clv_transformer_block(graph, input(graph, "x", CLV_F32, DIMS(1, 2, 8)), NULL, &o);
        assert_refused(graph, CLV_EUNSUPPORTED, calls[which]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_options),       cmocka_unit_test(test_results),
        cmocka_unit_test(test_all_are_there), cmocka_unit_test(test_older_structs),
        cmocka_unit_test(test_reserved_room),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
