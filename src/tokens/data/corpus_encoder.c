/* corpus_encoder.c - encodes a chunk of text, JSON lines, chat turns or FASTA to token ids and a loss mask. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/versioned_structs.h"
#include "io/json/json.h"
#include "tokens/data/corpus_pipeline.h"
#include "tokens/data/fasta.h"
#include "tokens/tokenizer/tokenizer_components.h"

static const char content_mark[] = "{content}", role_mark[] = "{role}";

/* ---- ids ---- */

void clv_corpus_ids_free(clv_corpus_ids *ids)
{
    free(ids->id);
    free(ids->loss_mask);
    *ids = (clv_corpus_ids){0};
}

static clv_status make_room(clv_corpus_ids *out, int64_t n, bool masked, clv_error *err)
{
    if (out->n + n <= out->room)
        return CLV_OK;
    int64_t room = 2 * (out->n + n);
    int32_t *id = realloc(out->id, (size_t)room * sizeof *id);
    if (!id)
        return clv_fail_memory(err, "ids", (size_t)room * sizeof *id);
    out->id = id;
    if (masked) {
        uint8_t *learned = realloc(out->loss_mask, (size_t)room);
        if (!learned)
            return clv_fail_memory(err, "ids", (size_t)room);
        out->loss_mask = learned;
    }
    out->room = room;
    return CLV_OK;
}

static clv_status append(clv_corpus_ids *out, const clv_corpus_encoder *f, const int64_t *ids, int64_t n, bool learned,
                         clv_error *err)
{
    CLV_TRY(make_room(out, n, f->options.chat, err));
    for (int64_t i = 0; i < n; i++)
        out->id[out->n + i] = (int32_t)ids[i];
    if (out->loss_mask && n > 0)
        memset(out->loss_mask + out->n, learned, (size_t)n);
    out->n += n;
    out->n_loss_tokens += learned ? n : 0;
    return CLV_OK;
}

static clv_status append_text(clv_corpus_ids *out, const clv_corpus_encoder *f, const char *text, size_t size,
                              bool learned, clv_error *err)
{
    int64_t *ids, n;
    CLV_TRY(clv_tokenizer_encode(f->tokenizer, text, size, false, &ids, &n, err));
    clv_status status = append(out, f, ids, n, learned, err);
    free(ids);
    return status;
}

static clv_status begin_document(clv_corpus_ids *out, const clv_corpus_encoder *f, bool learned, clv_error *err)
{
    const clv_special_ids *before = &f->tokenizer->before;
    out->documents++;
    return f->options.no_special ? CLV_OK : append(out, f, before->id, before->n, learned, err);
}

static clv_status end_document(clv_corpus_ids *out, const clv_corpus_encoder *f, bool learned, clv_error *err)
{
    const clv_special_ids *after = &f->tokenizer->after;
    if (!f->options.no_special)
        CLV_TRY(append(out, f, after->id, after->n, learned, err));
    bool ended = f->end_id < 0 || (!f->options.no_special && after->n > 0 && after->id[after->n - 1] == f->end_id);
    return ended ? CLV_OK : append(out, f, &f->end_id, 1, learned, err);
}

/* ---- lines of JSON ---- */

/* What a turn has before {content}, with its role put in; the caller's to free. */
static char *turn_header(const clv_corpus_encoder *f, const char *role)
{
    const char *at = strstr(f->turn, role_mark);
    int before = (int)(f->content - f->turn);
    char *head = NULL;
    bool named = at && at < f->content;
    int to_role = named ? (int)(at - f->turn) : before;
    int behind = named ? before - to_role - (int)strlen(role_mark) : 0;
    int n =
        asprintf(&head, "%.*s%s%.*s", to_role, f->turn, named ? role : "", behind, named ? at + strlen(role_mark) : "");
    return n < 0 ? NULL : head;
}

