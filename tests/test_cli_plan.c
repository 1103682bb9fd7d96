/* test_cli_plan.c - cleave plan and explain: bytes against formulas and against XLA's, what they refuse, meshes of any
 * size. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "unit_test.h"
#include <jansson.h>

static const char *path_of(const char *variable)
{
    const char *path = getenv(variable);
    assert_non_null(path);
    return path;
}

/* The exit code; out receives what it printed. */
static int run(char *out, size_t size, const char *format, ...)
{
    char arguments[1024], command[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(arguments, sizeof arguments, format, args);
    va_end(args);
    snprintf(command, sizeof command, "%s/cleave %s 2>&1", path_of("CLV_BUILD_DIR"), arguments);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    size_t n = fread(out, 1, size - 1, pipe);
    out[n] = '\0';
    char rest[4096];
    while (fread(rest, 1, sizeof rest, pipe) > 0)
        ;
    int status = pclose(pipe);
    return status >> 8;
}

static json_t *plan(const char *format, ...)
{
    enum { ROOM = 1 << 20 };
    char arguments[1024], *out = malloc(ROOM);
    va_list args;
    va_start(args, format);
    vsnprintf(arguments, sizeof arguments, format, args);
    va_end(args);
    assert_non_null(out);
    if (run(out, ROOM, "plan %s --json", arguments) != 0)
        fail_msg("plan %s: %s", arguments, out);
    json_t *document = json_loads(out, 0, NULL);
    assert_non_null(document);
    free(out);
    return document;
}

static double bytes_of(json_t *document)
{
    double bytes = json_number_value(json_object_get(document, "bytes")), sum = 0;
    json_t *list = json_object_get(document, "collectives");
    for (size_t i = 0; i < json_array_size(list); i++)
        sum += json_number_value(json_object_get(json_array_get(list, i), "bytes"));
    json_decref(document);
    assert_true(fabs(bytes - sum) <= 1e-9 * sum);
    return bytes;
}

static void assert_bytes(double got, double want)
{
    if (!(fabs(got - want) <= 1e-9 * want))
        fail_msg("%.1f bytes, expected %.1f", got, want);
}

/* ---- bytes ---- */

/* GSPMD's 2-D feed-forward: 2A + 2W forward, at most 3A + 4W more backward; 2A + 4W where only weights are gathered
 * again, 2W less where they are kept. */
static void test_2d_feed_forward(void **state)
{
    static const struct {
        int b, s, m, h, x, y;
    } cases[] = {{8, 4, 16, 32, 4, 2}, {8, 128, 256, 1024, 2, 4}, {8, 128, 256, 1024, 4, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[256];
        snprintf(text, sizeof text,
                 "--block ffn --batch %d --seq %d --hidden %d --ffn %d --mesh X=%d,Y=%d --rules gspmd-2d", cases[i].b,
                 cases[i].s, cases[i].m, cases[i].h, cases[i].x, cases[i].y);
        double a = 4.0 * cases[i].b * cases[i].s * cases[i].m / cases[i].x * (cases[i].y - 1) / cases[i].y;
        double w = 4.0 * cases[i].m * cases[i].h / cases[i].y * (cases[i].x - 1) / cases[i].x;
        double forward = bytes_of(plan("%s --forward", text)), weights = bytes_of(plan("%s --grad", text));
        double kept = bytes_of(plan("%s --grad --keep-gathered", text));
        double again = bytes_of(plan("%s --grad --reshard-after-forward", text));
        assert_bytes(forward, 2 * a + 2 * w);
        assert_true(weights <= again && again <= forward + 3 * a + 4 * w);
        assert_bytes(kept, forward + 2 * a + 2 * w);
        assert_bytes(weights, kept + 2 * w);
    }
    assert_bytes(bytes_of(plan("--block ffn --batch 8 --seq 4 --hidden 16 --ffn 32 --mesh X=4,Y=2 --rules gspmd-2d")),
                 2048);
}

/* Tensor parallelism with and without sequence parallelism moves equal bytes, as an all-reduce is a reduce-scatter and
 * an all-gather: 2 (forward) and 4 (with gradients) reductions of the residual. */
static void test_sequence_parallel_bytes(void **state)
{
    for (int t = 2; t <= 8; t *= 2) {
        double reduction = 2.0 * (t - 1) / t * 8 * 128 * 256 * 4;
        for (int gradient = 0; gradient < 2; gradient++) {
            const char *pass = gradient ? "--grad" : "--forward";
            double tp = bytes_of(plan("--block gpt --ffn 1024 --mesh model=%d --rules megatron %s", t, pass));
            double sp = bytes_of(plan("--block gpt --ffn 1024 --mesh model=%d --rules megatron-sp %s", t, pass));
            double norms = gradient ? 2 * 2.0 * (t - 1) / t * 256 * 4 : 0; /* the gains' gradients, summed over t */
            assert_bytes(tp, (gradient ? 4 : 2) * reduction);
            assert_bytes(sp, tp + norms);
        }
    }
}

/* Never more than XLA in any case of bench/xla_bytes.json, but for moments of norms (1 %). */
static void test_never_more_than_xla(void **state)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/bench/xla_bytes.json", path_of("CLV_SOURCE_DIR"));
    json_t *document = json_load_file(path, 0, NULL), *cases = json_object_get(document, "cases");
    assert_true(json_array_size(cases) > 100);
    for (size_t i = 0; i < json_array_size(cases); i++) {
        json_t *c = json_array_get(cases, i);
        const char *layouts = json_string_value(json_object_get(c, "layouts"));
        const char *pass = json_string_value(json_object_get(c, "pass"));
        const char *mesh = json_string_value(json_object_get(c, "mesh"));
        const char *block = json_string_value(json_object_get(c, "block"));
        double theirs = json_number_value(json_object_get(c, "bytes"));
        double ours = bytes_of(plan("--block %s --mesh %s --rules %s %s", block, mesh,
                                    strcmp(layouts, "2d") == 0 ? "gspmd-2d" : layouts,
                                    strcmp(pass, "forward") == 0 ? "--forward"
                                    : strcmp(pass, "grad") == 0  ? "--grad"
                                                                 : "--grad --reshard-after-forward"));
        if (!(ours <= 1.01 * theirs))
            fail_msg("%s by %s on %s, %s: %.0f bytes, XLA %.0f", block, layouts, mesh, pass, ours, theirs);
    }
    json_decref(document);
}

/* ---- a model of any size on any mesh ---- */

static void write_config(char *path, size_t size, int layers)
{
    snprintf(path, size, "%s/plan_config_%d.json", path_of("CLV_BUILD_DIR"), layers);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fprintf(
        file,
        "{\"model_type\":\"llama\",\"hidden_size\":512,\"num_hidden_layers\":%d,\"num_attention_heads\":8,"
        "\"num_key_value_heads\":8,\"intermediate_size\":1408,\"vocab_size\":32000,\"max_position_embeddings\":4096,"
        "\"rms_norm_eps\":1e-5,\"hidden_act\":\"silu\",\"rope_theta\":10000.0,\"tie_word_embeddings\":false}",
        layers);
    fclose(file);
}

static void test_models(void **state)
{
    static const char *const cases[] = {
        "--mesh model=1 --train",
        "--mesh data=256,model=12 --rules fsdp+megatron-sp --batch 512 --train --dtype bf16",
        "--mesh data=1000,model=100 --batch 1000 --train",
        "--mesh X=250,Y=400 --rules gspmd-2d --batch 1000 --prefill",
        "--mesh data=4,model=7 --decode --seq 777 --dtype bf16",
        "--mesh data=8 --rules zero1 --train --dtype bf16",
    };
    char config[4096];
    write_config(config, sizeof config, 3);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        json_t *p = plan("-m %s %s", config, cases[i]), *memory = json_object_get(p, "memory");
        assert_true(json_integer_value(json_object_get(memory, "parameters")) > 0);
        assert_true(json_number_value(json_object_get(json_object_get(p, "predicted"), "seconds")) > 0);
        assert_true((json_integer_value(json_object_get(memory, "optimizer")) > 0) ==
                    (strstr(cases[i], "train") != NULL));
        assert_true((json_integer_value(json_object_get(memory, "kv_cache")) > 0) ==
                    (strstr(cases[i], "train") == NULL));
        json_decref(p);
    }
}

