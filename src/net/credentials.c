/* net/credentials.c - struct pl_credentials as bytes for a file.
 *
 *   0  8 bytes "PLCREDS1"
 *   8  u64 run, u8 role, u64 identity, u32 shard, 32 bytes fingerprint
 *      three times u32 length and bytes: key, certificate, authority
 *      u64 XXH3-64 of everything before it, seed 0
 *
 * Decoding takes nothing on trust: the key must be a key, the certificate its own and of the authority, the authority
 * the one of the fingerprint, and what the file says what the certificate says. Time is not looked at: an expired
 * certificate is still worth renewing.
 */
#include "net/pki_int.h"

#include "base/check.h"
#include "base/hash.h"

#include <openssl/crypto.h>
#include <openssl/err.h>

static const char magic[8] = {'P', 'L', 'C', 'R', 'E', 'D', 'S', '1'};
enum { FIXED_BYTES = 8 + 8 + 1 + 8 + 4 + PL_FINGERPRINT_BYTES + 3 * 4 + 8 };

size_t pl_credentials_bytes_max(void)
{
    const struct pl_credentials *c = NULL;
    return FIXED_BYTES + sizeof c->key + sizeof c->certificate + sizeof c->authority;
}

static void write_part(struct pl_writer *w, const uint8_t *bytes, uint32_t len)
{
    pl_write_u32(w, len);
    pl_write_bytes(w, bytes, len);
}

size_t pl_credentials_encode(const struct pl_credentials *c, uint8_t *out, size_t cap)
{
    struct pl_writer w = pl_writer_of(out, cap);
    pl_write_bytes(&w, magic, sizeof magic);
    pl_write_u64(&w, c->run_id);
    pl_write_u8(&w, (uint8_t)c->role);
    pl_write_u64(&w, c->identity);
    pl_write_u32(&w, c->shard);
    pl_write_bytes(&w, c->fingerprint, sizeof c->fingerprint);
    write_part(&w, c->key, c->key_len);
    write_part(&w, c->certificate, c->certificate_len);
    write_part(&w, c->authority, c->authority_len);
    pl_write_u64(&w, pl_hash64(out, pl_writer_len(&w), 0));
    pl_assert(!w.bad);
    return pl_writer_len(&w);
}

static enum pelago_status read_part(struct pl_reader *r, uint8_t *out, uint32_t cap, uint32_t *len,
                                    const char *what, struct pl_error *err)
{
    *len = pl_read_u32(r);
    if (*len > cap)
        return pl_fail(err, PELAGO_CORRUPT, "the credentials' %s has %u bytes, at most %u are allowed", what,
                       *len, cap);
    const uint8_t *bytes = pl_read_bytes(r, *len);
    if (bytes == NULL)
        return pl_fail(err, PELAGO_CORRUPT, "the credentials end within their %s", what);
    memcpy(out, bytes, *len);
    return PELAGO_OK;
}

static enum pelago_status read_fields(struct pl_credentials *c, const uint8_t *bytes, size_t len,
                                      struct pl_error *err)
{
    struct pl_reader r = pl_reader_of(bytes, len);
    const uint8_t *m = pl_read_bytes(&r, sizeof magic);
    if (m == NULL || memcmp(m, magic, sizeof magic) != 0)
        return pl_fail(err, PELAGO_CORRUPT, "these are no credentials: they do not begin with PLCREDS1");
    if (len < FIXED_BYTES || pl_get_le(bytes + len - 8, 8) != pl_hash64(bytes, len - 8, 0))
        return pl_fail(err, PELAGO_CORRUPT, "the credentials are damaged: their checksum does not fit");
    r.end -= 8;
    c->run_id = pl_read_u64(&r);
    uint8_t role = pl_read_u8(&r);
    c->identity = pl_read_u64(&r);
    c->shard = pl_read_u32(&r);
    memcpy(c->fingerprint, pl_read_bytes(&r, sizeof c->fingerprint), sizeof c->fingerprint);
    if (role > PL_ROLE_OPERATOR)
        return pl_fail(err, PELAGO_CORRUPT, "the credentials' role is %u, at most %u is known",
                       (unsigned)role, (unsigned)PL_ROLE_OPERATOR);
    c->role = (enum pl_role)role;
    PL_TRY(read_part(&r, c->key, sizeof c->key, &c->key_len, "key", err));
    PL_TRY(read_part(&r, c->certificate, sizeof c->certificate, &c->certificate_len, "certificate", err));
    PL_TRY(read_part(&r, c->authority, sizeof c->authority, &c->authority_len, "authority", err));
    if (pl_reader_left(&r) != 0)
        return pl_fail(err, PELAGO_CORRUPT, "the credentials have %lu bytes too many",
                       (uint64_t)pl_reader_left(&r));
    return PELAGO_OK;
}

