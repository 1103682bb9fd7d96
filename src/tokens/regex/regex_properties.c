/* regex_properties.c - \p{...} and [:posix:] names of Oniguruma as PCRE2 character sets. POSIX names as in
 * Oniguruma's doc/RE for Unicode; scripts without PCRE2's script extensions.
 */
#include "tokens/regex/regex_properties.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdio.h>
#include <string.h>

static const struct named_set {
    const char *name;
    clv_regex_char_set set;
} named_sets[] = {{"alnum", {"\\p{Alphabetic}\\p{Nd}", false}},
                  {"alpha", {"\\p{Alphabetic}", false}},
                  {"ascii", {"\\x00-\\x7f", false}},
                  {"blank", {"\\p{Zs}\\x09", false}},
                  {"cntrl", {"\\p{Cc}", false}},
                  {"digit", {"\\p{Nd}", false}},
                  {"graph", {"\\p{Cc}\\p{Cn}\\p{Cs}" CLV_REGEX_SPACES, true}},
                  {"lower", {"\\p{Lowercase}", false}},
                  {"print", {"\\p{Cc}\\p{Cn}\\p{Cs}\\x{2028}\\x{2029}", true}},
                  {"punct", {"\\p{P}", false}},
                  {"space", {CLV_REGEX_SPACES, false}},
                  {"upper", {"\\p{Uppercase}", false}},
                  {"word", {CLV_REGEX_WORDS, false}},
                  {"xdigit", {CLV_REGEX_HEX, false}},
                  {"any", {"\\p{Any}", false}},
                  {"assigned", {"\\p{Cn}", true}},
                  {"whitespace", {CLV_REGEX_SPACES, false}},
                  {"lc", {"\\p{L&}", false}},
                  {"casedletter", {"\\p{L&}", false}}};

/* Long names of general categories, and their codes. */
static const char categories[] =
    " letter=L uppercaseletter=Lu lowercaseletter=Ll titlecaseletter=Lt modifierletter=Lm otherletter=Lo mark=M "
    "combiningmark=M nonspacingmark=Mn spacingmark=Mc enclosingmark=Me number=N decimalnumber=Nd letternumber=Nl "
    "othernumber=No punctuation=P connectorpunctuation=Pc dashpunctuation=Pd openpunctuation=Ps closepunctuation=Pe"
    " initialpunctuation=Pi finalpunctuation=Pf otherpunctuation=Po symbol=S mathsymbol=Sm currencysymbol=Sc "
    "modifiersymbol=Sk othersymbol=So separator=Z spaceseparator=Zs lineseparator=Zl paragraphseparator=Zp other=C "
    "control=Cc format=Cf surrogate=Cs privateuse=Co unassigned=Cn ";

static bool pcre2_takes(const char *expression)
{
    int code;
    PCRE2_SIZE at;
    pcre2_code *compiled = pcre2_compile((PCRE2_SPTR)expression, PCRE2_ZERO_TERMINATED, PCRE2_UTF, &code, &at, NULL);
    pcre2_code_free(compiled);
    return compiled != NULL;
}

enum { LONGEST_NAME = 48 };

/* A name in lower case without spaces, "-" and "_"; "": too long. */
static void plain_name(char out[LONGEST_NAME], clv_text_span name)
{
    size_t n = 0;
    for (size_t i = 0; i < name.size && n + 1 < LONGEST_NAME; i++) {
        char c = name.text[i];
        if (c != ' ' && c != '-' && c != '_')
            out[n++] = c >= 'A' && c <= 'Z' ? (char)(c + ('a' - 'A')) : c;
    }
    out[n + 1 < LONGEST_NAME ? n : 0] = '\0';
}

/* Set of a script or binary property, whose names PCRE2 shares; "": unknown to PCRE2. */
static void other_property(char out[CLV_REGEX_CHAR_SET_SIZE], const char *name)
{
    bool plain = name[0] != '\0';
    for (const char *c = name; *c; c++)
        plain = plain && ((*c >= 'a' && *c <= 'z') || (*c >= '0' && *c <= '9'));
    for (size_t i = 0; plain && i < 2; i++) {
        snprintf(out, CLV_REGEX_CHAR_SET_SIZE, i == 0 ? "\\p{sc:%s}" : "\\p{%s}", name);
        if (pcre2_takes(out))
            return;
    }
    out[0] = '\0';
}

bool clv_regex_char_set_find(clv_regex_char_set *out, char buffer[CLV_REGEX_CHAR_SET_SIZE], clv_text_span name,
                             bool posix)
{
    char plain[LONGEST_NAME];
    plain_name(plain, name);
    if (posix && strcmp(plain, "punct") == 0) {
        *out = (clv_regex_char_set){.content = "\\p{P}\\p{S}"};
        return true;
    }
    for (size_t i = 0; i < sizeof named_sets / sizeof named_sets[0]; i++)
        if (strcmp(named_sets[i].name, plain) == 0) {
            *out = named_sets[i].set;
            return true;
        }
    *out = (clv_regex_char_set){.content = buffer};
    buffer[0] = '\0';
    char key[LONGEST_NAME + 2];
    snprintf(key, sizeof key, " %s=", plain);
    const char *category = strstr(categories, key);
    if (category) {
        category += strlen(key);
        snprintf(buffer, CLV_REGEX_CHAR_SET_SIZE, "\\p{%.*s}", (int)strcspn(category, " "), category);
    }
    if (buffer[0] == '\0')
        other_property(buffer, plain);
    return buffer[0] != '\0';
}
