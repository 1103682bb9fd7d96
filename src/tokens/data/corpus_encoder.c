/* corpus_encoder.c - encodes a chunk of text, JSON lines, chat turns or FASTA to token ids and a loss mask. */
#include "base/memory/grow.h"
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

static clv_status reserve(clv_corpus_ids *out, int64_t n, bool masked, clv_error *err)
{
    int64_t capacity = out->capacity;
    if (masked)
        CLV_TRY(clv_grow(&out->loss_mask, &capacity, out->n + n, sizeof *out->loss_mask, "ids", err));
    return clv_grow(&out->id, &out->capacity, out->n + n, sizeof *out->id, "ids", err);
}

static clv_status append(clv_corpus_ids *out, const clv_corpus_encoder *e, const int64_t *ids, int64_t n, bool is_label,
                         clv_error *err)
{
    CLV_TRY(reserve(out, n, e->options.chat, err));
    for (int64_t i = 0; i < n; i++)
        out->id[out->n + i] = (int32_t)ids[i];
    if (out->loss_mask && n > 0)
        memset(out->loss_mask + out->n, is_label, (size_t)n);
    out->n += n;
    out->n_loss_tokens += is_label ? n : 0;
    return CLV_OK;
}

static clv_status append_text(clv_corpus_ids *out, const clv_corpus_encoder *e, const char *text, size_t size,
                              bool is_label, clv_error *err)
{
    CLV_FREED int64_t *ids = NULL;
    int64_t n;
    CLV_TRY(clv_tokenizer_encode(e->tokenizer, text, size, false, &ids, &n, err));
    return append(out, e, ids, n, is_label, err);
}

static clv_status begin_document(clv_corpus_ids *out, const clv_corpus_encoder *e, bool is_label, clv_error *err)
{
    const clv_special_ids *before = &e->tokenizer->before;
    out->documents++;
    return e->options.no_special ? CLV_OK : append(out, e, before->id, before->n, is_label, err);
}

static clv_status end_document(clv_corpus_ids *out, const clv_corpus_encoder *e, bool is_label, clv_error *err)
{
    const clv_special_ids *after = &e->tokenizer->after;
    if (!e->options.no_special)
        CLV_TRY(append(out, e, after->id, after->n, is_label, err));
    bool ended = e->end_id < 0 || (!e->options.no_special && after->n > 0 && after->id[after->n - 1] == e->end_id);
    return ended ? CLV_OK : append(out, e, &e->end_id, 1, is_label, err);
}

/* ---- JSON ---- */

/* The turn template before {content}, with {role} replaced; the caller frees it. */
static char *turn_header(const clv_corpus_encoder *e, const char *role)
{
    const char *at = strstr(e->turn, role_mark);
    int before = (int)(e->content - e->turn);
    char *head = NULL;
    bool named = at && at < e->content;
    int to_role = named ? (int)(at - e->turn) : before;
    int behind = named ? before - to_role - (int)strlen(role_mark) : 0;
    int n =
        asprintf(&head, "%.*s%s%.*s", to_role, e->turn, named ? role : "", behind, named ? at + strlen(role_mark) : "");
    return n < 0 ? NULL : head;
}

static clv_status encode_turn(clv_corpus_ids *out, const clv_corpus_encoder *e, const json_t *turn, bool *answer,
                              clv_error *err)
{
    const char *role, *content, *behind = e->content + strlen(content_mark);
    size_t size;
    CLV_TRY(clv_json_check_object(turn, "a turn", err));
    CLV_TRY(clv_json_get_string(&role, turn, "role", CLV_JSON_REQUIRED, "a turn", err));
    CLV_TRY(clv_json_get_bytes(&content, &size, turn, "content", "a turn", err));
    *answer = strcmp(role, "assistant") == 0;
    CLV_FREED char *head = turn_header(e, role), *text = malloc(size + strlen(behind) + 1);
    if (!head || !text)
        return clv_fail_memory(err, "a turn", size);
    memcpy(text, content, size);
    memcpy(text + size, behind, strlen(behind));
    CLV_TRY(append_text(out, e, head, strlen(head), false, err));
    return append_text(out, e, text, size + strlen(behind), *answer, err);
}