/* Repeated layers fold into one row of text. */
static void test_layers_fold(void **state)
{
    char few[4096], many[4096], *out = malloc(1 << 16), *more = malloc(1 << 16);
    write_config(few, sizeof few, 3);
    write_config(many, sizeof many, 30);
    assert_int_equal(run(out, 1 << 16, "plan -m %s --mesh data=2,model=2 --collectives", few), 0);
    assert_int_equal(run(more, 1 << 16, "plan -m %s --mesh data=2,model=2 --collectives", many), 0);
    int lines = 0, more_lines = 0;
    for (const char *p = out; *p; p++)
        lines += *p == '\n';
    for (const char *p = more; *p; p++)
        more_lines += *p == '\n';
    assert_int_equal(lines, more_lines);
    assert_non_null(strstr(more, "layers.*."));
    free(out);
    free(more);
}

/* ---- what was planned ---- */

static void expect_head(const char *arguments, const char *text, const char *fields)
{
    char out[65536];
    assert_int_equal(run(out, sizeof out, "plan %s --all --wide", arguments), 0);
    size_t n = strcspn(out, "\n");
    if (strlen(text) != n || strncmp(out, text, n) != 0 || strncmp(out + n, "\n\nop ", 5) != 0)
        fail_msg("plan %s says\n%.*s", arguments, (int)n, out);
    json_t *p = plan("%s", arguments), *want = json_loads(fields, 0, NULL);
    assert_non_null(want);
    if (!json_equal(json_object_get(p, "plan"), want))
        fail_msg("plan %s: %s", arguments, json_dumps(json_object_get(p, "plan"), 0));
    json_decref(want);
    json_decref(p);
}

/* Above the table, and as fields: the step, the model or block with its sizes, how it is split, for which machine. */
static void test_head(void **state)
{
    char config[4096], arguments[8192];
    write_config(config, sizeof config, 3);
    snprintf(arguments, sizeof arguments,
             "-m %s --mesh data=2,model=2 --rules fsdp+megatron-sp --batch 4 --seq 16 --dtype bf16 --accumulate 2 "
             "--no-sync --reshard-after-forward",
             config);
    expect_head(arguments,
                "step training, family llama, parameters 42.4 M, layers 3, hidden 512, heads 8, kv_heads 8, head_dim "
                "64, ffn 1408, vocab 32000, batch 4, seq 16, dtype bf16, accumulate 2, no_sync yes, "
                "reshard_after_forward all, mesh data=2,model=2, rules fsdp+megatron-sp, hardware default",
                "{\"step\": \"training\", \"family\": \"llama\", \"parameters\": 42405376.0, \"layers\": 3, "
                "\"hidden\": 512, \"heads\": 8, \"kv_heads\": 8, \"head_dim\": 64, \"ffn\": 1408, \"vocab\": 32000, "
                "\"batch\": 4, \"seq\": 16, \"dtype\": \"bf16\", \"accumulate\": 2, \"no_sync\": true, "
                "\"reshard_after_forward\": \"all\", \"mesh\": \"data=2,model=2\", \"rules\": \"fsdp+megatron-sp\", "
                "\"hardware\": \"default\"}");
    expect_head(
        "--block ffn -tp 2 --sp",
        "step forward, block ffn, hidden 256, ffn 1024, batch 8, seq 128, dtype f32, mesh model=2, rules "
        "megatron-sp, hardware default",
        "{\"step\": \"forward\", \"block\": \"ffn\", \"hidden\": 256, \"ffn\": 1024, \"batch\": 8, \"seq\": 128, "
        "\"dtype\": \"f32\", \"mesh\": \"model=2\", \"rules\": \"megatron-sp\", \"hardware\": \"default\"}");
    expect_head(
        "--block attention -tp 2 --grad --kv-heads 2 --hardware h100-nvlink-ib",
        "step forward and backward, block attention, hidden 256, heads 8, kv_heads 2, head_dim 32, batch 8, "
        "seq 128, dtype f32, mesh model=2, rules megatron, hardware h100-nvlink-ib",
        "{\"step\": \"forward and backward\", \"block\": \"attention\", \"hidden\": 256, \"heads\": 8, "
        "\"kv_heads\": 2, \"head_dim\": 32, \"batch\": 8, \"seq\": 128, \"dtype\": \"f32\", \"mesh\": \"model=2\", "
        "\"rules\": \"megatron\", \"hardware\": \"h100-nvlink-ib\"}");
    static const char *const steps[] = {"prefill", "decode"};
    for (int i = 0; i < 2; i++) {
        json_t *p = plan("-m %s -tp 2 --%s --quant q8", config, steps[i]), *head = json_object_get(p, "plan");
        assert_string_equal(json_string_value(json_object_get(head, "step")), steps[i]);
        assert_string_equal(json_string_value(json_object_get(head, "quant")), "q8");
        json_decref(p);
    }
}

