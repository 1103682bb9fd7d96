/* test_checkpoint_tensor_names.c - tensors of a checkpoint that config.json says nothing of: tied ones under either
 * name, rotary frequencies, prefixes of wrappers; and what is said of those that the model leaves unread. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleave/checkpoint.h"
#include "cleave/model.h"
#include "golden_path.h"
#include "models/weights/model_weights.h"
#include "models/weights/parameter_map.h"
#include "must.h"
#include "temp_folder.h"
#include "unit_test.h"

/* A tensor that is added: `n` times the value. */
typedef struct added {
    const char *name;
    int64_t n;
    float value;
} added;

/* The name that a tensor gets; NULL: it is left out. */
typedef const char *renamer(char room[128], const char *name);

static const char *as_it_is(char room[128], const char *name)
{
    return name;
}

static void write_tensors(clv_checkpoint_writer *w, const clv_checkpoint *c, renamer *rename)
{
    clv_error err = {0};
    int64_t n = 0;
    for (int64_t i = 0; i < clv_checkpoint_tensor_count(c); i++) {
        clv_tensor_info info = {.size = sizeof info};
        char room[128];
        must(clv_checkpoint_tensor(c, i, &info, &err), &err);
        if (!rename(room, info.name))
            continue;
        double *values = malloc((size_t)info.bytes * 2 + 8);
        must(clv_checkpoint_read(c, i, NULL, CLV_F32, values, &err), &err);
        must(clv_checkpoint_write(w, n++, NULL, values, &err), &err);
        free(values);
    }
}

/* The folder "m": a model of tests/golden with names changed and tensors added, which end with one without a name. */
static void put_model(const char *golden, renamer *rename, const added *more)
{
    clv_checkpoint *c;
    clv_checkpoint_writer *w;
    clv_error err = {0};
    char command[1200];
    int64_t n = 0;
    snprintf(command, sizeof command, "rm -rf %s; mkdir %s; cp %s/config.json %s", in_folder("m"), in_folder("m"),
             golden_path("%s", golden), in_folder("m"));
    assert_int_equal(system(command), 0);
    must(clv_checkpoint_open(&c, golden_path("%s", golden), NULL, &err), &err);
    must(clv_checkpoint_create(&w, in_folder("m/model.safetensors"), &err), &err);
    for (int64_t i = 0; i < clv_checkpoint_tensor_count(c); i++) {
        clv_tensor_info info = {.size = sizeof info};
        char room[128];
        must(clv_checkpoint_tensor(c, i, &info, &err), &err);
        const char *name = rename(room, info.name);
        if (name)
            must(clv_checkpoint_add_tensor(w, name, CLV_F32, info.rank, info.shape, &err), &err);
        n += name != NULL;
    }
    for (const added *a = more; a && a->name; a++)
        must(clv_checkpoint_add_tensor(w, a->name, CLV_F32, 1, &a->n, &err), &err);
    write_tensors(w, c, rename);
    for (const added *a = more; a && a->name; a++) {
        float *values = malloc((size_t)a->n * sizeof *values + 1);
        for (int64_t k = 0; k < a->n; k++)
            values[k] = a->value;
        must(clv_checkpoint_write(w, n++, NULL, values, &err), &err);
        free(values);
    }
    must(clv_checkpoint_commit(w, &err), &err);
    clv_checkpoint_close(c);
}

static clv_warnings warnings; /* of the last open_weights */

static clv_model_weights *open_weights(void)
{
    clv_model_weights *w;
    clv_model_config config;
    clv_error err = {0};
    must(clv_model_config_read(&config, in_folder("m"), &err), &err);
    clv_warnings_free(&warnings);
    must(clv_model_weights_open(&w, &config, in_folder("m"), &(clv_model_weights_options){.warnings = &warnings}, &err),
         &err);
    return w;
}

/* Opening the folder as a model fails, in these words. */
static void refused(clv_status status, const char *words)
{
    clv_model *m;
    clv_error err = {0};
    if (clv_model_open(&m, in_folder("m"), NULL, &err) != status || !strstr(err.message, words))
        fail_msg("'%s' is not said, but %s: %s", words, clv_status_name(err.code), err.message);
}

/* Of the folder's model these notes are made, and no more; NULL ends them. */
static void noted(const char *const *notes)
{
    clv_model *m;
    clv_error err = {0};
    int n = 0;
    must(clv_model_open(&m, in_folder("m"), NULL, &err), &err);
    for (; notes[n]; n++)
        if (!clv_model_warning(m, n) || !strstr(clv_model_warning(m, n), notes[n]))
            fail_msg("note %d: %s", n, clv_model_warning(m, n) ? clv_model_warning(m, n) : "none");
    if (clv_model_warning(m, n))
        fail_msg("one note more: %s", clv_model_warning(m, n));
    clv_model_close(m);
}
#define NOTED(...) noted((const char *const[]){__VA_ARGS__, NULL})

