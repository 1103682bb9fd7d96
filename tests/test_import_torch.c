/* test_import_torch.c - archives of torch.export: each of tests/golden/torch_export on one rank and on meshes, values
 * and gradients as PyTorch has them.
 */
#include "golden_path.h"
#include "import_goldens.h"
#include "must.h"
#include "torch_archive.h"

static clv_import *must_read(const char *name)
{
    clv_import *program = NULL;
    clv_error err = {0};
    if (clv_import_read(&program, golden_path("torch_export/%s.pt2", name), &err) != CLV_OK)
        fail_msg("%s: %s", name, err.message);
    return program;
}

/* States layouts that split each tensor with dimensions but results: tensor i in dimension i + turn. */
static void split(clv_import *program, int turn)
{
    static const char *const axes[] = {"data", "model", "(model,data)"};
    clv_import_argument_or_result_info port = {.size = sizeof port};
    clv_error err = {0};
    for (int i = 0; clv_import_argument_or_result(program, i, &port, NULL) == CLV_OK && port.name && !port.is_result;
         i++) {
        char text[64] = "";
        for (int d = 0; d < port.type.rank; d++)
            snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", d ? "," : "",
                     d == (i + turn) % port.type.rank ? axes[(i + turn) % 3] : "_");
        if (port.type.rank > 0 && !port.is_constant && !port.same_as)
            must(clv_import_layout(program, port.name, text, &err), &err);
    }
}

typedef struct golden {
    const char *name, *loss; /* of which gradients are taken; NULL: none */
    double tolerance;
} golden;

/* turn 0: no layouts are stated. */
static void run_on(const golden *g, const char *mesh, int turn)
{
    clv_import *program = must_read(g->name);
    clv_graph *graph = must_graph(mesh);
    clv_program *compiled = NULL;
    clv_session *session = NULL;
    clv_error err = {0};
    ports p;
    const clv_import_options how = {.size = sizeof how, .gradients_of = g->loss};
    if (turn)
        split(program, turn);
    if (clv_import_stablehlo(graph, program, &how, &err) != CLV_OK)
        fail_msg("%s on %s: %s", g->name, mesh, err.message);
    if (clv_compile(&compiled, graph, NULL, &err) != CLV_OK)
        fail_msg("%s on %s: %s", g->name, mesh, err.message);
    if (turn && clv_program_collective_count(compiled) == 0)
        fail_msg("%s on %s: nothing is split", g->name, mesh);
    clv_session_options options = {
        .size = sizeof options, .source = clv_import_state_source, .source_arg = program, .check = 1, .no_pinning = 1};
    assert_int_equal(clv_session_new(&session, clv_program_mesh(compiled), &options, &err), CLV_OK);
    bind(&p, program, golden_path("torch_export/%s.safetensors", g->name));
    if (clv_session_run(session, compiled, p.inputs, p.n_in, p.outputs, p.n_out, &err) != CLV_OK)
        fail_msg("%s on %s: %s", g->name, mesh, err.message);
    for (int i = 0; i < p.n_out; i++)
        compare(g->name, mesh, &p, i, g->tolerance);
    free_ports(&p);
    clv_session_free(session);
    clv_program_free(compiled);
    clv_graph_free(graph);
    clv_import_free(program);
}

/* bf16 rounds each value to 8 bits, and PyTorch rounds elsewhere. */
static const golden goldens[] = {{"mlp", "result[0]", 1e-5},
                                 {"mlp_joint", NULL, 1e-5},
                                 {"llama", "result['loss']", 1e-5},
                                 {"llama_core", "result['loss']", 1e-5},
                                 {"llama_joint", NULL, 1e-5},
                                 {"llama_bf16", NULL, 3e-2},
                                 {"mistral", "result['loss']", 1e-5},
                                 {"gpt2", "result['loss']", 1e-5},
                                 {"gpt2_core", "result['loss']", 1e-5},
                                 {"bert", "result['loss']", 1e-5},
                                 {"bert_core", "result['loss']", 1e-5},
                                 {"ops", NULL, 1e-5},
                                 {"stopped", "", 1e-5},
                                 {"buffers", NULL, 1e-5}};