static clv_status encode_chat(clv_corpus_ids *out, const clv_corpus_encoder *e, const json_t *line, clv_error *err)
{
    const json_t *turns = json_object_get(line, e->options.field);
    bool answer = false;
    if (!json_is_array(turns) || json_array_size(turns) == 0)
        return clv_fail(err, CLV_EINVAL, "\"%s\" must be a list of turns", e->options.field);
    CLV_TRY(begin_document(out, e, false, err));
    for (size_t i = 0; i < json_array_size(turns); i++)
        CLV_TRY(encode_turn(out, e, json_array_get(turns, i), &answer, err));
    return end_document(out, e, answer, err);
}

static clv_status encode_object(clv_corpus_ids *out, const clv_corpus_encoder *e, const json_t *line, clv_error *err)
{
    const char *text;
    size_t size;
    CLV_TRY(clv_json_check_object(line, "the line", err));
    if (e->options.chat)
        return encode_chat(out, e, line, err);
    CLV_TRY(clv_json_get_bytes(&text, &size, line, e->options.field, "the line", err));
    CLV_TRY(begin_document(out, e, true, err));
    CLV_TRY(append_text(out, e, text, size, true, err));
    return end_document(out, e, true, err);
}

/* Fails with "FILE:LINE", or "FILE: element NUMBER" in an array. */
static clv_status fail_at(const clv_corpus_chunk *chunk, int64_t line, const char *why, clv_error *err)
{
    const char *mark = chunk->format == CLV_TEXT_JSON_ARRAY ? " element " : "";
    return clv_fail(err, CLV_EINVAL, "%s:%s%lld: %s", chunk->path, mark, (long long)line, why);
}

/* Removes the ids of a line that failed. */
static void discard_line(clv_corpus_ids *out, const clv_corpus_ids *before)
{
    out->n = before->n;
    out->documents = before->documents;
    out->n_loss_tokens = before->n_loss_tokens;
    out->skipped_lines++;
}

static clv_status encode_line(clv_corpus_ids *out, const clv_corpus_encoder *e, const clv_corpus_chunk *chunk,
                              const char *text, size_t size, int64_t number, clv_error *err)
{
    clv_error why = {0};
    json_t *line = NULL;
    const clv_corpus_ids before = *out;
    if (strspn(text, " \t\r\n") >= size)
        return CLV_OK;
    clv_status status = clv_json_parse(&line, text, size, CLV_JSON_KEYS_LAST_WINS, "the line", &why);
    if (status == CLV_OK)
        status = encode_object(out, e, line, &why);
    json_decref(line);
    if (status == CLV_OK)
        return CLV_OK;
    if (status == CLV_ENOMEM) {
        *err = why;
        return status;
    }
    if (!e->options.skip_bad_lines)
        return fail_at(chunk, number, why.message, err);
    discard_line(out, &before);
    return CLV_OK;
}

static clv_status encode_lines(clv_corpus_ids *out, const clv_corpus_encoder *e, const clv_corpus_chunk *chunk,
                               clv_error *err)
{
    int64_t number = chunk->line;
    for (size_t begin = 0; begin < chunk->size; number++) {
        const char *stop = memchr(chunk->text + begin, '\n', chunk->size - begin);
        size_t end = stop ? (size_t)(stop - chunk->text) : chunk->size;
        CLV_TRY(encode_line(out, e, chunk, chunk->text + begin, end - begin, number, err));
        begin = end + 1;
    }
    return CLV_OK;
}