/* ---- tied tensors ---- */

/* From the name that is stored to the one that it is tied to. */
static const char *other_name(char room[128], const char *name)
{
    static const char *const pairs[][2] = {
        {"model.embed_tokens.weight", "lm_head.weight"},
        {"transformer.wte.weight", "lm_head.weight"},
        {"esm.embeddings.word_embeddings.weight", "lm_head.decoder.weight"},
        {"bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight"},
        {"cls.predictions.bias", "cls.predictions.decoder.bias"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (strcmp(pairs[i][0], name) == 0)
            return pairs[i][1];
    return name;
}

/* Whether a parameter of "m" is what a model of tests/golden has. */
static bool has_values_of(const clv_model_weights *w, const char *golden, const char *parameter)
{
    clv_model_config config;
    clv_model_weights *plain;
    clv_parameter p;
    clv_error err = {0};
    must(clv_model_config_read(&config, golden_path("%s", golden), &err), &err);
    must(clv_model_weights_open(&plain, &config, golden_path("%s", golden), NULL, &err), &err);
    must(clv_model_parameter_find(&p, &config, parameter, &err), &err);
    size_t bytes = (size_t)clv_parameter_elems(&p) * sizeof(float);
    float *a = malloc(bytes), *b = malloc(bytes);
    must(clv_model_read_parameter(w->files, &config, parameter, NULL, CLV_F32, a, &err), &err);
    must(clv_model_read_parameter(plain->files, &config, parameter, NULL, CLV_F32, b, &err), &err);
    bool same = memcmp(a, b, bytes) == 0;
    free(a);
    free(b);
    clv_model_weights_close(plain);
    return same;
}

static void test_either_name(void **state)
{
    static const char *const tied[] = {"llama_tied", "gpt2", "bert", "esm"};
    for (size_t i = 0; i < sizeof tied / sizeof *tied; i++) {
        put_model(tied[i], other_name, NULL);
        clv_model_weights *w = open_weights();
        assert_true(has_values_of(w, tied[i], "embed.weight"));
        if (strcmp(tied[i], "bert") == 0)
            assert_true(has_values_of(w, tied[i], "lm_head.bias"));
        assert_true(w->config.tie_word_embeddings);
        clv_model_weights_close(w);
    }
}

/* Of tied biases that differ, transformers computes with the decoder's. */
static void test_bias_of_decoder(void **state)
{
    clv_model_config config;
    clv_error err = {0};
    float bias[35];
    put_model("bert", as_it_is, (const added[]){{"cls.predictions.decoder.bias", 35, 0.5F}, {0}});
    clv_model_weights *w = open_weights();
    must(clv_model_config_read(&config, in_folder("m"), &err), &err);
    must(clv_model_read_parameter(w->files, &config, "lm_head.bias", NULL, CLV_F32, bias, &err), &err);
    for (int i = 0; i < 35; i++)
        assert_true(bias[i] == 0.5F);
    assert_string_equal(warnings.text[0],
                        "1 tensor cls.predictions.bias is not used: cls.predictions.decoder.bias counts");
    clv_model_weights_close(w);
}

/* ---- rotary frequencies ---- */

#define FREQUENCIES(layer) "esm.encoder.layer." layer ".attention.self.rotary_embeddings.inv_freq"
static const char shared[] = "esm.rotary_embeddings.inv_freq";

static const char *without_frequencies(char room[128], const char *name)
{
    return strstr(name, "inv_freq") ? NULL : name;
}

static const char *without_base(char room[128], const char *name)
{
    return strncmp(name, "esm.", 4) == 0 ? name + 4 : name;
}

/* head_dim 20. */
static void turns_by(const added *stored, float value)
{
    put_model("esm_half", without_frequencies, stored);
    clv_model_weights *w = open_weights();
    const float *got = w->config.rope.inv_freq;
    if (!got || got[0] != value || got[9] != value)
        fail_msg("%s: turns by %g", stored[0].name, got ? (double)got[0] : 0.0);
    assert_null(strstr(warnings.text[0], "inv_freq are not used"));
    clv_model_weights_close(w);
}

/* transformers 5.24 loads them so: one set, of the first layer that has one, else under a star, else under their own
 * name. */
static void test_names_of_frequencies(void **state)
{
    turns_by((const added[]){{FREQUENCIES("0"), 10, 0.5F}, {FREQUENCIES("1"), 10, 0.5F}, {0}}, 0.5F);
    turns_by((const added[]){{FREQUENCIES("1"), 10, 0.25F}, {0}}, 0.25F);
    turns_by((const added[]){{FREQUENCIES("*"), 10, 0.125F}, {0}}, 0.125F);
    turns_by((const added[]){{shared, 10, 2}, {0}}, 2);
    turns_by((const added[]){{FREQUENCIES("*"), 10, 0.125F}, {FREQUENCIES("1"), 10, 3}, {0}}, 3);
    turns_by((const added[]){{&FREQUENCIES("0")[4], 10, 0.75F}, {0}}, 0.75F);
    put_model("esm_half", without_frequencies, NULL);
    clv_model_weights *w = open_weights();
    assert_null(w->config.rope.inv_freq);
    clv_model_weights_close(w);
    put_model("esm_half", without_base, NULL);
    w = open_weights();
    assert_non_null(w->config.rope.inv_freq);
    clv_model_weights_close(w);
}

static void test_bad_frequencies(void **state)
{
    put_model("esm_half", without_frequencies, (const added[]){{FREQUENCIES("0"), 8, 1}, {0}});
    refused(CLV_EFORMAT, "inv_freq: has 1 dimensions, the first of 8; config.json calls for [10]");
    put_model("esm_half", without_frequencies, (const added[]){{FREQUENCIES("0"), 10, NAN}, {0}});
    refused(CLV_EFORMAT, "inv_freq: element 0 is not finite");
    put_model("esm_half", without_frequencies,
              (const added[]){{FREQUENCIES("0"), 10, 1}, {FREQUENCIES("1"), 10, 2}, {0}});
    NOTED("rotary frequencies of all layers are those of " FREQUENCIES("0") "; 1 other tensor of them differs",
          "contact_head");
}

/* What is written has them, in every layer. */
static void test_frequencies_are_saved(void **state)
{
    clv_safetensors_writer *writer;
    clv_error err = {0};
    put_model("esm_half", as_it_is, NULL);
    clv_model_weights *w = open_weights();
    const clv_model_config *config = &w->config;
    float want[10], got[10];
    memcpy(want, config->rope.inv_freq, sizeof want);
    assert_true(want[1] != (float)pow(10000, -0.1)); /* it is rounded */
    must(clv_model_create_weights(&writer, config, CLV_F32, in_folder("saved.safetensors"), &err), &err);
    for (int64_t i = 0; i < clv_model_parameter_count(config); i++) {
        clv_parameter p = clv_model_parameter_at(config, i);
        float *values = calloc((size_t)clv_parameter_elems(&p), sizeof *values);
        must(clv_model_write_parameter(writer, config, p.name, NULL, CLV_F32, values, &err), &err);
        free(values);
    }
    must(clv_safetensors_commit(writer, &err), &err);
    clv_model_weights_close(w);
    clv_weights *saved;
    must(clv_weights_open_path(&saved, in_folder("saved.safetensors"), &err), &err);
    for (int layer = 0; layer < 2; layer++) {
        const clv_safetensor *t;
        must(clv_weights_find(&t, saved, layer ? FREQUENCIES("1") : FREQUENCIES("0"), &err), &err);
        must(clv_safetensors_read(t, NULL, CLV_F32, got, &err), &err);
        assert_memory_equal(got, want, sizeof want);
    }
    clv_weights_close(saved);
}

/* ---- prefixes ---- */

static const char *wrapped(char room[128], const char *name)
{
    snprintf(room, 128, "module._orig_mod.%s", name);
    return room;
}

static const char *partly_wrapped(char room[128], const char *name)
{
    snprintf(room, 128, "%s%s", strstr(name, "layers") ? "_orig_mod." : "base_model.", name);
    return room;
}

static void test_wrapped(void **state)
{
    put_model("llama", wrapped, NULL);
    NOTED("all names in the files begin with module._orig_mod., which is left out");
    put_model("llama", partly_wrapped, NULL);
    refused(CLV_ENOTFOUND, "are no tensors of the model, the first is ");
}

/* ---- tensors that are left unread ---- */

static void test_kinds_of_unused(void **state)
{
    put_model("llama", as_it_is, NULL);
    NOTED(NULL);
    put_model("llama", as_it_is,
              (const added[]){{"model.layers.0.self_attn.rotary_emb.inv_freq", 7, 1},
                              {"model.layers.1.self_attn.rotary_emb.inv_freq", 7, 1},
                              {"model.layers.0.self_attn.q_proj.bias", 7, 1},
                              {"model.layers.0.input_layernorm.bias", 7, 1},
                              {"model.layers.1.input_layernorm.bias", 7, 1},
                              {"model.layers.0.mlp.up_proj.bias", 7, 1},
                              {"model.layers.0.self_attn.k_scale", 1, 1},
                              {"v_head.summary.weight", 1, 1},
                              {0}});
    NOTED("2 tensors model.layers.*.self_attn.rotary_emb.inv_freq are not used: rotary frequencies are those of config",
          "1 tensor v_head.summary.weight is not used: it is the head of another task",
          "1 tensor model.layers.*.self_attn.k_scale is not used: keys and values are not quantised",
          "1 tensor model.layers.*.self_attn.q_proj.bias is not used: config.json calls for no biases of attention; if",
          "1 tensor model.layers.*.mlp.up_proj.bias is not used: config.json calls for no biases of the MLP; if",
          "2 tensors model.layers.*.input_layernorm.bias are not used: models of this model_type do not have them; if");
    put_model("gpt2", as_it_is,
              (const added[]){{"transformer.h.0.attn.bias", 4, 1}, {"transformer.h.0.attn.masked_bias", 1, 1}, {0}});
    NOTED("1 tensor transformer.h.*.attn.bias is not used: the causal mask is built in",
          "1 tensor transformer.h.*.attn.masked_bias is not used: the causal mask is built in");
    put_model("esm_half", as_it_is, (const added[]){{"esm.embeddings.position_embeddings.weight", 4, 1}, {0}});
    NOTED("esm.embeddings.position_embeddings.weight is not used: positions are rotary", "contact_head");
}

/* llama's head_dim is 4: 1 and 0.01. */
static void test_differing_frequencies(void **state)
{
    clv_model_config config;
    clv_error err = {0};
    put_model("llama", as_it_is, NULL);
    must(clv_model_config_read(&config, in_folder("m"), &err), &err);
    put_model("llama", as_it_is,
              (const added[]){{"model.layers.0.self_attn.rotary_emb.inv_freq", config.head_dim / 2, 1.5F}, {0}});
    NOTED("from which these differ by up to ");
}

static void test_refused(void **state)
{
    static const struct {
        const char *name, *words;
    } refusals[] = {
        {"model.layers.0.self_attn.q_norm.weight",
         "it is a norm of queries or keys, which models of this model_type do"},
        {"model.layers.0.self_attn.q_proj.weight_scale", "it belongs to quantised weights of a format"},
        {"model.layers.0.self_attn.q_proj.weight_scale_inv", "it belongs to quantised weights of a format"},
        {"model.layers.0.mlp.up_proj.qweight", "it belongs to quantised weights of a format"},
        {"model.layers.0.mlp.up_proj.weight.quant_state.bitsandbytes__nf4", "it belongs to quantised weights of a"},
        {"base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight", "it belongs to adapters that were saved"},
        {"model.layers.0.mlp.up_proj.weight_orig", "its weight is stored in parts"},
        {"model.layers.2.input_layernorm.weight", "exists, but config.json calls for 2 layers"},
        {"model.layers.30.mlp.up_proj.weight", "exists, but config.json calls for 2 layers"},
        {"layers.3.self_attn.k_proj.weight", "exists, but config.json calls for 2 layers"},
        {"layers.1.self_attn.k_proj.weight", "are two names of one tensor of the model, and differ"},
    };
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        put_model("llama", as_it_is, (const added[]){{refusals[i].name, 4, 1}, {0}});
        bool of_names = strstr(refusals[i].words, "exists") || strstr(refusals[i].words, "two names");
        refused(of_names ? CLV_EFORMAT : CLV_EUNSUPPORTED, refusals[i].words);
        refused(of_names ? CLV_EFORMAT : CLV_EUNSUPPORTED, refusals[i].name);
    }
    put_model("bert", as_it_is, (const added[]){{"bert.embeddings.LayerNorm.gamma", 24, 0.5F}, {0}});
    refused(CLV_EFORMAT, "bert.embeddings.LayerNorm.weight and bert.embeddings.LayerNorm.gamma are two names of one");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_either_name),
        cmocka_unit_test(test_bias_of_decoder),
        cmocka_unit_test(test_names_of_frequencies),
        cmocka_unit_test(test_bad_frequencies),
        cmocka_unit_test(test_frequencies_are_saved),
        cmocka_unit_test(test_wrapped),
        cmocka_unit_test(test_kinds_of_unused),
        cmocka_unit_test(test_differing_frequencies),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
