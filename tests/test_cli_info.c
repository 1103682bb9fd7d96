/* test_cli_info.c - cleave info: sizes, counts of parameters and degrees of the golden models, against figures worked
 * out by hand. */
#include "cli_run.h"
#include "unit_test.h"

static void test_model(void **state)
{
    /* V M = 37*24, twice; a layer: 2 M + M (H + 2 K + H) D + 3 M F = 4464 */
    cli_expect(0, "\"parameters\": {\"embedding\": 888, \"layers\": 8928, \"head\": 912, \"total\": 10728}",
               "info -m {g}/llama --json");
    cli_expect(0,
               "\"model_type\": \"llama\", \"hidden\": 24, \"layers\": 2, \"heads\": 6, \"kv_heads\": 2, "
               "\"head_dim\": 4, \"ffn\": 40, \"vocab\": 37, \"context\": 64",
               "info -m {g}/llama --json");
    cli_expect(0,
               "\"bytes\": {\"F32\": 42912, \"total\": 42912}, \"files\": 1, \"tensor_count\": 21, \"missing\": [], "
               "\"extra\": []",
               "info -m {g}/llama --json");
    cli_expect(0, "esm.contact_head.regression.bias", "info -m {g}/esm");
    cli_expect(0, "tokenizer        none", "info -m {g}/gpt2");
}

/* -tp 2: (10728 - 120) / 2 that is split, 120 of norms, and one row of the vocabulary's 37 more on one rank, twice 24
 * / 2. */
static void test_degrees(void **state)
{
    cli_expect(
        0, "{\"tp\": 2, \"heads\": true, \"kv_heads\": true, \"ffn\": true, \"vocab\": false, \"fullest_rank\": 5448",
        "info -m {g}/llama --json");
    cli_expect(0, "{\"tp\": 4, \"heads\": false, \"kv_heads\": false, \"ffn\": true, \"vocab\": false",
               "info -m {g}/llama --json");
    cli_expect(0, "{\"tp\": 16,", "info -m {g}/llama --json");
}

static void test_tensors(void **state)
{
    cli_expect(0, "{\"tensor\": \"transformer.h.0.attn.c_attn.weight\", \"dtype\": \"F32\", \"shape\": \"15x45\"}",
               "info -m {g}/gpt2 --tensors --json");
    /* config.json alone: what a checkpoint would have */
    cli_shell("mkdir {d}/alone && cp {g}/gpt2/config.json {d}/alone");
    cli_expect(0, "{\"tensor\": \"transformer.h.0.attn.c_attn.weight\", \"dtype\": \"-\", \"shape\": \"15x45\"}",
               "info -m {d}/alone --tensors --json");
    cli_expect(0, "\"total\": 7095", "info -m {d}/alone/config.json --json");
}

/* Keys of no meaning here are named, by the whole of their names; the tables stay what they are. */
static void test_unknown_keys(void **state)
{
    cli_shell("mkdir {d}/keys && sed 's/\"mlp_bias\"/\"logit_scale\": 2, \"a\\\\nb\": [], \"mlp_bias\"/' "
              "{g}/llama/config.json >{d}/keys/config.json");
    cli_expect(0, "note: its config.json has keys that are not known here, and are ignored: logit_scale, a\\nb",
               "info -m {d}/keys");
    cli_expect(0, "", "info -m {d}/keys --json 2>{d}/keys/note");
    cli_shell("grep -q 'logit_scale' {d}/keys/note");
    cli_expect(0, "", "info -m {g}/llama 2>{d}/keys/none");
    cli_shell("test ! -s {d}/keys/none");
}

static void test_tokenizer(void **state)
{
    cli_shell("mkdir {d}/with && cp {g}/llama/config.json {g}/tokenizer/llama3/tokenizer.json {d}/with");
    cli_expect(0, "BPE (tokenizer.json)", "info -m {d}/with");
    cli_shell("mkdir {d}/esm && cp {g}/esm/config.json {d}/esm && touch {d}/esm/vocab.txt");
    cli_expect(0, "\"tokenizer\": \"vocab.txt\"", "info -m {d}/esm --json");
}

/* Another model's weights: its own tensors are missing, theirs are extra. */
static void test_mismatch(void **state)
{
    cli_shell("mkdir {d}/mixed && cp {g}/llama/config.json {d}/mixed && cp {g}/llama_bias/model.safetensors {d}/mixed");
    cli_expect(0, "\"extra\": [\"model.layers.0.mlp.down_proj.bias\"", "info -m {d}/mixed --json");
    cli_shell("cp {g}/llama_tied/model.safetensors {d}/mixed");
    cli_expect(0, "\"missing\": [\"lm_head.weight\"], \"extra\": []", "info -m {d}/mixed --json");
}

/* What the files settle: embeddings that config.json ties and the files do not, in every figure; and what is noted. */
static void test_settled(void **state)
{
    cli_shell("mkdir {d}/untied && cp {g}/llama/model.safetensors {d}/untied && "
              "sed 's/\"tie_word_embeddings\": false/\"tie_word_embeddings\": true/' {g}/llama/config.json "
              ">{d}/untied/config.json && grep -q 'embeddings\": true' {d}/untied/config.json");
    cli_shell("$CLV_BUILD_DIR/cleave info {g}/llama --json >{d}/as && $CLV_BUILD_DIR/cleave info {d}/untied --json "
              "2>{d}/notes >{d}/is && cmp {d}/as {d}/is && grep -q 'note: .*they are not tied' {d}/notes");
    cli_expect(0, "\"tied_embeddings\": true", "info {d}/untied/config.json --json");
    cli_expect(0, "cleave info: note: 2 tensors esm.contact_head.regression.bias, ", "info -m {g}/esm");
    cli_shell("cp {g}/llama_tied/model.safetensors {d}/mixed"); /* of a folder that does not open, as far as it goes */
    cli_expect(0, "note: commands that read its weights will refuse it: ", "info -m {d}/mixed --json");
}

static void test_refused(void **state)
{
    cli_expect(2, "nothing", "info -m {d}/nothing");
    cli_expect(2, "-m", "info");
    cli_expect(2, "--degrees", "info -m {g}/llama --degrees 0");
    cli_shell("mkdir {d}/bad && cp {g}/llama/config.json {d}/bad && echo x > {d}/bad/model.safetensors");
    cli_expect(1, "bad/model.safetensors", "info -m {d}/bad");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_model),        cmocka_unit_test(test_degrees),   cmocka_unit_test(test_tensors),
        cmocka_unit_test(test_unknown_keys), cmocka_unit_test(test_tokenizer), cmocka_unit_test(test_mismatch),
        cmocka_unit_test(test_settled),      cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, cli_remove_folder);
}