/* ---- whether it fits ---- */

static int64_t figure(json_t *document, const char *object, const char *key)
{
    return json_integer_value(json_object_get(json_object_get(document, object), key));
}

/* A limit that holds exactly the total fits; one byte less fails, lists the kinds that fill most of it, and what
 * planning again with one option changed needs. */
static void test_memory_limit(void **state)
{
    const char *block = "--block gpt --hidden 256 --mesh data=2,model=2 --batch 64 --grad";
    static char out[1 << 20];
    json_t *p = plan("%s", block);
    int64_t total = figure(p, "memory", "total");
    assert_null(json_object_get(p, "fit")); /* no limit is known */
    json_decref(p);
    p = plan("%s --memory-limit %lld", block, (long long)total);
    assert_true(json_is_true(json_object_get(json_object_get(p, "fit"), "fits")));
    assert_int_equal(figure(p, "fit", "spare"), 0);
    assert_int_equal(figure(p, "fit", "limit"), total);
    assert_null(json_object_get(p, "largest"));
    json_decref(p);

    assert_int_equal(run(out, sizeof out, "plan %s --memory-limit %lld --json", block, (long long)total - 1), 1);
    char *message = strstr(out, "cleave plan: a rank needs ");
    assert_non_null(message);
    assert_non_null(strstr(message, "--memory-limit allows "));
    memset(message, ' ', strcspn(message, "\n")); /* on stderr, not in the JSON */
    p = json_loads(out, 0, NULL);
    assert_true(json_is_false(json_object_get(json_object_get(p, "fit"), "fits")));
    assert_int_equal(figure(p, "fit", "lacking"), 1);
    json_t *largest = json_object_get(p, "largest"), *options = json_object_get(p, "would_need"), *bytes;
    int64_t before = INT64_MAX;
    const char *key;
    assert_true(json_object_size(largest) >= 1 && json_object_size(options) >= 4);
    json_object_foreach(largest, key, bytes)
    {
        assert_int_equal(json_integer_value(bytes), figure(p, "memory", key));
        assert_true(json_integer_value(bytes) <= before);
        assert_true(json_array_size(json_object_get(json_object_get(p, "smaller_by"), key)) > 0);
        before = json_integer_value(bytes);
    }
    json_object_foreach(options, key, bytes)
    {
        bool mesh = strncmp(key, "--mesh", 6) == 0, batch = strncmp(key, "--batch", 7) == 0;
        json_t *again = plan("--block gpt --hidden 256 --grad %s %s %s", mesh ? "" : "--mesh data=2,model=2",
                             batch ? "" : "--batch 64", key);
        assert_int_equal(figure(again, "memory", "total"), json_integer_value(bytes));
        assert_true(json_integer_value(bytes) < total);
        json_decref(again);
    }
    json_decref(p);
}

/* A profile's memory is reported and does not fail; ranks beyond its places share it. */
static void test_profile_memory(void **state)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/small_host.json", path_of("CLV_BUILD_DIR"));
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file, "{\"name\": \"small host\", \"ranks_per_host\": 2, \"hosts\": 1, \"memory_bytes\": 1000000, "
                  "\"flops_per_s\": {\"f32\": 1e11}, \"memory_bytes_per_s\": 1e10, \"efficiency\": 0.8, "
                  "\"instruction_s\": 1e-6, \"host\": {\"alpha_s\": 1e-6, \"bytes_per_s\": 1e9}}");
    fclose(file);
    for (int ranks = 2; ranks <= 8; ranks *= 2) {
        json_t *p = plan("--block gpt --mesh model=%d --hardware %s", ranks, path), *fit = json_object_get(p, "fit");
        assert_true(json_is_false(json_object_get(fit, "fits")));
        assert_int_equal(figure(p, "fit", "limit"), 2000000 / ranks);
        assert_int_equal(figure(p, "fit", "lacking"), figure(p, "memory", "total") - 2000000 / ranks);
        assert_string_equal(json_string_value(json_object_get(fit, "limit_from")), "small host");
        json_decref(p);
    }
    json_t *p = plan("--block gpt --mesh model=2 --hardware %s --memory-limit 24GiB", path);
    assert_int_equal(figure(p, "fit", "limit"), 24ll << 30);
    json_decref(p);
    p = plan("--block gpt --mesh model=2 --hardware tpu-v2-8");
    assert_int_equal(figure(p, "fit", "limit"), 8590000000);
    assert_int_equal(figure(p, "fit", "spare"), 8590000000 - figure(p, "memory", "total"));
    json_decref(p);
}

