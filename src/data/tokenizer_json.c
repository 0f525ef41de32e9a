/* data/tokenizer_json.c - see tokenizer_json.h. */
#include "data/tokenizer_json.h"

#include "base/limits.h"

#include <string.h>

/* What a field of type string says; "" when it is none. */
static const char *text_of(json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    return text != NULL ? text : "";
}

static bool is_none(json_t *value)
{
    return value == NULL || json_is_null(value);
}

enum pelago_status pl_tokjson_parse(json_t **root, const void *text, size_t len, struct pl_error *err)
{
    json_error_t error;
    *root = NULL;
    if (len > PL_JSON_BYTES_MAX)
        return pl_fail(err, PELAGO_LIMIT, "the JSON text is larger than %lu MiB", PL_JSON_BYTES_MAX >> 20);
    json_t *value = json_loadb(text, len, JSON_REJECT_DUPLICATES, &error);
    if (value == NULL)
        return pl_fail(err, PELAGO_INVALID, "line %u is not valid JSON: %s",
                       (unsigned)(error.line > 0 ? error.line : 1), error.text);
    if (!json_is_object(value)) {
        json_decref(value);
        return pl_fail(err, PELAGO_INVALID, "the JSON text is not an object");
    }
    *root = value;
    return PELAGO_OK;
}

/* ---- normalizer ---- */

enum pelago_status pl_tokjson_read_normalizer(json_t *normalizer, bool *nfc, struct pl_error *err)
{
    const char *type = text_of(normalizer, "type");
    json_t *parts = json_object_get(normalizer, "normalizers"), *part;
    size_t i;
    if (is_none(normalizer))
        return PELAGO_OK;
    if (strcmp(type, "NFC") == 0) {
        *nfc = true;
        return PELAGO_OK;
    }
    if (strcmp(type, "Sequence") != 0 || !json_is_array(parts))
        return pl_fail(err, PELAGO_UNSUPPORTED, "the normalizer is of the type '%s', supported is NFC", type);
    json_array_foreach(parts, i, part)
    {
        if (strcmp(text_of(part, "type"), "NFC") != 0)
            return pl_fail(err, PELAGO_UNSUPPORTED, "the normalizer is of the type '%s', supported is NFC",
                           text_of(part, "type"));
        *nfc = true;
    }
    return PELAGO_OK;
}

/* ---- pre_tokenizer ---- */

enum { STRING_BYTES_MAX = 256 };

/* The string as a pattern that matches it and nothing else; false when it is too long. */
static bool escape(const char *text, char pattern[2 * STRING_BYTES_MAX + 1])
{
    size_t n = 0;
    if (strlen(text) > STRING_BYTES_MAX)
        return false;
    for (; *text != '\0'; text++) {
        if (strchr("\\^$.|?*+()[]{}#-", *text) != NULL)
            pattern[n++] = '\\';
        pattern[n++] = *text;
    }
    pattern[n] = '\0';
    return true;
}

static enum pelago_status read_pattern_step(json_t *step, struct pl_split *split, struct pl_error *err)
{
    char escaped[2 * STRING_BYTES_MAX + 1];
    json_t *pattern = json_object_get(step, "pattern");
    const char *behavior = text_of(step, "behavior"), *regex = text_of(pattern, "Regex");
    const char *string = text_of(pattern, "String");
    bool inverted = json_is_true(json_object_get(step, "invert"));
    bool isolated = strcmp(behavior, "Isolated") == 0;
    if (!isolated && !(strcmp(behavior, "Removed") == 0 && inverted))
        return pl_fail(err, PELAGO_UNSUPPORTED,
                       "the pre_tokenizer splits with the behavior '%s', supported is Isolated", behavior);
    if (regex[0] == '\0' && (string[0] == '\0' || !escape(string, escaped)))
        return pl_fail(err, PELAGO_INVALID, "a Split of the pre_tokenizer has no usable pattern");
    return pl_split_add(split, isolated ? PL_SPLIT_BY_REGEX : PL_SPLIT_BY_REGEX_ONLY,
                        regex[0] != '\0' ? regex : escaped, err);
}

