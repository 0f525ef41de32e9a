/* data/unicode.h - the little of Unicode that cutting text into words needs: UTF-8, classes, and NFC.
 *
 * Classes are those of Unicode 16, NFC is that of Unicode 9: this is what Hugging Face tokenizers have, and tokens depend on it.
 * Text may hold bytes that are not UTF-8. Each such byte counts as one character of class OTHER, and NFC copies it.
 */
#ifndef PL_DATA_UNICODE_H
#define PL_DATA_UNICODE_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum pl_char_class {
    PL_CHAR_OTHER = 0,
    PL_CHAR_LETTER, /* \p{L} */
    PL_CHAR_NUMBER, /* \p{N} */
    PL_CHAR_SPACE,  /* \s, the property White_Space */
};

#define PL_CHAR_BAD UINT32_MAX /* a byte that is not UTF-8 */

/* The character at `at` and its length in bytes; at < end. */
size_t pl_utf8_read(const uint8_t *at, const uint8_t *end, uint32_t *c);
/* Writes 1 to 4 bytes and returns how many; c <= 0x10ffff. */
size_t pl_utf8_write(uint8_t *into, uint32_t c);
/* Bytes at the end of the text that begin a character and do not finish it: 0 to 3. */
size_t pl_utf8_unfinished(const uint8_t *text, size_t len);

enum pl_char_class pl_char_class(uint32_t c);

/* The length of the longest prefix that NFC surely leaves alone. */
size_t pl_nfc_plain(const uint8_t *text, size_t len);
/* Appends the text in Unicode normalization form C. */
enum pelago_status pl_nfc_append(struct pl_buf *out, const uint8_t *text, size_t len);

#endif
