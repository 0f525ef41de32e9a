/* net/token.c - invitations as one line of text.
 *
 * "pelago1-" and base64url (RFC 4648 section 5, no padding) of: 32 bytes fingerprint, u64 number, 32 bytes secret, the
 * address, and the first 4 bytes of the SHA-256 of "pelago1-" and everything before. The checksum is for the person who
 * copies the line; nothing rests on it.
 */
#include "net/pki.h"

#include "base/check.h"
#include "net/address.h"

static const char prefix[] = "pelago1-";
static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
enum {
    PREFIX_LEN = sizeof prefix - 1,
    SUM_BYTES = 4,
    FIXED_BYTES = PL_FINGERPRINT_BYTES + 8 + PL_SECRET_BYTES,
    BODY_MAX = FIXED_BYTES + sizeof((struct pl_token *)0)->address + SUM_BYTES,
};

/* Over prefix and body; writes SUM_BYTES. */
static void checksum(const uint8_t *body, size_t len, uint8_t *out)
{
    uint8_t all[PREFIX_LEN + BODY_MAX], digest[32];
    pl_assert(len <= BODY_MAX);
    memcpy(all, prefix, PREFIX_LEN);
    memcpy(all + PREFIX_LEN, body, len);
    pl_sha256(all, PREFIX_LEN + len, digest);
    memcpy(out, digest, SUM_BYTES);
}

void pl_token_print(const struct pl_token *t, char out[static PL_TOKEN_TEXT_MAX])
{
    uint8_t body[BODY_MAX];
    struct pl_writer w = pl_writer_of(body, sizeof body);
    pl_assert(memchr(t->address, '\0', sizeof t->address) != NULL);
    pl_write_bytes(&w, t->fingerprint, sizeof t->fingerprint);
    pl_write_u64(&w, t->number);
    pl_write_bytes(&w, t->secret, sizeof t->secret);
    pl_write_bytes(&w, t->address, strlen(t->address));
    size_t covered = pl_writer_len(&w), len = covered + SUM_BYTES, n = PREFIX_LEN;
    checksum(body, covered, pl_write_room(&w, SUM_BYTES));
    memcpy(out, prefix, PREFIX_LEN);
    for (size_t i = 0; i < len; i += 3) {
        uint32_t v = 0;
        for (size_t k = 0; k < 3; k++)
            v = v << 8 | (i + k < len ? body[i + k] : 0u);
        size_t chars = len - i < 3 ? len - i + 1 : 4;
        for (size_t k = 0; k < chars; k++)
            out[n++] = digits[v >> (18 - 6 * k) & 63];
    }
    pl_assert(n < PL_TOKEN_TEXT_MAX);
    out[n] = '\0';
}

/* Bytes of the text, or 0 with a sentence. */
static size_t unpack(const char *text, size_t len, uint8_t *out, struct pl_error *err)
{
    size_t n = 0;
    uint32_t v = 0;
    unsigned bits = 0;
    for (size_t i = 0; i < len; i++) {
        const char *at = strchr(digits, text[i]);
        if (at == NULL || *at == '\0') {
            (void)pl_fail(
                err, PELAGO_INVALID,
                "character %u of the token is none that a token has: was the line copied whole, and nothing "
                "else?",
                (unsigned)(PREFIX_LEN + i + 1));
            return 0;
        }
        v = v << 6 | (uint32_t)(at - digits);
        bits += 6;
        if (bits >= 8) {
            bits -= 8;
            out[n++] = (uint8_t)(v >> bits);
        }
    }
    if (len % 4 == 1 || (v & ((1u << bits) - 1)) != 0 || n < FIXED_BYTES + SUM_BYTES) {
        (void)pl_fail(err, PELAGO_INVALID,
                      "the token is cut off: copy the whole line that pelago invite printed");
        return 0;
    }
    return n;
}

static enum pelago_status check_prefix(const char *text, struct pl_error *err)
{
    if (strncmp(text, prefix, PREFIX_LEN) == 0)
        return PELAGO_OK;
    if (strncmp(text, prefix, 6) == 0 && text[6] >= '1' && text[6] <= '9')
        return pl_fail(
            err, PELAGO_INVALID,
            "the token is of another version of pelago: this program knows those that begin with %s", prefix);
    return pl_fail(err, PELAGO_INVALID, "this is no token: one begins with %s", prefix);
}

static size_t trimmed(const char *text)
{
    size_t len = strlen(text);
    while (len > 0 && (text[len - 1] == '\n' || text[len - 1] == '\r' || text[len - 1] == ' '))
        len--;
    return len;
}

enum pelago_status pl_token_parse(const char *text, struct pl_token *t, struct pl_error *err)
{
    uint8_t body[BODY_MAX + 1], sum[SUM_BYTES];
    struct pl_address address;
    *t = (struct pl_token){0};
    size_t len = trimmed(text);
    PL_TRY(check_prefix(text, err));
    if (len - PREFIX_LEN > (BODY_MAX * 4 + 2) / 3)
        return pl_fail(err, PELAGO_INVALID, "the token is too long: was something else copied with it?");
    size_t n = unpack(text + PREFIX_LEN, len - PREFIX_LEN, body, err);
    if (n == 0)
        return PELAGO_INVALID;
    checksum(body, n - SUM_BYTES, sum);
    if (memcmp(sum, body + n - SUM_BYTES, SUM_BYTES) != 0)
        return pl_fail(err, PELAGO_INVALID,
                       "the token is mistyped or cut off: copy the whole line that pelago invite printed");
    struct pl_reader r = pl_reader_of(body, n - SUM_BYTES);
    memcpy(t->fingerprint, pl_read_bytes(&r, sizeof t->fingerprint), sizeof t->fingerprint);
    t->number = pl_read_u64(&r);
    memcpy(t->secret, pl_read_bytes(&r, sizeof t->secret), sizeof t->secret);
    size_t address_len = pl_reader_left(&r);
    if (address_len >= sizeof t->address || (address_len > 0 && memchr(r.at, '\0', address_len) != NULL))
        return pl_fail(err, PELAGO_INVALID, "the token's address is none");
    memcpy(t->address, r.at, address_len);
    return pl_address_parse(t->address, &address, err);
}