static const char *const meshes[] = {"data=1,model=1", "data=2,model=1", "data=1,model=3", "data=2,model=2"};

static void test_values(void **state)
{
    for (size_t i = 0; i < sizeof goldens / sizeof *goldens; i++)
        for (size_t m = 0; m < sizeof meshes / sizeof *meshes; m++) {
            if (getenv("CLV_VERBOSE"))
                fprintf(stderr, "%s on %s\n", goldens[i].name, meshes[m]);
            for (int turn = 0; turn < (m == 0 ? 1 : 3); turn++)
                run_on(&goldens[i], meshes[m], turn);
        }
}

/* Patterns of transformers' models: places, forward and backward. */
static void test_patterns(void **state)
{
    static const struct {
        const char *program, *pattern;
        int forward, backward;
    } rows[] = {{"llama", "rope", 4, 0},
                {"llama_core", "silu", 2, 0},
                {"llama_joint", "rope", 4, 4},
                {"bert", "attention", 1, 0}}; /* padding that is data */
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        clv_import *program = must_read(rows[r].program);
        clv_graph *graph = must_graph("model=2");
        clv_import_pattern_info p = {.size = sizeof p};
        int found[2] = {0};
        must(clv_import_stablehlo(graph, program, NULL, NULL), NULL);
        for (int i = 0; clv_import_pattern(program, i, &p, NULL) == CLV_OK && p.name; i++)
            if (strcmp(p.name, rows[r].pattern) == 0)
                found[p.gradient] += p.recognised;
        assert_int_equal(found[0], rows[r].forward);
        assert_int_equal(found[1], rows[r].backward);
        clv_graph_free(graph);
        clv_import_free(program);
    }
}

/* An id or a label that PyTorch refuses is an error that says which, on a mesh, too, where rows are split. */
static void refuse_index(const char *name, const char *mesh, const char *input, int64_t index)
{
    clv_import *program = must_read(name);
    clv_graph *graph = must_graph(mesh);
    clv_program *compiled = NULL;
    clv_session *session = NULL;
    clv_error err = {0};
    char want[96];
    ports p;
    int found = 0;
    split(program, 1);
    must(clv_import_stablehlo(graph, program, NULL, &err), &err);
    must(clv_compile(&compiled, graph, NULL, &err), &err);
    clv_session_options options = {
        .size = sizeof options, .source = clv_import_state_source, .source_arg = program, .no_pinning = 1};
    must(clv_session_new(&session, clv_program_mesh(compiled), &options, &err), &err);
    bind(&p, program, golden_path("torch_export/%s.safetensors", name));
    for (int i = 0; i < p.n_in; i++)
        if (strcmp(p.inputs[i].name, input) == 0) {
            ((int64_t *)p.inputs[i].data)[1] = index; /* the first label has no token before it */
            found++;
        }
    assert_int_equal(found, 1);
    snprintf(want, sizeof want, "the index %lld is out of range; valid: 0 to ", (long long)index);
    clv_status status = clv_session_run(session, compiled, p.inputs, p.n_in, NULL, 0, &err);
    if (status != CLV_EINVAL || !strstr(err.message, want))
        fail_msg("%s on %s: %s: %s", name, mesh, clv_status_name(status), err.message);
    free_ports(&p);
    clv_session_free(session);
    clv_program_free(compiled);
    clv_graph_free(graph);
    clv_import_free(program);
}

static void test_index_out_of_range(void **state)
{
    static const char *const names[] = {"gpt2", "gpt2_core", "bert", "llama", "llama_core"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        refuse_index(names[i], "data=1,model=1", "ids", 1000);
        refuse_index(names[i], "data=2,model=2", "ids", -1);
        refuse_index(names[i], "data=1,model=1", "labels", 1000);
    }
    refuse_index("mlp", "data=2,model=1", "y", 5);
}

