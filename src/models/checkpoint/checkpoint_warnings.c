/* checkpoint_warnings.c - collects the warnings about a model: unused tensors, mismatches with config.json; rejects
 * unreadable weight formats. */
#include "models/checkpoint/checkpoint_warnings.h"

#include <fnmatch.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "models/families/model_family.h"
#include "ops/builtin_ops.h"

enum { WARNING_SIZE = 480, MAX_NAMES = 4 /* patterns listed in a warning */ };

/* ---- kinds of unused tensors ---- */

static bool is_headless(const clv_model_config *m)
{
    return m->headless;
}

static bool is_rotary(const clv_model_config *m)
{
    return m->rope.theta > 0;
}

static bool lacks_qkv_bias(const clv_model_config *m)
{
    return !m->qkv_bias;
}

static bool lacks_qk_norm(const clv_model_config *m)
{
    return !m->qk_norm;
}

static bool lacks_mlp_bias(const clv_model_config *m)
{
    return !m->mlp_bias;
}

static bool has_mtp_layers(const clv_model_config *m)
{
    return m->mtp_layers > 0;
}

typedef enum fate {
    UNUSED,
    UNUSED_MODULE, /* unused, of a module of transformers that affects neither logits nor hidden states */
    REJECTED       /* other weights would be wrong without it */
} fate;

/* The first matching row classifies a tensor. */
typedef struct kind {
    const char *patterns; /* separated by spaces; of the name without the prefix of a wrapper */
    const char *why;      /* why it is not used, in the warning */
    fate fate;
    bool (*when)(const clv_model_config *model); /* NULL: always */
} kind;

static const char quantised[] =
    "it belongs to quantised weights of a format that is not supported; valid: a checkpoint "
    "in floats, which cleave quantises by --quant";
static const char adapters[] = "it belongs to adapters that were saved among the weights; valid: adapters in a folder "
                               "of their own, or merged (peft's merge_and_unload)";
static const char head_norms[] =
    "it is a norm of queries or keys, which models of this model_type do not have; valid: a "
    "config.json with the model_type that the weights are of";
static const char other_form[] = "its weight is stored in parts (pruning, or a parametrization of PyTorch); valid: "
                                 "weights that were made whole before they were saved";
static const char task_head[] = "it is the head of another task";
static const char counts_less[] = "the tensor that it is tied to counts";

