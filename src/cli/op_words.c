#include "cli/op_words.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct kind {
    const char *name, *words;
} kinds[] = {
    {"normalize_dx", "the gradient of the norm"},
    {"normalize_dgain", "the gradient of the norm's gain"},
    {"normalize_dweights", "the gradient of the norm's gain and bias"},
    {"normalize_sums", "the sums in the gradient of the norm"},
    {"xent_max", "the maximum in the cross-entropy"},
    {"xent_sums", "the sums in the cross-entropy"},
    {"xent_loss", "the cross-entropy"},
    {"xent_loss_gradient", "the gradient of the cross-entropy's loss"},
    {"xent_gradient", "the gradient of the cross-entropy"},
    {"attention_gradient", "the gradient of attention"},
    {"bias_gelu_gradient", "the gradient of gelu with a bias"},
    {"gated_gradient", "the gradient of the gated activation"},
    {"map_gradient", "the gradient of the activation"},
    {"choice_gradient", "the gradient of the maximum or minimum"},
    {"embedding_gradient", "the gradient of the embedding"},
    {"softmax_gradient", "the gradient of softmax"},
    {"dot_general", "the product"},
};

static int is_part_of_name(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '.';
}

/* The kind that stands at `at`, alone; NULL: none. */
static const struct kind *kind_at(const char *sentence, const char *at)
{
    if (at > sentence && is_part_of_name(at[-1]))
        return NULL;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        size_t n = strlen(kinds[i].name);
        if (strncmp(at, kinds[i].name, n) == 0 && !is_part_of_name(at[n]))
            return &kinds[i];
    }
    return NULL;
}

char *clv_op_words(const char *sentence)
{
    char *out = NULL;
    size_t size;
    FILE *to = open_memstream(&out, &size);
    if (!to)
        return NULL;
    for (const char *at = sentence; *at;) {
        const struct kind *kind = kind_at(sentence, at);
        fputs(kind ? kind->words : (char[]){*at, '\0'}, to);
        at += kind ? strlen(kind->name) : 1;
    }
    if (fclose(to) == 0)
        return out;
    free(out);
    return NULL;
}