/* ---- refusals: one line, with the place ---- */

#define F32 "{\"dtype\": 7, \"sizes\": [{\"as_int\": 2}]}"

/* A program of one node between x and y, f32[2]; inputs: its arguments. */
static void refuse_node(const char *target, const char *inputs, const char *type, clv_status code, const char *text)
{
    char json[4096], *archive;
    clv_import *read = NULL;
    clv_error err = {0};
    size_t size;
    int n = snprintf(
        json, sizeof json,
        "{\"schema_version\": {\"major\": 8, \"minor\": 1}, \"graph_module\": {\"graph\": {\"tensor_values\": {"
        "\"x\": %s, \"y\": %s}, \"nodes\": [{\"target\": \"torch.ops.%s\", \"name\": \"y_1\", \"inputs\": [%s], "
        "\"outputs\": [{\"as_tensor\": {\"name\": \"y\"}}], \"metadata\": {\"stack_trace\": "
        "\"File \\\"/a/model.py\\\", line 7, in forward\\n    y = f(x)\"}}]}, \"signature\": {\"input_specs\": ["
        "{\"user_input\": {\"arg\": {\"as_tensor\": {\"name\": \"x\"}}}}], \"output_specs\": [{\"user_output\": "
        "{\"arg\": {\"as_tensor\": {\"name\": \"y\"}}}}]}}}",
        F32, type, target, inputs);
    assert_true(n > 0 && (size_t)n < sizeof json);
    archive = torch_archive(&size, json, (size_t)n);
    clv_status status = clv_import_parse(&read, archive, size, "a.pt2", &err);
    clv_graph *graph = must_graph("data=2");
    if (status == CLV_OK)
        status = clv_import_stablehlo(graph, read, NULL, &err);
    if (status != code || (code != CLV_OK && (strncmp(err.message, "a.pt2: ", 7) != 0 || !strstr(err.message, text))))
        fail_msg("%s(%s): %s '%s'; expected %s with '%s'", target, inputs, clv_status_name(status), err.message,
                 clv_status_name(code), text);
    clv_graph_free(graph);
    clv_import_free(read);
    free(archive);
}

#define X                     "{\"name\": \"self\", \"arg\": {\"as_tensor\": {\"name\": \"x\"}}}"
#define BY(name, kind, value) ", {\"name\": \"" name "\", \"arg\": {\"" kind "\": " value "}}"