static enum pelago_status read_byte_level(json_t *step, struct pl_split *split, struct pl_error *err)
{
    json_t *use_regex =
        json_object_get(step, "use_regex"); /* missing is true: files from before it existed */
    json_t *prefix = json_object_get(step, "add_prefix_space");
    if (prefix == NULL || json_is_true(prefix))
        PL_TRY(pl_split_add(split, PL_SPLIT_PREFIX, NULL, err));
    return json_is_false(use_regex) ? PELAGO_OK : pl_split_add(split, PL_SPLIT_BY_GPT2, NULL, err);
}

/* *byte_level: this one made text into bytes, so it is the last. */
static enum pelago_status read_step(json_t *step, struct pl_split *split, bool *byte_level,
                                    struct pl_error *err)
{
    const char *type = text_of(step, "type");
    if (*byte_level)
        return pl_fail(err, PELAGO_UNSUPPORTED, "the pre_tokenizer has a '%s' after ByteLevel", type);
    if (strcmp(type, "ByteLevel") == 0) {
        *byte_level = true;
        return read_byte_level(step, split, err);
    }
    if (strcmp(type, "Split") == 0)
        return read_pattern_step(step, split, err);
    if (strcmp(type, "Digits") == 0)
        return pl_split_add(split,
                            json_is_true(json_object_get(step, "individual_digits")) ? PL_SPLIT_BY_DIGIT
                                                                                     : PL_SPLIT_BY_DIGITS,
                            NULL, err);
    return pl_fail(err, PELAGO_UNSUPPORTED,
                   "the pre_tokenizer is of the type '%s', supported are ByteLevel, Split and Digits", type);
}

enum pelago_status pl_tokjson_read_split(json_t *pre_tokenizer, struct pl_split *split, struct pl_error *err)
{
    json_t *parts = json_object_get(pre_tokenizer, "pretokenizers"), *part;
    bool byte_level = false;
    size_t i;
    if (strcmp(text_of(pre_tokenizer, "type"), "Sequence") != 0)
        PL_TRY(is_none(pre_tokenizer) ? PELAGO_OK : read_step(pre_tokenizer, split, &byte_level, err));
    else
        json_array_foreach(parts, i, part)
        {
            PL_TRY(read_step(part, split, &byte_level, err));
        }
    if (!byte_level)
        return pl_fail(err, PELAGO_UNSUPPORTED,
                       "the pre_tokenizer has no ByteLevel: this is not a byte-level tokenizer");
    return PELAGO_OK;
}

/* ---- model ---- */

enum pelago_status pl_tokjson_check_bpe(json_t *model, struct pl_error *err)
{
    static const char *const strings[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    json_t *dropout = json_object_get(model, "dropout");
    for (size_t i = 0; i < sizeof strings / sizeof strings[0]; i++)
        if (text_of(model, strings[i])[0] != '\0')
            return pl_fail(err, PELAGO_UNSUPPORTED, "the field model.%s is set, which is not supported",
                           strings[i]);
    if (json_is_true(json_object_get(model, "byte_fallback")))
        return pl_fail(err, PELAGO_UNSUPPORTED,
                       "the field model.byte_fallback is set, which is not supported");
    if (json_is_number(dropout) && json_number_value(dropout) > 0)
        return pl_fail(err, PELAGO_UNSUPPORTED, "the field model.dropout is set, which is not supported");
    return PELAGO_OK;
}

enum pelago_status pl_tokjson_check_chars(json_t *pre_tokenizer, struct pl_error *err)
{
    json_t *pattern = json_object_get(pre_tokenizer, "pattern");
    if (strcmp(text_of(pre_tokenizer, "type"), "Split") == 0 &&
        strcmp(text_of(pre_tokenizer, "behavior"), "Isolated") == 0 &&
        strcmp(text_of(pattern, "Regex"), "[\\s\\S]") == 0)
        return PELAGO_OK;
    return pl_fail(
        err, PELAGO_UNSUPPORTED,
        "the pre_tokenizer of a WordLevel tokenizer must be a Split by [\\s\\S], Isolated: by characters");
}