/* ---- explain and show ---- */

static void test_explain(void **state)
{
    char out[1 << 14];
    assert_int_equal(run(out, sizeof out, "explain --block ffn --mesh X=2,Y=4 --rules gspmd-2d --op down --json"), 0);
    json_t *document = json_loads(out, 0, NULL), *rows = json_object_get(document, "candidates");
    int chosen = 0;
    double best = INFINITY, price = 0;
    for (size_t i = 0; i < json_array_size(rows); i++) {
        json_t *row = json_array_get(rows, i);
        double seconds = json_number_value(json_object_get(row, "seconds"));
        if (strcmp(json_string_value(json_object_get(row, "verdict")), "costlier") == 0)
            best = fmin(best, seconds);
        if (strcmp(json_string_value(json_object_get(row, "chosen")), "*") == 0) {
            chosen++;
            price = seconds;
        }
    }
    assert_true(json_array_size(rows) > 1);
    assert_int_equal(chosen, 1);
    assert_true(price <= best);
    json_decref(document);
    assert_int_equal(run(out, sizeof out, "explain --block ffn --mesh X=2,Y=4 --rules gspmd-2d --dot"), 0);
    assert_non_null(strstr(out, "digraph program {"));
    assert_non_null(strstr(out, "reduce_scatter"));
    assert_int_equal(run(out, sizeof out, "plan --block ffn --mesh X=2,Y=4 --rules gspmd-2d --show down"), 0);
    assert_non_null(strstr(out, " 3            | 7            |  [768,1024)"));
    assert_int_equal(
        run(out, sizeof out, "plan --block ffn --mesh data=60,model=50 --rules fsdp+megatron-sp --show down"), 0);
    assert_non_null(strstr(out, "the first 24 x 12 of 50 x 60 blocks are shown"));
}

/* Without --op: every op and change of layout, in order, with the statement behind it; seconds are what `plan` adds up.
 */
static void test_explain_assignment(void **state)
{
    static const char *const hosts[] = {"", "--hardware h100-nvlink-ib"};
    static char out[1 << 16];
    for (int h = 0; h < 2; h++) {
        json_t *p = plan("--block gpt --hidden 512 --grad --mesh data=4,model=4 --rules fsdp+megatron-sp %s", hosts[h]);
        assert_int_equal(run(out, sizeof out,
                             "explain --block gpt --hidden 512 --grad --mesh data=4,model=4 --rules fsdp+megatron-sp "
                             "%s --json",
                             hosts[h]),
                         0);
        json_t *document = json_loads(out, 0, NULL), *rows = json_object_get(document, "assignment"), *row;
        double seconds = 0, bytes = 0;
        size_t i, steps = 0;
        json_array_foreach(rows, i, row)
        {
            const char *split = json_string_value(json_object_get(row, "split"));
            bool step = strncmp(split, "over ", 5) == 0;
            seconds += json_number_value(json_object_get(row, "seconds"));
            bytes += json_number_value(json_object_get(row, "bytes"));
            assert_int_equal(step, json_number_value(json_object_get(row, "bytes")) > 0);
            assert_true(strlen(json_string_value(json_object_get(row, "why"))) > 0);
            assert_non_null(strstr(json_string_value(json_object_get(row, "layouts")), " -> "));
            if (!step && strcmp(split, "nothing (every rank does all of it)") != 0 && *split)
                assert_non_null(strstr(split, " over "));
            steps += step;
        }
        assert_true(steps > 10 && json_array_size(rows) > 3 * steps / 2);
        json_t *predicted = json_object_get(p, "predicted");
        assert_true(fabs(seconds / json_number_value(json_object_get(predicted, "seconds")) - 1) < (h ? 1e-6 : 0.05));
        assert_true(bytes == json_number_value(json_object_get(p, "bytes")));
        json_decref(document);
        json_decref(p);
    }
    assert_int_equal(run(out, sizeof out, "explain --block ffn --mesh model=4"), 0);
    assert_non_null(strstr(out, " up.weight is stated as split by ffn over model, by the rules megatron\n"));
}

/* Of a collective in parts: as many as it has move, of each microbatch and where it is recomputed. */
static void test_explain_parts(void **state)
{
    static char out[1 << 22];
    const char *const command = "explain -m %s/data/configs/llama-3-8b.json --mesh model=4 --rules megatron-sp "
                                "--batch 8 --seq 2048 --dtype bf16 --hardware h100-nvlink-ib --overlap %s --json";
    static const char *const how[] = {"--accumulate 2", "--accumulate 4 --recompute full"};
    for (size_t h = 0; h < sizeof how / sizeof *how; h++) {
        int split = 0, most = 0;
        assert_int_equal(run(out, sizeof out, command, path_of("CLV_SOURCE_DIR"), how[h]), 0);
        for (const char *at = out; (at = strstr(at, " parts move beside")); at++) {
            long long hidden, n;
            const char *why = at;
            while (*why != '"')
                why--;
            assert_int_equal(sscanf(why, "\"%lld of %lld parts", &hidden, &n), 2);
            assert_true(hidden <= n);
            split++;
            most += hidden == n;
        }
        assert_true(split > 100 && most > split / 4);
    }
}