static void test_refused_nodes(void **state)
{
    refuse_node("aten.exp.default", X, F32, CLV_OK, "");
    refuse_node("aten.fft_fft.default", X, F32, CLV_EUNSUPPORTED,
                "y_1: aten.fft_fft.default (model.py:7): this op is not supported");
    refuse_node("aten.add_.Tensor", X BY("other", "as_float", "1.0"), F32, CLV_EUNSUPPORTED, "run_decompositions({})");
    refuse_node("aten.dropout.default", X BY("p", "as_float", "0.5") BY("train", "as_bool", "true"), F32,
                CLV_EUNSUPPORTED, "dropout with p=0.5");
    refuse_node("aten.exp.default", X, "{\"dtype\": 7, \"sizes\": [{\"as_expr\": {\"expr_str\": \"s0\"}}]}",
                CLV_EUNSUPPORTED, "y_1: a tensor: a dynamic dimension (s0)");
    refuse_node("aten.exp.default", X, "{\"dtype\": 9, \"sizes\": [{\"as_int\": 2}]}", CLV_EUNSUPPORTED,
                "y_1: a tensor: the dtype complex32 is not supported; those that are: float32");
    refuse_node("aten.slice.Tensor", X BY("end", "as_sym_int", "{\"as_name\": \"sym_size\"}"), F32, CLV_EUNSUPPORTED,
                "end: a dynamic size (sym_size)");
    refuse_node("aten.exp.default", X, "{\"dtype\": 7, \"sizes\": [{\"as_int\": 3}]}", CLV_ESHAPE,
                "result 0 is not f32[3]");
    refuse_node("aten.exp.default", "", F32, CLV_ESYNTAX, "no tensor self");
    refuse_node("aten.exp.default", "{\"name\": \"self\", \"arg\": {\"as_tensor\": {\"name\": \"z\"}}}", F32,
                CLV_ESYNTAX, "y_1: there is no tensor z");
    refuse_node("aten.view.default", X BY("size", "as_ints", "[3]"), "{\"dtype\": 7, \"sizes\": [{\"as_int\": 3}]}",
                CLV_ESHAPE, "aten.view.default (model.py:7)");
    refuse_node("aten.squeeze.dim", X BY("dim", "as_int", "5"), F32, CLV_OK, ""); /* as its type says */
    refuse_node("aten.sum.dim_IntList", X BY("dim", "as_ints", "[5]"), "{\"dtype\": 7, \"sizes\": []}", CLV_ESHAPE,
                "dimension 5 of 1");
    refuse_node("aten.add.Tensor", X BY("other", "as_graph", "{\"name\": \"g\"}"), F32, CLV_ESYNTAX,
                "other is neither a tensor nor a number");
}

static void refuse_bytes(const char *json, clv_status code, const char *text)
{
    clv_import *read = NULL;
    clv_error err = {0};
    size_t size;
    char *archive = torch_archive(&size, json, strlen(json));
    clv_status status = clv_import_parse(&read, archive, size, "a.pt2", &err);
    if (status != code || !strstr(err.message, text))
        fail_msg("%s: %s '%s'; expected %s with '%s'", json, clv_status_name(status), err.message,
                 clv_status_name(code), text);
    clv_import_free(read);
    free(archive);
}

static void test_refused_programs(void **state)
{
    refuse_bytes("{", CLV_EFORMAT, "a.pt2: models/model.json");
    refuse_bytes("[]", CLV_EFORMAT, "no schema_version");
    refuse_bytes("{\"schema_version\": {\"major\": 5}, \"torch_version\": \"2.4\"}", CLV_EUNSUPPORTED,
                 "schema 5 of torch.export (PyTorch 2.4); 8 is read");
    refuse_bytes("{\"schema_version\": {\"major\": 8}}", CLV_EFORMAT, "no nodes or no signature");
    refuse_bytes("{\"schema_version\": {\"major\": 8}, \"graph_module\": {\"graph\": {\"nodes\": []}, \"signature\": "
                 "{\"input_specs\": [{\"custom_obj\": {\"arg\": {\"name\": \"o\"}}}]}}}",
                 CLV_EUNSUPPORTED, "an input of kind custom_obj");
}

/* An archive that is cut off anywhere, or in which a byte is another one, is refused with its name, or is read. */
static void test_damaged(void **state)
{
    static char bytes[1 << 16], changed[1 << 16];
    FILE *file = fopen(golden_path("torch_export/gpt2.pt2"), "r");
    size_t n = fread(bytes, 1, sizeof bytes, file), whole = 0;
    fclose(file);
    assert_true(n > 0 && n < sizeof bytes);
    for (size_t i = 0; i < n; i += 7) {
        clv_import *program = NULL;
        clv_error err = {0};
        assert_int_not_equal(clv_import_parse(&program, bytes, i, "cut.pt2", &err), CLV_OK);
        assert_int_equal(strncmp(err.message, "cut.pt2", 7), 0);
    }
    for (size_t i = 4; i < n; i += 11) {
        clv_import *program = NULL;
        clv_error err = {0};
        memcpy(changed, bytes, n);
        changed[i] ^= 0x41;
        clv_status status = clv_import_parse(&program, changed, n, "changed.pt2", &err);
        whole += status == CLV_OK;
        if (status != CLV_OK && strncmp(err.message, "changed.pt2", 11) != 0)
            fail_msg("byte %zu: %s", i, err.message);
        clv_import_free(program);
    }
    assert_true(whole < n / 22); /* dates and such */
}

