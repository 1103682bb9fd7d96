/** @file text.h - text for people: amounts as they read them, names from outside made printable, UTF-8 mended. For
 * programs that show what this library tells, as the command does. No call keeps what it is given; all are safe from
 * several threads.
 */
#ifndef CLEAVE_TEXT_H
#define CLEAVE_TEXT_H

#include <stdbool.h>
#include <stddef.h>

#include "cleave/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- amounts ---- */

/** Bytes that hold any of these. */
enum { CLV_QUANTITY_TEXT = 64 };

/* Each writes as snprintf does. */

/** "512 B", "16.3 MiB": powers of 1024, one decimal. */
CLV_API int clv_print_bytes(char *out, size_t size, double bytes);
/** "16.3 MiB (17039616)"; below 1 KiB, where both are the same, "512 B". */
CLV_API int clv_print_bytes_exactly(char *out, size_t size, double bytes);
/** "8.07 us", "103 us", "3.87 s": three digits. */
CLV_API int clv_print_seconds(char *out, size_t size, double seconds);
/** "633 M", "2.3 G": powers of 1000, three digits. */
CLV_API int clv_print_count(char *out, size_t size, double count);

/* ---- what comes from outside ---- */

/** Copies text (names in files, arguments) so that it stays on its line and tells a terminal nothing: control
 *  characters, those that turn the direction of writing, and bytes that are no UTF-8 are spelled `\n`, `\x1b`,
 *  `\u202e`. Text without any is as it was, backslashes too, so to do it again changes nothing. As snprintf does, but
 *  no character or escape is cut: returns the length of the whole. */
CLV_API size_t clv_printable(char *out, size_t size, const char *text, size_t length);
/** The same in memory that the caller frees with free(); NULL when there is none, or no text. */
CLV_API char *clv_printable_copy(const char *text);

/* ---- UTF-8 (RFC 3629) ---- */

/** Bytes of the well-formed character at p (overlong forms, surrogates and values above U+10FFFF are not); 0: there is
 *  none. */
CLV_API size_t clv_utf8_character(const char *p, size_t size);
/** Whether the text ends within a character that further bytes may complete. */
CLV_API bool clv_utf8_ends_open(const char *text, size_t size);
/** A copy in which each maximal part of a character that is not one is U+FFFD, as Python's errors="replace" does
 *  (Unicode 15, section 3.9), with a zero byte behind (*out_size, unless NULL, receives its bytes without that). The
 *  caller's to free(); NULL when out of memory, or without a text. */
CLV_API char *clv_utf8_repair(size_t *out_size, const char *text, size_t size);

#ifdef __cplusplus
}
#endif
#endif