/* The candidates of `explain` for this op and result; released with the document. */
static json_t *explain(const char *format, ...)
{
    static char out[1 << 20];
    char arguments[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(arguments, sizeof arguments, format, args);
    va_end(args);
    if (run(out, sizeof out, "explain %s --json", arguments) != 0)
        fail_msg("explain %s: %s", arguments, out);
    json_t *document = json_loads(out, 0, NULL);
    assert_non_null(document);
    return document;
}

static const char *text_of(json_t *row, const char *key)
{
    return json_string_value(json_object_get(row, key));
}

/* The first row that makes this and has this split (NULL: any) and verdict; NULL: none. */
static json_t *find_row(json_t *document, const char *makes, const char *split, const char *verdict)
{
    json_t *row;
    size_t i;
    json_array_foreach(json_object_get(document, "candidates"), i, row)
    {
        if (strcmp(text_of(row, "purpose"), makes) == 0 && strcmp(text_of(row, "verdict"), verdict) == 0 &&
            (!split || strcmp(text_of(row, "split"), split) == 0))
            return row;
    }
    return NULL;
}

static void assert_why(json_t *row, const char *why)
{
    assert_non_null(row);
    if (!strstr(text_of(row, "why"), why))
        fail_msg("why: %s, expected %s", text_of(row, "why"), why);
}

/* A weight's op, and the ops of its gradients, with every other way of splitting them and why it was not taken. */
static void test_explain_verdicts(void **state)
{
    json_t *d = explain("--block gpt --mesh model=4 --grad --op mlp.down");
    assert_non_null(find_row(d, "result", "ffn over model", "chosen"));
    assert_why(find_row(d, "result", "batch over model", "moves_stationary"),
               "kept in place: mlp.down.weight stays as it is over model");
    assert_why(find_row(d, "result", "width over model", "moves_stationary"), "kept in place: ");
    assert_non_null(find_row(d, "gradient of mlp.down.weight", "ffn over model", "chosen"));
    assert_why(find_row(d, "gradient of mlp.down.weight", "sequence over model", "costlier"), "cost: ");
    assert_non_null(find_row(d, "gradient of the result of mlp.map", "ffn over model", "chosen"));
    json_decref(d);

    d = explain("--block attention --heads 8 --kv-heads 2 --mesh model=2 --rules megatron --op attention");
    assert_non_null(find_row(d, "result", "KV heads over model", "chosen"));
    assert_why(find_row(d, "result", "query groups over model", "illegal"),
               "illegal: query groups can only be split over ranks that the KV heads leave over");
    json_decref(d);
    d = explain("--block gpt --mesh model=2 --sp --op mlp.constraint"); /* nothing is chosen */
    assert_why(find_row(d, "result", "as stated", "chosen"),
               "the input of the MLP is stated as whole on every rank, by the rules megatron-sp");
    json_decref(d);
    d = explain("--block gpt --mesh model=2 --sp --op attention.norm");
    assert_non_null(find_row(d, "result", "sequence over model", "chosen"));
    json_decref(d);
}

/* Whether a split names a dimension by a letter: "d over X", of a product's subscripts. */
static bool has_bare_letter(const char *split)
{
    for (const char *at = split; at; at = strstr(at, ", ") ? strstr(at, ", ") + 2 : NULL)
        if (strncmp(at + 1, " over ", 6) == 0)
            return true;
    return false;
}

/* The ops of the backward pass call dimensions as those of the forward pass do. */
static void test_explain_names_gradients(void **state)
{
    static const char *const blocks[] = {"gpt --op attention", "gpt --op mlp", "llama --kv-heads 2 --op attention"};
    for (size_t b = 0; b < sizeof blocks / sizeof blocks[0]; b++) {
        json_t *d = explain("--mesh X=2,Y=2 --rules gspmd-2d --grad --most 50 --block %s", blocks[b]), *row;
        size_t i;
        json_array_foreach(json_object_get(d, "candidates"), i, row)
        {
            if (has_bare_letter(text_of(row, "split")))
                fail_msg("%s: %s (%s): %s", blocks[b], text_of(row, "op"), text_of(row, "purpose"),
                         text_of(row, "split"));
        }
        json_decref(d);
    }
    json_t *d = explain("--block gpt --mesh X=2,Y=2 --rules gspmd-2d --grad --most 50 --op attention");
    assert_non_null(find_row(d, "gradient of attention.o.weight", "head size over X and Y", "moves_stationary"));
    assert_non_null(find_row(d, "gradient of attention.kv.weight", "keys and values over X", "moves_stationary"));
    assert_non_null(find_row(d, "gradient of the input of attention", "sequence over X and Y", "costlier"));
    json_decref(d);
}

/* What is dearer says by how much, as its own figures have it. */
static void test_explain_prices(void **state)
{
    json_t *d = explain("--block ffn --mesh X=2,Y=4 --rules gspmd-2d --grad --most 100 --op up"), *row;
    size_t i;
    double chosen = 0;
    json_array_foreach(json_object_get(d, "candidates"), i, row)
    {
        double seconds = json_number_value(json_object_get(row, "seconds")), percent = -1;
        if (strcmp(text_of(row, "verdict"), "chosen") == 0)
            chosen = seconds;
        const char *bracket = strstr(text_of(row, "why"), "more (");
        if (strcmp(text_of(row, "verdict"), "costlier") != 0 || !bracket)
            continue;
        assert_int_equal(sscanf(bracket, "more (%lf %%)", &percent), 1);
        assert_true(fabs(percent - 100 * (seconds / chosen - 1)) <= 0.5001);
    }
    assert_int_equal(json_integer_value(json_object_get(d, "listed")),
                     json_array_size(json_object_get(d, "candidates")));
    json_decref(d);
}

/* ---- causes ---- */

/* The cause of the first collective of this op and kind. */
static json_t *collective(json_t *document, const char *op, const char *kind)
{
    json_t *row;
    size_t i;
    json_array_foreach(json_object_get(document, "collectives"), i, row)
    {
        if (strcmp(text_of(row, "op"), op) == 0 && strcmp(text_of(row, "kind"), kind) == 0)
            return row;
    }
    fail_msg("no %s of %s", kind, op);
    return NULL;
}

static void test_causes(void **state)
{
    static const struct {
        const char *arguments, *op, *kind, *cause, *reason, *rules;
    } cases[] = {
        {"--block gpt -tp 2 --sp --grad", "mlp.constraint", "reduce_scatter",
         "the residual stream is stated as split by sequence over model, by the rules megatron-sp", "constraint",
         "megatron-sp"},
        {"--block gpt -tp 2 --grad", "mlp.constraint", "all_reduce",
         "the residual stream is stated as whole on every rank, by the rules megatron", "constraint", "megatron"},
        {"--block gpt -tp 2 --sp --grad", "mlp.constraint.grad.cotangent_constraint", "reduce_scatter",
         "the gradient of the result of mlp.normalize is laid out as that is: split by sequence over model", "gradient",
         NULL},
        {"--block gpt -tp 2 --sp --grad", "mlp.norm.weight.grad.constraint", "all_reduce",
         "mlp.norm.weight is stated as whole on every rank, by the rules megatron-sp, and its gradient is laid out "
         "alike",
         "constraint", "megatron-sp"},
        {"--block ffn --mesh X=2,Y=4 --rules gspmd-2d", "dot_general", "all_gather",
         "dot_general is split by batch over X, ffn over Y; up.weight is stated as split by width over X, ffn over Y, "
         "by "
         "the rules gspmd-2d; the input of the MLP is stated as split by batch over X, by the rules "
         "gspmd-2d",
         "operand", "gspmd-2d"},
        {"--block gpt --mesh X=2,Y=4 --rules gspmd-2d", "mlp.normalize", "all_reduce",
         "the result of mlp.moments is a sum over Y, and mlp.normalize needs it complete", "operand", "gspmd-2d"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        json_t *d = plan("%s", cases[i].arguments), *row = collective(d, cases[i].op, cases[i].kind);
        assert_string_equal(text_of(row, "cause"), cases[i].cause);
        assert_string_equal(text_of(row, "reason"), cases[i].reason);
        if (cases[i].rules)
            assert_string_equal(text_of(row, "rules"), cases[i].rules);
        else
            assert_true(json_is_null(json_object_get(row, "rules")));
        assert_non_null(text_of(row, "from"));
        assert_non_null(text_of(row, "to"));
        json_decref(d);
    }
}

/* Causes name dimensions, never factors, and say nothing twice. */
static void test_causes_read_well(void **state)
{
    static const char *const presets[] = {"--mesh data=4 --rules fsdp",
                                          "--mesh data=2,model=4 --rules fsdp+megatron-sp",
                                          "--mesh X=2,Y=2 --rules gspmd-2d", "--mesh data=2,model=2 --rules zero1"};
    char config[4096];
    write_config(config, sizeof config, 3);
    for (size_t i = 0; i < 2 * sizeof presets / sizeof presets[0]; i++) {
        json_t *d = plan("-m %s %s %s", config, presets[i / 2], i % 2 ? "--train" : "--prefill"), *row;
        size_t k;
        json_array_foreach(json_object_get(d, "collectives"), k, row)
        {
            char *cause = strdup(text_of(row, "cause")), *part = strstr(cause, "; "), *second;
            assert_true(strlen(cause) > 20);
            assert_null(strstr(cause, "factor"));
            assert_null(strstr(cause, "dimension "));
            assert_null(strstr(cause, "(null)"));
            /* rows of the loss are never split over what the logits' vocabulary is: they do not have it from them */
            assert_false(strstr(cause, "xent_loss_gradient is split") && strstr(cause, ", as the logits tensor"));
            second = part ? strstr(part + 2, "; ") : NULL;
            if (second)
                *second = '\0';
            assert_true(!second || strcmp(part + 2, second + 2) != 0);
            free(cause);
        }
        json_decref(d);
    }
}

/* ---- refusals ---- */

static void test_refused(void **state)
{
    static const struct {
        const char *arguments, *message;
        int code;
    } cases[] = {
        {"plan --mesh model=2", "give either -m PATH or --block ffn|attention|gpt|llama", 2},
        {"plan --block gpt --grad --forward", "--forward cannot be combined with --grad", 2},
        {"plan --block gpt --train", "train, prefill and decode are for models", 2},
        {"plan --block gpt --mesh a=2", "the default rules do not fit the mesh 'a=2'", 2},
        {"plan --block gpt --mesh model=0", "model", 2},
        {"plan --block gpt --mesh model=200000", "200000 ranks; valid: at most 100000", 2},
        {"plan --block gpt --mesh model=2 -tp 2", "cannot be combined with --mesh", 2},
        {"plan --block gpt -tp 2 --rules dp", "the rules 'dp' do not fit the mesh 'model=2'", 2},
        {"plan --block gpt -tp 2 --sp --rules megatron", "--sp cannot be combined with --rules", 2},
        {"plan --block gpt --batch 0", "--batch", 2},
        {"plan --block gpt --memory-limit 1K,2K",
         "--memory-limit takes a size such as 4096, 16K, 24GiB, 16GB, not '1K,2K'", 2},
        {"plan --block gpt --memory-limit 1GX", "--memory-limit takes a size such as 4096, 16K, 24GiB, 16GB, not '1GX'",
         2},
        {"plan --block gpt --memory-limit 1e9", "--memory-limit takes a size such as 4096, 16K, 24GiB, 16GB, not '1e9'",
         2},
        {"plan --block gpt --memory-limit ''", "--memory-limit takes a size such as 4096, 16K, 24GiB, 16GB, not ''", 2},
        {"plan --block ffn --heads 8", "heads is for the blocks attention, gpt, llama; ffn has no use for it", 2},
        {"plan --block gpt --heads 7", "width 256 is not a multiple of 7 heads; set head_dim", 2},
        {"plan --block gpt --heads 7 --head-dim -1", "--head-dim", 2},
        {"plan --block ffn --head-dim 7", "head_dim is for the blocks attention, gpt, llama; ffn", 2},
        {"plan --block ffn --kv-heads 2", "kv_heads is for the blocks attention, gpt, llama; ffn", 2},
        {"explain --block attention --ffn 64 --op q", "ffn is for the blocks ffn, gpt, llama; attention", 2},
        {"plan -m . --hidden 256", "hidden is for a block (ffn, attention, gpt, llama); a model is as its", 2},
        {"plan -m . --heads 8", "heads is for a block", 2},
        {"plan -m . --kv-heads 2", "kv_heads is for a block", 2},
        {"plan -m . --ffn 9", "ffn is for a block", 2},
        {"explain -m . --bias --dot", "bias is for a block", 2},
        {"plan --block gpt --recompute full", "recompute is for a backward pass: grad of a block, train of a model", 2},
        {"plan --block gpt --reshard-after-forward",
         "reshard_after_forward is for a backward pass: grad of a block, train of a model", 2},
        {"plan --block gpt --keep-gathered", "reshard_after_forward is for a backward pass", 2},
        {"plan -m . --prefill --reshard-after-forward", "reshard_after_forward is for a backward pass", 2},
        {"plan -m . --decode --reshard-after-forward", "reshard_after_forward is for a backward pass", 2},
        {"plan --block gpt --hardware nowhere.json", "--hardware nowhere.json: no such file; valid: ", 2},
        {"plan --block gpt --show nothing", "no parameter or input is called 'nothing'", 2},
        {"plan -m /nowhere", "nowhere: no such file or folder\n", 2},
        {"explain --block gpt --op nothing", "no op or parameter is named 'nothing';", 2},
        {"explain --block gpt --grad --op dy",
         "'dy' is an input, for which no way is chosen; --op takes an op, a parameter", 2},
        {"explain --block gpt --op y", "'y' is an output, for which no way is chosen", 2},
        {"explain --block gpt --most 3", "--most has no effect without --op NAME", 2},
        {"explain --block gpt --op mlp --dot", "--op cannot be combined with --dot", 2},
    };
    char out[8192];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int code = run(out, sizeof out, "%s", cases[i].arguments);
        if (code != cases[i].code || !strstr(out, cases[i].message) || strchr(out, '\n') != out + strlen(out) - 1)
            fail_msg("%s: exit %d, %s", cases[i].arguments, code, out);
    }
}

/* Files of the user's own that are wrong. */
static void test_refused_files(void **state)
{
    static const struct {
        const char *content, *option, *message;
    } cases[] = {
        {"{\"rules\": [[\"batch\", \"dta\"]]}", "rules", "rule 1: the mesh has no axis 'dta'; valid: model"},
        {"{\"rules\": [[\"btch model\", \"model\"]]}", "rules",
         "rule 1: 'btch model' is not a valid logical axis name"},
        {"{\"rules\": [[\"batch\", [\"model\", \"model\"]]]}", "rules", "axis 'model' twice"},
        {"{\"rules\": [", "rules", "not JSON"},
        {"{\"name\": \"n\"}", "hardware", "\"ranks_per_host\" is missing"},
        {"{\"name\": \"n\", \"rank\": 2}", "hardware", "unknown key \"rank\"; valid: name"},
    };
    char path[4096], out[8192];
    snprintf(path, sizeof path, "%s/refused.json", path_of("CLV_BUILD_DIR"));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        FILE *file = fopen(path, "w");
        fputs(cases[i].content, file);
        fclose(file);
        int code = run(out, sizeof out, "plan --block gpt --mesh model=2 --%s %s", cases[i].option, path);
        if (code != 2 || !strstr(out, cases[i].message) || strchr(out, '\n') != out + strlen(out) - 1)
            fail_msg("%s: exit %d, %s", cases[i].content, code, out);
    }
}