/* ---- what the archive says ---- */

static void test_listing(void **state)
{
    clv_import *program = must_read("gpt2");
    clv_import_argument_or_result_info port = {.size = sizeof port};
    clv_import_op_kind_info op = {.size = sizeof op};
    clv_error err = {0};
    int states = 0, inputs = 0, ops;
    bool tied = false, named = false;
    for (int i = 0; clv_import_argument_or_result(program, i, &port, NULL) == CLV_OK && port.name; i++) {
        states += port.is_state;
        inputs += !port.is_state && !port.is_result;
        tied = tied || (port.same_as && strcmp(port.name, "model.lm_head.weight") == 0 &&
                        strcmp(port.same_as, "model.transformer.wte.weight") == 0);
        named = named || (port.is_result && strcmp(port.name, "result['logits']") == 0);
    }
    assert_true(states == 17 && inputs == 2 && tied && named);
    assert_int_equal(clv_import_op_kind(program, 0, &op, NULL), CLV_OK);
    assert_true(strcmp(op.name, "aten.__and__.Tensor") == 0 && op.count == 2 && op.supported);
    assert_string_equal(clv_import_function(program, 0, &ops), "main");
    assert_false(clv_import_mesh(program, NULL));
    must(clv_import_layout(program, "*.c_fc.weight", "_,model", &err), &err);
    must(clv_import_layout(program, "*weight", "_", &err), &err); /* of which none was stated */
    for (int i = 0; clv_import_argument_or_result(program, i, &port, NULL) == CLV_OK && port.name; i++)
        if (strcmp(port.name, "model.transformer.h.0.mlp.c_fc.weight") == 0)
            assert_string_equal(port.sharding, "_,model");
    assert_int_equal(clv_import_layout(program, "*.c_fcc.weight", "_,model", &err), CLV_EINVAL);
    assert_non_null(strstr(err.message, "of the name *.c_fcc.weight"));
    clv_import_free(program);
    assert_true(clv_import_is_program(golden_path("torch_export/gpt2.pt2")));
}

static void must_write(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

/* A file of layouts: what is wrong is named; its mesh is the program's, and its axes may lack in a graph's. */
static void test_layouts(void **state)
{
    static const struct {
        const char *text, *fault;
    } faults[] = {
        {"[]", "object"},
        {"{}", "\"layouts\" is needed"},
        {"{\"layouts\": {\"x\": 3}}", "x: a layout is a text"},
        {"{\"layouts\": {\"z\": \"_\"}}", "of the name z"},
        {"{\"layout\": {}}", "there is no \"layout\"; valid: mesh, layouts"},
        {"{\"mesh\": \"data\", \"layouts\": {}}", "mesh: "},
    };
    char folder[] = "/tmp/cleave-layouts-XXXXXX", path[64];
    clv_mesh mesh;
    clv_error err = {0};
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/l.json", folder);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        clv_import *program = must_read("mlp");
        err = (clv_error){0};
        must_write(path, faults[i].text);
        assert_int_not_equal(clv_import_layouts(program, path, &err), CLV_OK);
        if (strncmp(err.message, path, strlen(path)) != 0 || !strstr(err.message, faults[i].fault))
            fail_msg("%s: %s", faults[i].text, err.message);
        clv_import_free(program);
    }
    clv_import *of_nothing = must_read("mlp");
    assert_int_equal(clv_import_layouts(of_nothing, "/nowhere.json", &err), CLV_ENOTFOUND);
    clv_import_free(of_nothing);
    static const struct {
        const char *mesh, *fault;
    } graphs[] = {{"data=2,model=2", NULL}, {"model=2", NULL}, {"other=1", NULL}, {"other=2", NULL}};
    must_write(path, "{\"mesh\": \"data=2,model=2\", \"layouts\": {\"up.weight\": \"model,data\"}}");
    for (size_t i = 0; i < sizeof graphs / sizeof *graphs; i++) {
        clv_import *program = must_read("mlp");
        clv_graph *graph = must_graph(graphs[i].mesh);
        must(clv_import_layouts(program, path, &err), &err);
        assert_true(clv_import_mesh(program, &mesh) && mesh.n_axes == 2);
        must(clv_import_stablehlo(graph, program, NULL, &err), &err);
        clv_graph_free(graph);
        clv_import_free(program);
    }
    clv_import *program = must_read("mlp");
    clv_graph *graph = must_graph("model=2");
    err = (clv_error){0};
    must(clv_import_layout(program, "up.weight", "mdoel,_", &err), &err);
    assert_int_equal(clv_import_stablehlo(graph, program, NULL, &err), CLV_EINVAL);
    assert_non_null(strstr(err.message, "mdoel"));
    clv_graph_free(graph);
    clv_import_free(program);
    remove(path);
    remove(folder);
}

