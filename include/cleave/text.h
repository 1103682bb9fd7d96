/** @file text.h - text for people: human-readable amounts, escaping of untrusted names, UTF-8 repair. For programs
 * that print results as the cleave command does. All functions are thread-safe and keep no pointers.
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

/** Bytes that hold any of these texts. */
enum { CLV_QUANTITY_TEXT = 64 };

/* Each writes into out and returns a length, as snprintf does. */

/** Writes bytes in powers of 1024 with one decimal: "512 B", "16.3 MiB". */
CLV_EXPERIMENTAL int clv_print_bytes(char *out, size_t size, double bytes);
/** Writes bytes with the exact number behind: "16.3 MiB (17039616)"; below 1 KiB only "512 B". */
CLV_EXPERIMENTAL int clv_print_bytes_exactly(char *out, size_t size, double bytes);
/** Writes seconds with three digits, from 1000 s on whole: "8.07 us", "103 us", "3.87 s", "4000 s". */
CLV_EXPERIMENTAL int clv_print_seconds(char *out, size_t size, double seconds);
/** Writes a count in powers of 1000 with three digits: "633 M", "63.0 T"; below 1000 as they are: "999". */
CLV_EXPERIMENTAL int clv_print_count(char *out, size_t size, double count);

/* ---- untrusted text ---- */

/** Copies untrusted text (names in files, arguments) with everything escaped that could break the line or control the
 *  terminal: control characters, characters that change the writing direction, and invalid UTF-8 become `\n`, `\x1b`,
 *  `\u202e`. Other text, backslashes included, is unchanged, so escaping twice is harmless. As snprintf, returns the
 *  length of the whole result; the copy never ends within a character or an escape. */
CLV_EXPERIMENTAL size_t clv_printable(char *out, size_t size, const char *text, size_t length);
/** Returns the same in memory that the caller frees with free(); NULL if text is NULL or memory is out. */
CLV_EXPERIMENTAL char *clv_printable_copy(const char *text);

/* ---- UTF-8 (RFC 3629) ---- */

/** Returns the bytes of the well-formed character at p; 0 if there is none. Overlong forms, surrogates and values above
 *  U+10FFFF are not well-formed. */
CLV_EXPERIMENTAL size_t clv_utf8_character(const char *p, size_t size);
/** Returns whether the text ends within a character that further bytes may complete. */
CLV_EXPERIMENTAL bool clv_utf8_ends_inside_character(const char *text, size_t size);
/** Returns a NUL-terminated copy with each invalid sequence replaced by U+FFFD, as Python's errors="replace" does
 *  (maximal subparts: Unicode 15, section 3.9). *out_size, unless out_size is NULL, receives its length. The caller
 *  frees the copy with free(); NULL if text is NULL or memory is out. */
CLV_EXPERIMENTAL char *clv_utf8_repair(size_t *out_size, const char *text, size_t size);

#ifdef __cplusplus
}
#endif
#endif
