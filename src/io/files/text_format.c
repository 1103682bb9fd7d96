/* text_format.c - text format detection: plain, CSV, JSON lines, JSON array or FASTA; converts a JSON array to JSON
 * lines.
 */
#include "io/files/text_format.h"

#include <string.h>
#include <strings.h>

#include "base/error.h"

/* ---- by name ---- */

/* Whether a path ends with one of these, in letters of either case, before ".gz" or not. */
static bool has_extension(const char *path, const char *const *ends)
{
    size_t size = strlen(path);
    if (size > 3 && strcasecmp(path + size - 3, ".gz") == 0)
        size -= 3;
    for (; *ends; ends++) {
        size_t n = strlen(*ends);
        if (size > n && strncasecmp(path + size - n, *ends, n) == 0)
            return true;
    }
    return false;
}

/* ---- by content ---- */

static const char *skip_whitespace(const char *at, const char *end)
{
    while (at < end && *at != '\0' && strchr(" \t\r\n", *at))
        at++;
    return at;
}

static const char *line_end(const char *at, const char *end)
{
    while (at < end && *at != '\n' && *at != '\r')
        at++;
    return at;
}

/* An object, or an array of them. */
static bool is_json(char *first, const char *text, const char *end)
{
    const char *at = skip_whitespace(text, end), *next = at < end ? skip_whitespace(at + 1, end) : end;
    *first = at < end ? *at : '\0';
    return next < end && ((*first == '{' && (*next == '"' || *next == '}')) || (*first == '[' && *next == '{'));
}

/* Whether most lines are objects, two at least: the first one may be broken, or a comment. */
static bool is_json_lines(const char *text, const char *end)
{
    int64_t lines = 0, objects = 0;
    for (const char *at = skip_whitespace(text, end), *stop; at < end; at = skip_whitespace(stop, end)) {
        const char *next = skip_whitespace(at + 1, end);
        stop = line_end(at, end);
        lines++;
        objects += *at == '{' && next < stop && *next == '"' && (stop == end || stop[-1] == '}');
    }
    return objects >= 2 && 2 * objects > lines;
}

/* Words behind a line with '>', as in a quotation: no blanks stand between residues, but in groups of capitals, and
 * none begins with a letter that is not of ASCII. */
static bool is_prose(const char *at, const char *end)
{
    bool blank = false, other = false;
    if (at < end && (unsigned char)*at >= 0x80)
        return true;
    while (end > at && end[-1] == ' ')
        end--;
    for (; at < end; at++) {
        blank = blank || *at == ' ';
        other = other || !(*at == ' ' || *at == '-' || *at == '.' || *at == '*' || (*at >= 'A' && *at <= 'Z'));
    }
    return blank && other;
}

/* A line with '>', before which comments may stand, and none of prose behind it. */
static bool is_fasta(const char *text, const char *end)
{
    const char *at = skip_whitespace(text, end);
    while (at < end && *at == ';')
        at = skip_whitespace(line_end(at, end), end);
    if (at == end || *at != '>' || (end - at > 1 && at[1] == '>')) /* ">>" is of quotations and of Python's examples */
        return false;
    while (at < end && (*at == '>' || *at == ';'))
        at = skip_whitespace(line_end(at, end), end);
    return !is_prose(at, line_end(at, end));
}

clv_text_format clv_text_format_detect(const char *text, size_t size, const char *path)
{
    static const char *const tables[] = {".csv", ".tsv", ".xls", ".xlsx", NULL};
    static const char *const json[] = {".jsonl", ".ndjson", ".json", NULL};
    static const char *const fasta[] = {".fasta", ".fa",  ".faa", ".fas", ".fsa", ".fna",
                                        ".a3m",   ".a2m", ".afa", ".pep", NULL};
    const char *end = text + size;
    char first;
    bool is = is_json(&first, text, end);
    if (memchr(text, '\0', size))
        return CLV_TEXT_BINARY;
    if (has_extension(path, tables))
        return CLV_TEXT_TABLE;
    if (is || has_extension(path, json) || is_json_lines(text, end))
        return is && first == '[' ? CLV_TEXT_JSON_ARRAY : CLV_TEXT_JSON_LINES;
    return is_fasta(text, end) || has_extension(path, fasta) ? CLV_TEXT_FASTA : CLV_TEXT_PLAIN;
}

/* ---- arrays ---- */

static clv_status array_error(const char *where, const char *why, clv_error *err)
{
    return clv_fail(err, CLV_EFORMAT, "%s: a JSON array %s", where, why);
}

/* Of a byte outside of strings; the commas and brackets of the array itself become ends of lines and blanks. */
static clv_status step(clv_json_array *a, char *c, const char *where, clv_error *err)
{
    bool blank = *c == ' ' || *c == '\t' || *c == '\n', closes = *c == ']' || *c == '}';
    bool own = a->depth == 1 && (*c == ',' || *c == ']');
    if (blank) {
        *c = ' ';
        return CLV_OK;
    }
    if (a->ended)
        return array_error(where, "has more behind its end", err);
    if (own && !a->element && (*c == ',' || a->separated))
        return array_error(where, "lacks an element beside a comma", err);
    a->depth += *c == '[' || *c == '{' ? 1 : closes ? -1 : 0;
    a->ended = a->depth == 0;
    a->quoted = *c == '"';
    a->element = !own && a->begun;
    a->separated = own || (a->separated && a->element);
    if (own || !a->begun)
        *c = *c == ',' ? '\n' : ' ';
    a->begun = true;
    return CLV_OK;
}

clv_status clv_json_array_to_lines(clv_json_array *a, char *text, size_t size, bool last, const char *where,
                                   clv_error *err)
{
    for (size_t i = 0; i < size; i++) {
        if (!a->quoted) {
            CLV_TRY(step(a, &text[i], where, err));
        } else if (a->escaped) {
            a->escaped = false;
        } else {
            a->escaped = text[i] == '\\';
            a->quoted = text[i] != '"';
            if (text[i] == '\n')
                return array_error(where, "has the end of a line in a string", err);
        }
    }
    return last && !a->ended ? array_error(where, "does not end", err) : CLV_OK;
}