/* Gradients are of the only float scalar, or of the one that is named. */
static void test_gradients_of(void **state)
{
    static const struct {
        const char *program, *of, *fault;
    } rows[] = {{"mlp", "", NULL},
                {"mlp", "result[1]", "result[1] is none"},
                {"mlp", "loss", "loss is none"},
                {"buffers", "", "there is none"}};
    static char text[1 << 18];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        clv_import *program = must_read(rows[i].program);
        clv_graph *graph = must_graph("");
        clv_error err = {0};
        const clv_import_options how = {.size = sizeof how, .gradients_of = rows[i].of};
        clv_output(graph, "own", clv_state(graph, "own", CLV_F32, 0, NULL, NULL, (clv_init){CLV_INIT_ZEROS, 0}), NULL);
        clv_status status = clv_import_stablehlo(graph, program, &how, &err);
        if (rows[i].fault ? status != CLV_EINVAL || !strstr(err.message, rows[i].fault) : status != CLV_OK)
            fail_msg("%s of %s: %s", rows[i].of, rows[i].program, err.message);
        clv_graph_print(text, sizeof text, graph);
        assert_null(strstr(text, "grad.own")); /* what the graph had before is no parameter of the program */
        assert_true(rows[i].fault || strstr(text, "grad."));
        clv_graph_free(graph);
        clv_import_free(program);
    }
}

/* Collectives are named after modules; the fused ops are used where PyTorch's are the same. */
static void test_names(void **state)
{
    static char text[1 << 18];
    clv_import *program = must_read("mistral");
    clv_graph *graph = must_graph("model=2");
    clv_error err = {0};
    must(clv_import_layout(program, "*_proj.weight", "model,_", &err), &err);
    must(clv_import_stablehlo(graph, program, NULL, &err), &err);
    clv_graph_print(text, sizeof text, graph);
    assert_non_null(strstr(text, "= attention \"model.model.layers.0.self_attn.attention\""));
    assert_non_null(strstr(text, "window=3"));
    assert_non_null(strstr(text, "= dot_general \"model.model.layers.0.mlp.down_proj.dot_general\""));
    assert_non_null(strstr(text, "xent_loss"));
    clv_graph_free(graph);
    clv_import_free(program);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_values),
                                       cmocka_unit_test(test_patterns),
                                       cmocka_unit_test(test_index_out_of_range),
                                       cmocka_unit_test(test_refused_nodes),
                                       cmocka_unit_test(test_refused_programs),
                                       cmocka_unit_test(test_damaged),
                                       cmocka_unit_test(test_listing),
                                       cmocka_unit_test(test_layouts),
                                       cmocka_unit_test(test_gradients_of),
                                       cmocka_unit_test(test_names)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
