/* parse_print.c - scanner and string builder for the text forms of meshes, layouts, rules and graphs. */
#include "tensor/parse_print.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/text/c_locale.h"
#include "cleave/text.h"

void clv_scan_skip_spaces(clv_scanner *scan)
{
    while (scan->text[scan->at] == ' ' || scan->text[scan->at] == '\t')
        scan->at++;
}

bool clv_scan_accept(clv_scanner *scan, char c)
{
    clv_scan_skip_spaces(scan);
    if (scan->text[scan->at] != c)
        return false;
    scan->at++;
    return true;
}

bool clv_scan_number(clv_scanner *scan, int64_t *out)
{
    const int64_t limit = (int64_t)1 << 53;
    int64_t value = 0;
    clv_scan_skip_spaces(scan);
    if (!isdigit((unsigned char)scan->text[scan->at]))
        return false;
    for (; isdigit((unsigned char)scan->text[scan->at]); scan->at++) {
        value = value * 10 + (scan->text[scan->at] - '0');
        value = value < limit ? value : limit;
    }
    *out = value;
    return true;
}

clv_status clv_scan_fail(const clv_scanner *scan, int at, clv_status code, clv_error *err, const char *format, ...)
{
    char message[256], where[16] = "the end";
    unsigned char c = (unsigned char)scan->text[at];
    va_list args;
    va_start(args, format);
    clv_vsnprintf(message, sizeof message, format, args);
    va_end(args);
    if (c != '\0')
        snprintf(where, sizeof where, isprint(c) ? "'%c'" : "byte 0x%02x", c);
    return clv_fail(err, code, "%s '%.100s', column %d (%s): %s", scan->what, scan->text, at + 1, where, message);
}

void clv_text_add(clv_text *text, const char *format, ...)
{
    bool fits = text->out && text->length < text->size;
    va_list args;
    va_start(args, format);
    int n = clv_vsnprintf(fits ? text->out + text->length : NULL, fits ? text->size - text->length : 0, format, args);
    va_end(args);
    text->length += n > 0 ? (size_t)n : 0;
}

void clv_text_add_double(clv_text *text, double value)
{
    char digits[32];
    for (int n = 6; n <= 17; n++) { /* as few as read back as the same */
        clv_snprintf(digits, sizeof digits, "%.*g", n, value);
        if (!(clv_strtod(digits) != value))
            break;
    }
    clv_text_add(text, "%s", digits);
}

void clv_text_add_name(clv_text *text, const char *name)
{
    bool fits = text->out && text->length < text->size;
    text->length +=
        clv_printable(fits ? text->out + text->length : NULL, fits ? text->size - text->length : 0, name, strlen(name));
}

void clv_text_add_subaxis(clv_text *text, clv_subaxis sub, const clv_mesh *mesh)
{
    const clv_axis *axis = &mesh->axis[sub.axis];
    clv_text_add(text, "%.*s", CLV_AXIS_NAME_SIZE - 1, axis->name);
    if (sub.size != axis->size)
        clv_text_add(text, ":(%d)%d", (int)sub.pre, (int)sub.size);
}

int clv_text_finish(clv_text *text)
{
    if (text->length == 0 && text->out && text->size > 0)
        text->out[0] = '\0';
    return (int)text->length;
}

const char *clv_text_to_arena(clv_arena *arena, clv_text_writer *write, const void *arg)
{
    char room[512]; /* for most texts */
    clv_text text = {.out = room, .size = sizeof room};
    write(&text, arg);
    size_t size = (size_t)clv_text_finish(&text) + 1;
    if (size <= sizeof room)
        return clv_arena_copy(arena, room, size);
    text = (clv_text){.out = clv_arena_alloc(arena, size, 1), .size = size};
    if (text.out)
        write(&text, arg);
    return text.out;
}

int clv_subaxis_print(char *out, size_t size, clv_subaxis sub, const clv_mesh *mesh)
{
    clv_text text = {.out = out, .size = size};
    if (mesh && sub.axis >= 0 && sub.axis < mesh->n_axes && sub.axis < CLV_MAX_AXES)
        clv_text_add_subaxis(&text, sub, mesh);
    return clv_text_finish(&text);
}