/* Records without a residue are skipped. */
static clv_status encode_records(clv_corpus_ids *out, const clv_corpus_encoder *e, const clv_corpus_chunk *chunk,
                                 clv_error *err)
{
    clv_fasta_reader records = clv_fasta_reader_new(chunk->text, chunk->size);
    clv_fasta_record r;
    for (;;) {
        clv_error why = {0};
        clv_status status = clv_fasta_reader_next(&r, &records, &why);
        if (status != CLV_OK)
            return fail_at(chunk, chunk->line + records.line - 1, why.message, err);
        if (!r.name)
            return CLV_OK;
        if (r.size == 0)
            continue;
        out->records++;
        CLV_TRY(begin_document(out, e, true, err));
        CLV_TRY(append_text(out, e, r.residues, r.size, true, err));
        CLV_TRY(end_document(out, e, true, err));
    }
}

clv_status clv_corpus_encoder_encode(clv_corpus_ids *out, const clv_corpus_encoder *e, const clv_corpus_chunk *chunk,
                                     clv_error *err)
{
    if (chunk->format == CLV_TEXT_JSON_LINES || chunk->format == CLV_TEXT_JSON_ARRAY)
        return encode_lines(out, e, chunk, err);
    if (chunk->format == CLV_TEXT_FASTA)
        return encode_records(out, e, chunk, err);
    if (chunk->first)
        CLV_TRY(begin_document(out, e, true, err));
    CLV_TRY(append_text(out, e, chunk->text, chunk->size, true, err));
    return chunk->last ? end_document(out, e, true, err) : CLV_OK;
}

/* ---- options ---- */

/* Id of the token with this text; -1: none. */
static int64_t find_token(const clv_tokenizer *t, const char *text)
{
    size_t size = strlen(text);
    for (int64_t id = 0; t->token && id < t->size; id++)
        if (t->token[id].text && t->token[id].size == size && memcmp(t->token[id].text, text, size) == 0)
            return id;
    return -1;
}

static clv_status find_end_token(clv_corpus_encoder *e, clv_error *err)
{
    static const char *const defaults[] = {"</s>", "<|endoftext|>", "<|end_of_text|>", "<eos>", "[SEP]"};
    const char *end = e->options.end_token;
    e->end_id = end || !e->tokenizer->bytes ? -1 : 0;
    if (end && end[0] != '\0') {
        e->end_id = find_token(e->tokenizer, end);
        if (e->end_id < 0)
            return clv_fail(err, CLV_EINVAL,
                            "'%.64s' is not a token of the tokenizer; valid: the text of a token, or an empty text",
                            end);
    }
    for (size_t i = 0; !end && e->end_id < 0 && i < sizeof defaults / sizeof defaults[0]; i++)
        e->end_id = find_token(e->tokenizer, defaults[i]);
    return CLV_OK;
}

static clv_status resolve_options(clv_corpus_encoder *e, clv_error *err)
{
    clv_corpus_options *o = &e->options;
    if (o->threads < 0)
        return clv_fail(err, CLV_EINVAL, "%d threads; valid: 0 (all cores) and above", o->threads);
    o->field = o->field ? o->field : o->chat ? "messages" : "text";
    e->turn = o->turn_template ? o->turn_template : "<|im_start|>{role}\n{content}<|im_end|>\n";
    e->content = strstr(e->turn, content_mark);
    if (!e->content)
        return clv_fail(err, CLV_EINVAL, "a turn template '%.64s' has no %s", e->turn, content_mark);
    if (!o->tokenizer)
        CLV_TRY(clv_tokenizer_new_bytes(&e->bytes, err));
    e->tokenizer = o->tokenizer ? o->tokenizer : e->bytes;
    e->vocab = clv_tokenizer_vocab_size(e->tokenizer);
    return find_end_token(e, err);
}

clv_status clv_corpus_encoder_open(clv_corpus_encoder *out, const clv_corpus_options *options, clv_error *err)
{
    clv_corpus_encoder e = {0};
    CLV_TRY(clv_options_copy_in(&e.options, sizeof e.options, sizeof e.options, options, "clv_corpus_tokenize", err));
    clv_status status = resolve_options(&e, err);
    if (status == CLV_OK)
        *out = e;
    else
        clv_corpus_encoder_close(&e);
    return status;
}

void clv_corpus_encoder_close(clv_corpus_encoder *e)
{
    clv_tokenizer_free(e->bytes);
    *e = (clv_corpus_encoder){0};
}
