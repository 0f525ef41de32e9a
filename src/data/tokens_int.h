/* data/tokens_int.h - where the fields of a token file are; tokens.h says what they mean. */
#ifndef PL_DATA_TOKENS_INT_H
#define PL_DATA_TOKENS_INT_H

#define PL_TOKENS_MAGIC "PELAGOTK"

enum {
    PL_TOKENS_VERSION = 1,
    PL_TOKENS_VERSION_AT = 8,
    PL_TOKENS_WIDTH = 12,
    PL_TOKENS_VOCAB = 16,
    PL_TOKENS_BLOCK = 20,
    PL_TOKENS_COUNT = 24,
    PL_TOKENS_TEXT_BYTES = 32,
    PL_TOKENS_DOCUMENTS = 40,
    PL_TOKENS_DIGEST = 48,
    PL_TOKENS_TABLE = 56,
    PL_TOKENS_ZEROS = 64,
    PL_TOKENS_SUM = 88,
};

#endif