static clv_status encode_turn(clv_corpus_ids *out, const clv_corpus_encoder *f, const json_t *turn, bool *answer,
                              clv_error *err)
{
    const char *role, *content, *behind = f->content + strlen(content_mark);
    size_t size;
    CLV_TRY(clv_json_check_object(turn, "a turn", err));
    CLV_TRY(clv_json_get_string(&role, turn, "role", CLV_JSON_REQUIRED, "a turn", err));
    CLV_TRY(clv_json_get_bytes(&content, &size, turn, "content", "a turn", err));
    *answer = strcmp(role, "assistant") == 0;
    char *head = turn_header(f, role), *text = malloc(size + strlen(behind) + 1);
    if (!head || !text) {
        free(head);
        free(text);
        return clv_fail_memory(err, "a turn", size);
    }
    memcpy(text, content, size);
    memcpy(text + size, behind, strlen(behind));
    clv_status status = append_text(out, f, head, strlen(head), false, err);
    if (status == CLV_OK)
        status = append_text(out, f, text, size + strlen(behind), *answer, err);
    free(head);
    free(text);
    return status;
}

static clv_status encode_chat(clv_corpus_ids *out, const clv_corpus_encoder *f, const json_t *line, clv_error *err)
{
    const json_t *turns = json_object_get(line, f->options.field);
    bool answer = false;
    if (!json_is_array(turns) || json_array_size(turns) == 0)
        return clv_fail(err, CLV_EINVAL, "\"%s\" must be a list of turns", f->options.field);
    CLV_TRY(begin_document(out, f, false, err));
    for (size_t i = 0; i < json_array_size(turns); i++)
        CLV_TRY(encode_turn(out, f, json_array_get(turns, i), &answer, err));
    return end_document(out, f, answer, err);
}

static clv_status encode_object(clv_corpus_ids *out, const clv_corpus_encoder *f, const json_t *line, clv_error *err)
{
    const char *text;
    size_t size;
    CLV_TRY(clv_json_check_object(line, "the line", err));
    if (f->options.chat)
        return encode_chat(out, f, line, err);
    CLV_TRY(clv_json_get_bytes(&text, &size, line, f->options.field, "the line", err));
    CLV_TRY(begin_document(out, f, true, err));
    CLV_TRY(append_text(out, f, text, size, true, err));
    return end_document(out, f, true, err);
}

/* "FILE:LINE", or "FILE: element NUMBER" of an array. */
static clv_status fail_at(const clv_corpus_chunk *p, int64_t line, const char *why, clv_error *err)
{
    const char *mark = p->form == CLV_TEXT_JSON_ARRAY ? " element " : "";
    return clv_fail(err, CLV_EINVAL, "%s:%s%lld: %s", p->path, mark, (long long)line, why);
}

/* Takes back what a line added before it failed. */
static void discard_line(clv_corpus_ids *out, const clv_corpus_ids *before)
{
    out->n = before->n;
    out->documents = before->documents;
    out->n_loss_tokens = before->n_loss_tokens;
    out->skipped_lines++;
}

static clv_status encode_line(clv_corpus_ids *out, const clv_corpus_encoder *f, const clv_corpus_chunk *p,
                              const char *text, size_t size, int64_t number, clv_error *err)
{
    clv_error why = {0};
    json_t *line = NULL;
    const clv_corpus_ids before = *out;
    if (strspn(text, " \t\r\n") >= size)
        return CLV_OK;
    clv_status status = clv_json_parse(&line, text, size, CLV_JSON_KEYS_LAST_WINS, "the line", &why);
    if (status == CLV_OK)
        status = encode_object(out, f, line, &why);
    json_decref(line);
    if (status == CLV_OK)
        return CLV_OK;
    if (status == CLV_ENOMEM) {
        *err = why;
        return status;
    }
    if (!f->options.skip_bad_lines)
        return fail_at(p, number, why.message, err);
    discard_line(out, &before);
    return CLV_OK;
}

static clv_status encode_lines(clv_corpus_ids *out, const clv_corpus_encoder *f, const clv_corpus_chunk *p,
                               clv_error *err)
{
    int64_t number = p->line;
    for (size_t begin = 0; begin < p->size; number++) {
        const char *stop = memchr(p->text + begin, '\n', p->size - begin);
        size_t end = stop ? (size_t)(stop - p->text) : p->size;
        CLV_TRY(encode_line(out, f, p, p->text + begin, end - begin, number, err));
        begin = end + 1;
    }
    return CLV_OK;
}

