/* unigram.c - Unigram model: Viterbi segmentation with the best sum of scores (Kudo 2018, arXiv:1804.10959). */
#include <math.h>
#include <stdio.h>

#include "tokens/tokenizer/tokenizer_components.h"

typedef struct unigram {
    const clv_vocab *vocab;
    clv_trie trie;
    double *score; /* by id */
    double unknown_score;
    int64_t unknown;            /* the id; -1: none */
    clv_byte_fallback_ids byte; /* with byte_fallback */
    bool byte_fallback;
} unigram;

/* Best segmentation up to a position: its last token; after the backtrack also the token that starts here. */
typedef struct segment {
    double score;
    int64_t id;
    size_t begin, end; /* begin of the last token; end of the token that starts here */
    bool reached;
} segment;

static void relax(segment *to, double score, int64_t id, size_t begin)
{
    if (!to->reached || score > to->score)
        *to = (segment){.score = score, .id = id, .begin = begin, .reached = true};
}

/* Relaxes all tokens that begin at a position, and the unknown one for its character. The unknown one has a lower score
 * than any token: where the character alone is a token, that one stays. */
static clv_status relax_tokens(segment *best, const unigram *model, clv_text_span pre_token, size_t at, clv_error *err)
{
    size_t character = clv_utf8_length(pre_token.text + at, pre_token.size - at);
    double before = best[at].score, score = before + model->unknown_score;
    int64_t node = 0;
    for (size_t end = at;
         end < pre_token.size && (node = clv_trie_child(&model->trie, node, pre_token.text[end])) >= 0;) {
        int64_t id = model->trie.value[node];
        end++;
        if (id >= 0)
            relax(&best[end], before + model->score[id], id, at);
    }
    segment *next = &best[at + character];
    if (next->reached && score <= next->score)
        return CLV_OK;
    if (model->unknown < 0)
        return clv_fail(err, CLV_EINVAL, "'%.*s' is in no token, and the tokenizer's \"unk_id\" is null",
                        (int)character, pre_token.text + at);
    relax(next, score, model->unknown, at);
    return CLV_OK;
}

/* Adds a token by its text; an unknown text as bytes if all of them are tokens, else as the unknown token. */
static clv_status add_token(clv_token_ids *out, const unigram *model, clv_text_span text, clv_error *err)
{
    int64_t id = clv_vocab_find(model->vocab, text);
    if (id < 0 && model->byte_fallback && clv_byte_fallback_ids_cover(&model->byte, text)) {
        for (size_t i = 0; i < text.size; i++)
            CLV_TRY(clv_token_ids_append(out, model->byte.id[(unsigned char)text.text[i]], err));
        return CLV_OK;
    }
    return clv_token_ids_append(out, id >= 0 ? id : model->unknown, err);
}

/* Adds the tokens of the best segmentation; a run of unknown ones is one token. */
static clv_status backtrack(clv_token_ids *out, segment *best, const unigram *model, clv_text_span pre_token,
                            clv_error *err)
{
    for (size_t end = pre_token.size; end > 0; end = best[end].begin) {
        bool fused = end < pre_token.size && best[end].id == model->unknown && best[best[end].end].id == model->unknown;
        best[best[end].begin].end = fused ? best[end].end : end;
    }
    for (size_t at = 0; at < pre_token.size; at = best[at].end)
        CLV_TRY(add_token(out, model, clv_text_span_of(pre_token.text + at, best[at].end - at), err));
    return CLV_OK;
}

static clv_status encode(const void *data, clv_text_span pre_token, clv_token_ids *out, clv_error *err)
{
    const unigram *model = data;
    CLV_FREED segment *best = calloc(pre_token.size + 1, sizeof *best);
    if (!best)
        return clv_fail_memory(err, "a text", (pre_token.size + 1) * sizeof *best);
    for (size_t at = 0; at < pre_token.size;) {
        CLV_TRY(relax_tokens(best, model, pre_token, at, err));
        at += clv_utf8_length(pre_token.text + at, pre_token.size - at);
    }
    return backtrack(out, best, model, pre_token, err);
}

/* ---- reading ---- */

/* A score as the `tokenizers` library reads it: serde_json takes the digits as an integer and multiplies or divides it
 * by a power of ten, which rounds twice, so that one in seven is not the nearest number. This decides between equal
 * sums ("+ ++" and "++ +"). The digits are the fewest that identify the number; 15 or fewer are not rounded twice. */
static double read_score(double score)
{
    enum { MOST_DIGITS = 17, LARGEST_POWER = 308 };
    char text[40], integer[MOST_DIGITS + 1];
    int digits = 15, n = 0;
    double size = fabs(score);
    do
        snprintf(text, sizeof text, "%.*e", digits - 1, size);
    while (strtod(text, NULL) != size && ++digits <= MOST_DIGITS);
    for (const char *at = text; *at != 'e'; at++) /* skips the decimal point of any locale */
        if (*at >= '0' && *at <= '9' && n < MOST_DIGITS)
            integer[n++] = *at;
    while (n > 1 && integer[n - 1] == '0')
        n--;
    integer[n] = '\0';
    int power = atoi(strchr(text, 'e') + 1) - (n - 1);
    size = (double)strtoull(integer, NULL, 10);
    if (power < -LARGEST_POWER) {
        size /= 1e308;
        power += LARGEST_POWER;
    }
    snprintf(text, sizeof text, "1e%d", abs(power));
    size = power < 0 ? size / strtod(text, NULL) : size * strtod(text, NULL);
    return score < 0 ? -size : size;
}

static clv_status read_scores(unigram *model, const clv_component_reader *r, const json_t *vocab)
{
    enum { PENALTY = 10 }; /* of the unknown token, below the lowest score */
    size_t n = json_array_size(vocab);
    model->score = clv_arena_alloc(r->t->arena, n + 1, sizeof *model->score);
    if (!model->score)
        return clv_fail_memory(r->err, "scores", n * sizeof *model->score);
    double lowest = 0;
    for (size_t i = 0; i < n; i++) {
        model->score[i] = read_score(json_number_value(json_array_get(json_array_get(vocab, i), 1)));
        lowest = i == 0 || model->score[i] < lowest ? model->score[i] : lowest;
    }
    model->unknown_score = lowest - PENALTY;
    return CLV_OK;
}

static clv_status read(void *data, const clv_component_reader *r, const json_t *json)
{
    const json_t *unknown = json_object_get(json, "unk_id"), *vocab = json_object_get(json, "vocab");
    unigram *model = data;
    model->vocab = &r->t->vocab;
    model->unknown = -1;
    if (unknown && !json_is_null(unknown))
        CLV_TRY(clv_json_get_int(&model->unknown, json, "unk_id", CLV_JSON_REQUIRED, 0,
                                 (int64_t)json_array_size(vocab) - 1, r->where, r->err));
    CLV_TRY(clv_component_read_bool(&model->byte_fallback, r, json, "byte_fallback"));
    clv_byte_fallback_ids_find(&model->byte, model->vocab);
    CLV_TRY(read_scores(model, r, vocab));
    return clv_trie_of_vocab(&model->trie, r->t->arena, model->vocab, r->err);
}

const clv_token_model clv_token_model_unigram = {
    .type = "Unigram", .vocab_is_list = true, .size = sizeof(unigram), .read = read, .encode = encode};