static enum pelago_status check_authority(const struct pl_credentials *c, struct pl_error *err)
{
    uint8_t found[PL_FINGERPRINT_BYTES];
    if (c->authority_len == 0)
        return c->certificate_len == 0 ? PELAGO_OK
                                       : pl_fail(err, PELAGO_CORRUPT, "the credentials lack their authority");
    pl_pki_fingerprint(c->authority, c->authority_len, found);
    X509 *x = pl_pki_load_certificate(c->authority, c->authority_len);
    bool good = x != NULL && memcmp(found, c->fingerprint, sizeof found) == 0;
    X509_free(x);
    ERR_clear_error();
    return good ? PELAGO_OK
                : pl_fail(err, PELAGO_CORRUPT,
                          "the credentials' authority is not the one of their fingerprint");
}

/* An authority's own credentials hold its certificate twice; it must be for the key. */
static enum pelago_status check_self(const struct pl_credentials *c, struct pl_error *err)
{
    EVP_PKEY *key = pl_pki_load_key(c->key, c->key_len);
    X509 *x = pl_pki_load_certificate(c->certificate, c->certificate_len);
    struct pl_pki_name name;
    bool good = key != NULL && x != NULL && X509_check_private_key(x, key) == 1 &&
                c->certificate_len == c->authority_len &&
                memcmp(c->certificate, c->authority, c->authority_len) == 0 &&
                pl_pki_read_name(x, &name) == PELAGO_OK && name.role == PL_ROLE_NONE &&
                name.run_id == c->run_id;
    X509_free(x);
    EVP_PKEY_free(key);
    ERR_clear_error();
    return good ? PELAGO_OK
                : pl_fail(err, PELAGO_CORRUPT, "the authority's certificate and key do not fit together");
}

static enum pelago_status check(const struct pl_credentials *c, struct pl_error *err)
{
    EVP_PKEY *key = pl_pki_load_key(c->key, c->key_len);
    EVP_PKEY_free(key);
    ERR_clear_error();
    if (key == NULL)
        return pl_fail(err, PELAGO_CORRUPT, "the credentials' key is no Ed25519 key");
    PL_TRY(check_authority(c, err));
    if (c->certificate_len == 0)
        return PELAGO_OK;
    if (c->role == PL_ROLE_NONE)
        return check_self(c, err);
    struct pl_credentials again = *c;
    enum pelago_status st = pl_pki_accept(&again, c->certificate, c->certificate_len, err);
    OPENSSL_cleanse(again.key, sizeof again.key);
    if (st != PELAGO_OK)
        return st;
    if (again.certificate_len != c->certificate_len || again.run_id != c->run_id || again.role != c->role ||
        again.identity != c->identity || again.shard != c->shard)
        return pl_fail(err, PELAGO_CORRUPT, "the credentials say something else than their certificate");
    return PELAGO_OK;
}

enum pelago_status pl_credentials_decode(struct pl_credentials *c, const uint8_t *bytes, size_t len,
                                         struct pl_error *err)
{
    *c = (struct pl_credentials){0};
    enum pelago_status st = read_fields(c, bytes, len, err);
    if (st == PELAGO_OK)
        st = check(c, err);
    if (st != PELAGO_OK)
        OPENSSL_cleanse(c, sizeof *c);
    return st;
}