/* A name that no tensor has is found when the graph is there. */
static void test_misspelt_rule(void **state)
{
    char path[4096], out[8192];
    snprintf(path, sizeof path, "%s/misspelt.json", path_of("CLV_BUILD_DIR"));
    FILE *file = fopen(path, "w");
    fputs("{\"rules\": [[\"heads\", \"model\"], [\"btch\", \"model\"]]}", file);
    fclose(file);
    static const char *const commands[] = {"plan --block gpt", "explain --block gpt --op mlp.up", "bench block"};
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        int code = run(out, sizeof out, "%s --mesh model=2 --rules %s", commands[i], path);
        if (code != 2 || !strstr(out, "misspelt.json: rule 2: no tensor has the logical axis 'btch'; valid: batch"))
            fail_msg("%s: exit %d, %s", commands[i], code, out);
    }
}

/* An implicit collective: the sequence is split over an axis over which attention's keys cannot be. */
static void test_implicit_collectives(void **state)
{
    char rules[4096], out[8192];
    snprintf(rules, sizeof rules, "%s/context_parallel.json", path_of("CLV_BUILD_DIR"));
    FILE *file = fopen(rules, "w");
    fprintf(file, "{\"rules\": [[\"seq\", \"c\"]]}\n");
    fclose(file);
    assert_int_equal(run(out, sizeof out, "plan --block attention --mesh c=2 --rules %s", rules), 0);
    assert_int_equal(
        run(out, sizeof out, "plan --block attention --mesh c=2 --rules %s --max-implicit-bytes 1000", rules), 2);
    assert_non_null(strstr(out, "(max_implicit_bytes: 1000)"));
    assert_non_null(strstr(out, ": implicit all_to_all of ")); /* whatever letter it begins with */
    assert_non_null(strstr(out, "attention"));
    assert_non_null(strstr(out, " is stated as split by sequence over c, by the rules context_parallel.json"));
    assert_int_equal(run(out, sizeof out, "plan --block gpt --mesh model=4 --sp --max-implicit-bytes 1000 --grad"), 0);
}