static const kind kinds[] = {
    {"*.qweight *.qzeros *.scales *.g_idx *.weight_scale* *.weight_packed *.weight_zero_point *.weight.absmax "
     "*.weight.quant_* *.weight.nested_* *.SCB",
     quantised, REJECTED, NULL},
    {"*.lora_* *.base_layer.* *.modules_to_save.*", adapters, REJECTED, NULL},
    {"*.q_norm.* *.k_norm.*", head_norms, REJECTED, lacks_qk_norm},
    {"*.weight_orig *.weight_g *.weight_v *.parametrizations.*", other_form, REJECTED, NULL},
    {"*rotary_emb.inv_freq", "rotary frequencies are those of config.json", UNUSED, NULL},
    {"*rotary_emb.*_cached", "rotary frequencies are those of config.json", UNUSED, NULL},
    {"*position_ids", "positions are counted", UNUSED, NULL},
    {"*embeddings.position_embeddings.weight", "positions are rotary", UNUSED, is_rotary},
    {"*.attn.bias", "the causal mask is built in", UNUSED, NULL},
    {"*.crossattention.bias", "the causal mask is built in", UNUSED, NULL},
    {"*.attn.masked_bias", "the causal mask is built in", UNUSED, NULL},
    {"*pooler.*", "the pooler is no part of the language model", UNUSED_MODULE, NULL},
    {"*cls.seq_relationship.*", "the next-sentence head is no part of the language model", UNUSED_MODULE, NULL},
    {"*contact_head.*", "the contact head is no part of the language model", UNUSED_MODULE, NULL},
    {"lm_head.*", "the model has no head, as the architectures of config.json say", UNUSED, is_headless},
    {"cls.predictions.*", "the model has no head, as the architectures of config.json say", UNUSED, is_headless},
    {"cls.predictions.bias", "cls.predictions.decoder.bias counts", UNUSED, NULL},
    {"*decoder.bias", counts_less, UNUSED, NULL},
    {"*decoder.weight", counts_less, UNUSED, NULL},
    {"lm_head.weight", counts_less, UNUSED, NULL},
    {"classifier.*", task_head, UNUSED, NULL},
    {"score.*", task_head, UNUSED, NULL},
    {"qa_outputs.*", task_head, UNUSED, NULL},
    {"v_head.*", task_head, UNUSED, NULL},
    {"*.k_scale", "keys and values are not quantised", UNUSED, NULL},
    {"*.v_scale", "keys and values are not quantised", UNUSED, NULL},
    {"*.self_attn.[qkvo]_proj.bias",
     "config.json calls for no biases of attention; if these were trained, results are not the model's", UNUSED,
     lacks_qkv_bias},
    {"*.mlp.*_proj.bias",
     "config.json calls for no biases of the MLP; if these were trained, results are not the model's", UNUSED,
     lacks_mlp_bias},
    {"model.layers.*", "it is of a layer that predicts tokens further ahead (MTP), which is not built", UNUSED,
     has_mtp_layers},
    {"*", "models of this model_type do not have them; if they were trained, results are not the model's", UNUSED,
     NULL},
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

static bool matches(const char *patterns, const char *name)
{
    char pattern[64];
    for (const char *at = patterns; *at != '\0'; at += strspn(at, " ")) {
        const size_t n = strcspn(at, " ");
        snprintf(pattern, sizeof pattern, "%.*s", (int)n, at);
        if (fnmatch(pattern, name, 0) == 0)
            return true;
        at += n;
    }
    return false;
}

/* Index of the first row that matches; -1: none, which happens in files of adapters only. */
static int kind_of(const char *name, const clv_model_config *m, bool of_adapters)
{
    for (int k = 0; k < KINDS; k++)
        if (matches(kinds[k].patterns, name) &&
            (of_adapters ? kinds[k].fate == UNUSED_MODULE : !kinds[k].when || kinds[k].when(m)))
            return k;
    return -1;
}

bool clv_is_unused_module(const char *name)
{
    return kind_of(name, NULL, true) >= 0;
}

/* ---- warnings ---- */

clv_status clv_warnings_add(clv_warnings *warnings, clv_error *err, const char *format, ...)
{
    char **grown = realloc(warnings->text, (size_t)(warnings->n + 1) * sizeof *grown), *text = malloc(WARNING_SIZE);
    va_list args;
    if (grown)
        warnings->text = grown;
    if (!grown || !text) {
        free(text);
        return clv_fail_memory(err, "a warning", WARNING_SIZE);
    }
    va_start(args, format);
    vsnprintf(text, WARNING_SIZE, format, args);
    va_end(args);
    warnings->text[warnings->n++] = text;
    return CLV_OK;
}

void clv_warnings_free(clv_warnings *warnings)
{
    for (int i = 0; i < warnings->n; i++)
        free(warnings->text[i]);
    free(warnings->text);
    *warnings = (clv_warnings){0};
}

/* Replaces each number between dots by a star. */
static void fold(char out[CLV_TENSOR_NAME_SIZE], const char *name)
{
    size_t n = 0;

    for (const char *at = name; *at != '\0' && n + 1 < CLV_TENSOR_NAME_SIZE;) {
        size_t digits = at == name || at[-1] == '.' ? strspn(at, "0123456789") : 0;
        bool alone = digits > 0 && (at[digits] == '.' || at[digits] == '\0');
        out[n++] = alone ? '*' : *at;
        at += alone ? digits : 1;
    }
    out[n] = '\0';
}

/* The names of one kind of tensors. */
typedef struct names {
    int64_t n; /* tensors */
    int folded;
    bool more; /* names than MAX_NAMES */
    int64_t of[MAX_NAMES];
    char name[MAX_NAMES][CLV_TENSOR_NAME_SIZE];
} names;

static void add_name(names *all, const char *name)
{
    char folded[CLV_TENSOR_NAME_SIZE];
    int i = 0;

    fold(folded, name);
    all->n++;
    while (i < all->folded && strcmp(all->name[i], folded) != 0)
        i++;
    if (i == MAX_NAMES) {
        all->more = true;
        return;
    }
    if (i == all->folded)
        memcpy(all->name[all->folded++], folded, sizeof folded);
    all->of[i]++;
}

static void list_names(char *out, size_t size, const names *all)
{
    size_t used = 0;

    out[0] = '\0';
    for (int i = 0; i < all->folded && used < size; i++) {
        used += (size_t)snprintf(out + used, size - used, "%s%s", i > 0 ? ", " : "", all->name[i]);
        if (all->of[i] > 1 && all->folded > 1 && used < size)
            used += (size_t)snprintf(out + used, size - used, " (%lld)", (long long)all->of[i]);
    }
    if (all->more && used < size)
        snprintf(out + used, size - used, " and others");
}

/* Largest relative difference of a file's rotary frequencies from those of config.json. */
static clv_status frequency_error(double *most, const clv_safetensor *t, const clv_model_config *m, clv_error *err)
{
    clv_rope_options how = m->rope;

    how.dims = m->head_dim;
    if (!t->readable || t->rank != 1 || t->shape[0] != m->head_dim / 2 || !(how.theta > 0))
        return CLV_OK;
    CLV_FREED float *stored = malloc((size_t)(t->shape[0] + 1) * sizeof *stored);
    if (stored == NULL)
        return clv_fail_memory(err, t->name, (size_t)t->shape[0] * sizeof *stored);
    CLV_TRY(clv_safetensors_read(t, NULL, CLV_F32, stored, err));
    for (int64_t i = 0; i < t->shape[0]; i++) {
        double plain = clv_rope_inv_freq(&how, i), error = fabs((double)stored[i] - plain) / plain;
        *most = error > *most || isnan(error) ? error : *most;
    }
    return CLV_OK;
}

static clv_status warn_kind(clv_warnings *warnings, int k, const clv_checkpoint_inventory *inventory,
                            const int *kind_at, const clv_weights *w, const clv_model_config *m, clv_error *err)
{
    names all = {0};
    char listed[WARNING_SIZE / 2], differ[96] = "";
    double error = 0;

    for (int64_t i = 0; i < inventory->n_extra; i++) {
        if (kind_at[i] != k)
            continue;
        add_name(&all, clv_weights_bare_name(w, inventory->extra[i]));
        if (strcmp(kinds[k].patterns, "*rotary_emb.inv_freq") == 0)
            CLV_TRY(frequency_error(&error, inventory->extra[i], m, err));
    }
    if (all.n == 0)
        return CLV_OK;
    if (!(error < 1e-5))
        snprintf(differ, sizeof differ, ", from which these differ by up to %.2g %%", 100 * error);
    list_names(listed, sizeof listed, &all);
    return clv_warnings_add(warnings, err, "%lld tensor%s %s %s not used: %s%s", (long long)all.n,
                            all.n == 1 ? "" : "s", listed, all.n == 1 ? "is" : "are", kinds[k].why, differ);
}

static clv_status warn_unused(clv_warnings *warnings, const clv_checkpoint_inventory *inventory, const clv_weights *w,
                              const clv_model_config *m, bool of_adapters, clv_error *err)
{
    CLV_FREED int *kind_at = calloc((size_t)inventory->n_extra + 1, sizeof *kind_at);
    if (kind_at == NULL)
        return clv_fail_memory(err, "kinds of tensors", (size_t)inventory->n_extra);

    for (int64_t i = 0; i < inventory->n_extra; i++) {
        kind_at[i] = kind_of(clv_weights_bare_name(w, inventory->extra[i]), m, of_adapters);
        if (kind_at[i] >= 0 && kinds[kind_at[i]].fate == REJECTED)
            return clv_fail(err, CLV_EUNSUPPORTED, "%s: %s", inventory->extra[i]->name, kinds[kind_at[i]].why);
    }
    for (int k = 0; k < KINDS; k++)
        CLV_TRY(warn_kind(warnings, k, inventory, kind_at, w, m, err));
    return CLV_OK;
}

static clv_status warn_overrides(clv_warnings *warnings, const clv_config_overrides *s, const clv_weights *w,
                                 clv_error *err)
{
    if (s->untied)
        CLV_TRY(clv_warnings_add(
            warnings, err,
            "config.json ties the output projection to the embedding, but the files have both, and they differ: "
            "they are not tied"));
    if (s->others > 0)
        CLV_TRY(clv_warnings_add(
            warnings, err, "rotary frequencies of all layers are those of %s; %lld other tensor%s of them differ%s",
            clv_weights_bare_name(w, s->frequencies), (long long)s->others, s->others == 1 ? "" : "s",
            s->others == 1 ? "s" : ""));
    return CLV_OK;
}

static clv_status warn_files(clv_warnings *warnings, const clv_weights *w, clv_error *err)
{
    const char *first;
    int64_t absent = clv_weights_missing_count(w, &first);

    if (clv_weights_prefix_length(w) > 0)
        CLV_TRY(clv_warnings_add(warnings, err, "all names in the files begin with %.*s, which is left out",
                                 (int)clv_weights_prefix_length(w), clv_weights_at(w, 0)->name));
    if (absent > 0)
        CLV_TRY(clv_warnings_add(warnings, err, "the index lists %lld tensor%s that no file has, %s%.96s",
                                 (long long)absent, absent == 1 ? "" : "s", absent == 1 ? "" : "the first is ", first));
    return CLV_OK;
}

clv_status clv_checkpoint_warnings_collect(clv_warnings *warnings, const clv_checkpoint_inventory *inventory,
                                           const clv_config_overrides *overrides, const clv_weights *w,
                                           const clv_model_config *m, bool of_adapters, clv_error *err)
{
    CLV_TRY(warn_files(warnings, w, err));
    CLV_TRY(warn_overrides(warnings, overrides, w, err));
    return warn_unused(warnings, inventory, w, m, of_adapters, err);
}