/* Records without a residue are nothing. */
static clv_status encode_records(clv_corpus_ids *out, const clv_corpus_encoder *f, const clv_corpus_chunk *p,
                                 clv_error *err)
{
    clv_fasta_reader records = clv_fasta_reader_new(p->text, p->size);
    clv_fasta_record r;
    for (;;) {
        clv_error why = {0};
        clv_status status = clv_fasta_reader_next(&r, &records, &why);
        if (status != CLV_OK)
            return fail_at(p, p->line + records.line - 1, why.message, err);
        if (!r.name)
            return CLV_OK;
        if (r.size == 0)
            continue;
        out->records++;
        CLV_TRY(begin_document(out, f, true, err));
        CLV_TRY(append_text(out, f, r.residues, r.size, true, err));
        CLV_TRY(end_document(out, f, true, err));
    }
}

clv_status clv_corpus_encoder_encode(clv_corpus_ids *out, const clv_corpus_encoder *f, const clv_corpus_chunk *p,
                                     clv_error *err)
{
    if (p->form == CLV_TEXT_JSON_LINES || p->form == CLV_TEXT_JSON_ARRAY)
        return encode_lines(out, f, p, err);
    if (p->form == CLV_TEXT_FASTA)
        return encode_records(out, f, p, err);
    if (p->first)
        CLV_TRY(begin_document(out, f, true, err));
    CLV_TRY(append_text(out, f, p->text, p->size, true, err));
    return p->last ? end_document(out, f, true, err) : CLV_OK;
}

/* ---- the form ---- */

/* -1: the tokenizer has no token of this text. */
static int64_t find_token(const clv_tokenizer *t, const char *text)
{
    size_t size = strlen(text);
    for (int64_t id = 0; t->token && id < t->size; id++)
        if (t->token[id].text && t->token[id].size == size && memcmp(t->token[id].text, text, size) == 0)
            return id;
    return -1;
}

static clv_status find_end_token(clv_corpus_encoder *f, clv_error *err)
{
    static const char *const usual[] = {"</s>", "<|endoftext|>", "<|end_of_text|>", "<eos>", "[SEP]"};
    const char *end = f->options.end_token;
    f->end_id = end || !f->tokenizer->bytes ? -1 : 0;
    if (end && end[0] != '\0') {
        f->end_id = find_token(f->tokenizer, end);
        if (f->end_id < 0)
            return clv_fail(err, CLV_EINVAL, "'%.64s' is no token of the tokenizer; valid: the text of one, or nothing",
                            end);
    }
    for (size_t i = 0; !end && f->end_id < 0 && i < sizeof usual / sizeof usual[0]; i++)
        f->end_id = find_token(f->tokenizer, usual[i]);
    return CLV_OK;
}

static clv_status resolve_options(clv_corpus_encoder *f, clv_error *err)
{
    clv_corpus_options *o = &f->options;
    if (o->threads < 0)
        return clv_fail(err, CLV_EINVAL, "%d threads; valid: 1 and above, 0: as many as there are cores", o->threads);
    o->field = o->field ? o->field : o->chat ? "messages" : "text";
    f->turn = o->turn_template ? o->turn_template : "<|im_start|>{role}\n{content}<|im_end|>\n";
    f->content = strstr(f->turn, content_mark);
    if (!f->content)
        return clv_fail(err, CLV_EINVAL, "a turn '%.64s' has no %s", f->turn, content_mark);
    if (!o->tokenizer)
        CLV_TRY(clv_tokenizer_new_bytes(&f->bytes, err));
    f->tokenizer = o->tokenizer ? o->tokenizer : f->bytes;
    f->vocab = clv_tokenizer_vocab_size(f->tokenizer);
    return find_end_token(f, err);
}

clv_status clv_corpus_encoder_open(clv_corpus_encoder *out, const clv_corpus_options *options, clv_error *err)
{
    clv_corpus_encoder f = {0};
    CLV_TRY(clv_options_copy_in(&f.options, sizeof f.options, offsetof(clv_corpus_options, skip_bad_lines), options,
                                "clv_corpus_tokenize", err));
    clv_status status = resolve_options(&f, err);
    if (status == CLV_OK)
        *out = f;
    else
        clv_corpus_encoder_close(&f);
    return status;
}

void clv_corpus_encoder_close(clv_corpus_encoder *f)
{
    clv_tokenizer_free(f->bytes);
    *f = (clv_corpus_encoder){0};
}