/* Encoders and bare models are planned as any other; a bare one cannot be trained. */
static void test_encoders(void **state)
{
    static char out[1 << 16];
    const char *source = getenv("CLV_SOURCE_DIR");
    source = source ? source : ".";
    assert_int_equal(
        run(out, sizeof out, "plan -m %s/tests/golden/bert_bare --mesh model=2 --batch 2 --seq 8 --prefill", source),
        0);
    assert_int_equal(
        run(out, sizeof out, "plan -m %s/tests/golden/bert --mesh model=2 --batch 2 --seq 8 --train", source), 0);
    assert_int_equal(
        run(out, sizeof out, "plan -m %s/tests/golden/bert_bare --mesh model=2 --batch 2 --seq 8 --train", source), 1);
    assert_non_null(strstr(out, ": BertModel has no head, which a training step needs; valid: BertForMaskedLM"));
    char config[4096]; /* a name that begins with a vowel */
    snprintf(config, sizeof config, "%s/esm_bare.json", path_of("CLV_BUILD_DIR"));
    snprintf(out, sizeof out, "sed 's/EsmForMaskedLM/EsmModel/' '%s/tests/golden/esm/config.json' >'%s'", source,
             config);
    assert_int_equal(system(out), 0);
    assert_int_equal(run(out, sizeof out, "plan -m %s --mesh model=2 --batch 2 --seq 8 --train", config), 1);
    assert_non_null(strstr(out, ": EsmModel has no head, which a training step needs; valid: EsmForMaskedLM"));
}

/* That another order of the axes is faster is said where it is, and the order is one that can be given. */
static void test_faster_order(void **state)
{
    static const char block[] = "--block gpt --hidden 512 --seq 512 --grad --hardware h100-nvlink-ib";
    json_t *far = plan("%s --mesh model=8,data=2", block), *predicted = json_object_get(far, "predicted");
    const char *order = json_string_value(json_object_get(predicted, "faster_by"));
    assert_string_equal(order, "--mesh data=2,model=8");
    json_t *near = plan("%s %s", block, order), *better = json_object_get(near, "predicted");
    assert_true(json_number_value(json_object_get(predicted, "faster_seconds")) ==
                json_number_value(json_object_get(better, "seconds")));
    assert_null(json_object_get(better, "faster_by"));
    json_decref(far);
    json_decref(near);
}

/* ---- --rules auto ---- */

static double number_in(json_t *document, const char *object, const char *key)
{
    json_t *value = json_object_get(json_object_get(document, object), key);
    assert_true(json_is_number(value));
    return json_number_value(value);
}

#define BLOCK "--block gpt --hidden 512 --heads 8 --grad --seq 256 --hardware h100-nvlink-ib"

/* It is as fast as every preset, says what it found, and what it saves is the same plan. */
static void test_auto_rules(void **state)
{
    static const char *const presets[] = {"megatron", "megatron-sp", "fsdp+megatron-sp", "zero1"};
    char out[8192], file[] = "/tmp/cleave_auto_XXXXXX";
    close(mkstemp(file));
    json_t *found = plan(BLOCK " --mesh data=2,model=4 --rules auto --save %s", file);
    double seconds = number_in(found, "predicted", "seconds");
    assert_true(number_in(found, "found", "priced") > 10);
    assert_true(number_in(found, "found", "preset_seconds") >= seconds);
    assert_true(json_string_length(json_object_get(json_object_get(found, "found"), "batch")) > 0);
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++) {
        json_t *other = plan(BLOCK " --mesh data=2,model=4 --rules %s", presets[i]);
        assert_true(seconds <= number_in(other, "predicted", "seconds") * (1 + 1e-9));
        assert_null(json_object_get(other, "found"));
        json_decref(other);
    }
    json_t *again = plan(BLOCK " --rules %s", file); /* the file has the mesh */
    assert_true(number_in(again, "predicted", "seconds") == seconds);
    json_decref(again);
    json_decref(found);
    unlink(file);

    assert_int_equal(run(out, sizeof out, "plan " BLOCK " --mesh a=2,b=4 --rules auto"), 0);
    assert_non_null(strstr(out, "found: a as "));
    assert_int_equal(run(out, sizeof out, "explain " BLOCK " --mesh a=2,b=4 --rules auto --json"), 0);
    assert_int_equal(run(out, sizeof out, "explain " BLOCK " --mesh a=2,b=4 --rules auto"), 0);
    assert_int_equal(run(out, sizeof out, "plan " BLOCK " --mesh a=2 --save x"), 2);
    assert_non_null(strstr(out, "--rules auto"));
    assert_int_equal(run(out, sizeof out, "plan --block gpt --mesh a=2,b=2 --rules auto --memory-limit 1000"), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_auto_rules),
        cmocka_unit_test(test_2d_feed_forward),
        cmocka_unit_test(test_sequence_parallel_bytes),
        cmocka_unit_test(test_never_more_than_xla),
        cmocka_unit_test(test_models),
        cmocka_unit_test(test_encoders),
        cmocka_unit_test(test_layers_fold),
        cmocka_unit_test(test_head),
        cmocka_unit_test(test_memory_limit),
        cmocka_unit_test(test_profile_memory),
        cmocka_unit_test(test_faster_order),
        cmocka_unit_test(test_explain),
        cmocka_unit_test(test_explain_assignment),
        cmocka_unit_test(test_explain_parts),
        cmocka_unit_test(test_explain_verdicts),
        cmocka_unit_test(test_explain_names_gradients),
        cmocka_unit_test(test_explain_prices),
        cmocka_unit_test(test_causes),
        cmocka_unit_test(test_causes_read_well),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_implicit_collectives),
        cmocka_unit_test(test_refused_files),
        cmocka_unit_test(test_misspelt_rule),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
