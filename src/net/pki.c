/* net/pki.c - keys, requests and certificates; see pki.h. Ed25519 throughout.
 *
 * The authority's certificate has no end in practice (9999): the run ends before it. Everybody else's begins an hour
 * before it was made, because the shard that judges it may not be the one that made it.
 */
#include "net/pki_int.h"

#include "base/check.h"
#include "base/fmt.h"
#include "base/num.h"

#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>

enum { BACKDATE_S = 3600, SERIAL_BITS = 127 };
#define GRANT_SECONDS_MAX (UINT64_C(100) * 366 * 86400)

void pl_random(void *out, size_t n)
{
    pl_assert(n <= 1 << 20);
    pl_assert(RAND_bytes(out, (int)n) == 1);
}

bool pl_secret_equal(const uint8_t *a, const uint8_t *b, size_t n)
{
    return CRYPTO_memcmp(a, b, n) == 0;
}

void pl_sha256(const void *bytes, size_t len, uint8_t out[static 32])
{
    unsigned n = 0;
    pl_assert(EVP_Digest(bytes, len, out, &n, EVP_sha256(), NULL) == 1 && n == 32);
}

void pl_pki_fingerprint(const uint8_t *authority, uint32_t len, uint8_t out[static PL_FINGERPRINT_BYTES])
{
    pl_sha256(authority, len, out);
}

enum pelago_status pl_pki_fail(struct pl_error *err, const char *what)
{
    unsigned long code = ERR_peek_last_error();
    const char *reason = ERR_reason_error_string(code);
    ERR_clear_error();
    if (ERR_GET_REASON(code) == ERR_R_MALLOC_FAILURE)
        return pl_fail(err, PELAGO_NOMEM, "%s: out of memory", what);
    return pl_fail(err, PELAGO_INVALID, "%s: %s", what,
                   reason != NULL ? reason : "the library did not say why");
}

/* PKCS 8 of an Ed25519 key as everybody writes it (RFC 8410): this, and the 32 bytes of the key. */
static const uint8_t plain_key[16] = {0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20};
enum { KEY_BYTES = 32 };

EVP_PKEY *pl_pki_load_key(const uint8_t *der, uint32_t len)
{
    /* OpenSSL's general decoder takes ten times as long, and every dial needs this. */
    if (len == sizeof plain_key + KEY_BYTES && memcmp(der, plain_key, sizeof plain_key) == 0)
        return EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, NULL, der + sizeof plain_key, KEY_BYTES);
    const uint8_t *at = der;
    PKCS8_PRIV_KEY_INFO *info = d2i_PKCS8_PRIV_KEY_INFO(NULL, &at, (long)len);
    EVP_PKEY *key = info != NULL && at == der + len ? EVP_PKCS82PKEY(info) : NULL;
    PKCS8_PRIV_KEY_INFO_free(info);
    if (key != NULL && !EVP_PKEY_is_a(key, "ED25519")) {
        EVP_PKEY_free(key);
        key = NULL;
    }
    return key;
}

X509 *pl_pki_load_first(const uint8_t *der, uint32_t len, uint32_t *used)
{
    const uint8_t *at = der;
    X509 *x = d2i_X509(NULL, &at, (long)len);
    *used = x != NULL ? (uint32_t)(at - der) : 0;
    return x;
}

X509 *pl_pki_load_certificate(const uint8_t *der, uint32_t len)
{
    uint32_t used;
    X509 *x = pl_pki_load_first(der, len, &used);
    if (x != NULL && used != len) {
        X509_free(x);
        x = NULL;
    }
    return x;
}

static enum pelago_status store_key(struct pl_credentials *c, const EVP_PKEY *key, struct pl_error *err)
{
    PKCS8_PRIV_KEY_INFO *info = EVP_PKEY2PKCS8(key);
    uint8_t *der = NULL;
    int len = info != NULL ? i2d_PKCS8_PRIV_KEY_INFO(info, &der) : -1;
    PKCS8_PRIV_KEY_INFO_free(info);
    if (len <= 0)
        return pl_pki_fail(err, "the new key cannot be written");
    pl_assert((size_t)len <= sizeof c->key);
    memcpy(c->key, der, (size_t)len);
    c->key_len = (uint32_t)len;
    OPENSSL_clear_free(der, (size_t)len);
    return PELAGO_OK;
}

enum pelago_status pl_pki_new_key(struct pl_credentials *c, struct pl_error *err)
{
    *c = (struct pl_credentials){0};
    EVP_PKEY *key = EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");
    if (key == NULL)
        return pl_pki_fail(err, "no key could be made");
    enum pelago_status st = store_key(c, key, err);
    EVP_PKEY_free(key);
    return st;
}

static bool add_extension(X509 *x, X509 *issuer, int nid, const char *value)
{
    X509V3_CTX ctx;
    X509V3_set_ctx(&ctx, issuer, x, NULL, NULL, 0);
    X509_EXTENSION *e = X509V3_EXT_conf_nid(NULL, &ctx, nid, value);
    bool ok = e != NULL && X509_add_ext(x, e, -1) == 1;
    X509_EXTENSION_free(e);
    return ok;
}

static bool set_subject(X509 *x, const struct pl_pki_name *name)
{
    char uri[PL_PKI_URI_MAX], san[PL_PKI_URI_MAX + 8];
    pl_pki_uri_print(name, uri);
    pl_fmt(san, sizeof san, "URI:%s", uri);
    return X509_NAME_add_entry_by_txt(X509_get_subject_name(x), "CN", MBSTRING_ASC, (const uint8_t *)uri + 9,
                                      -1, -1, 0) == 1 &&
           add_extension(x, x, NID_subject_alt_name, san);
}

static bool set_serial(X509 *x)
{
    BIGNUM *bn = BN_new();
    bool ok = bn != NULL && BN_rand(bn, SERIAL_BITS, BN_RAND_TOP_ONE, BN_RAND_BOTTOM_ANY) == 1 &&
              BN_to_ASN1_INTEGER(bn, X509_get_serialNumber(x)) != NULL;
    BN_free(bn);
    return ok;
}

static uint64_t wall_seconds(void)
{
    struct timespec ts;
    pl_assert(clock_gettime(CLOCK_REALTIME, &ts) == 0);
    return ts.tv_sec > 0 ? (uint64_t)ts.tv_sec : 0;
}

static bool set_validity(X509 *x, uint64_t seconds)
{
    uint64_t now = wall_seconds(), end = now + pl_min64(seconds, GRANT_SECONDS_MAX);
    return ASN1_TIME_set(X509_getm_notBefore(x), (time_t)pl_sub_sat(now, BACKDATE_S)) != NULL &&
           ASN1_TIME_set(X509_getm_notAfter(x), (time_t)end) != NULL;
}

/* What both kinds of certificate share. */
static bool fill(X509 *x, X509 *issuer, EVP_PKEY *key, const struct pl_pki_name *name)
{
    return X509_set_version(x, X509_VERSION_3) == 1 && set_serial(x) && X509_set_pubkey(x, key) == 1 &&
           set_subject(x, name) && X509_set_issuer_name(x, X509_get_subject_name(issuer)) == 1 &&
           add_extension(x, issuer, NID_subject_key_identifier, "hash") &&
           add_extension(x, issuer, NID_authority_key_identifier, "keyid:always");
}

/* Appends a certificate to out; *len is how much of it is used. */
static enum pelago_status append(X509 *x, uint8_t *out, uint32_t cap, uint32_t *len, struct pl_error *err)
{
    int n = i2d_X509(x, NULL);
    if (n <= 0)
        return pl_pki_fail(err, "the certificate cannot be written");
    if ((uint32_t)n > cap - *len)
        return pl_fail(err, PELAGO_LIMIT, "a certificate of %u bytes does not fit into %u", (unsigned)n,
                       cap - *len);
    uint8_t *at = out + *len;
    (void)i2d_X509(x, &at);
    *len += (uint32_t)n;
    return PELAGO_OK;
}

static bool fill_authority(X509 *x, EVP_PKEY *key, uint64_t run_id)
{
    const struct pl_pki_name name = {.run_id = run_id, .role = PL_ROLE_NONE};
    return fill(x, x, key, &name) &&
           add_extension(x, x, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") &&
           add_extension(x, x, NID_key_usage, "critical,keyCertSign") &&
           ASN1_TIME_set_string(X509_getm_notBefore(x), "19700101000000Z") == 1 &&
           ASN1_TIME_set_string(X509_getm_notAfter(x), "99991231235959Z") == 1 && X509_sign(x, key, NULL) > 0;
}

enum pelago_status pl_pki_new_authority(struct pl_credentials *ca, uint64_t run_id, struct pl_error *err)
{
    PL_TRY(pl_pki_new_key(ca, err));
    EVP_PKEY *key = pl_pki_load_key(ca->key, ca->key_len);
    X509 *x = X509_new();
    enum pelago_status st;
    if (key == NULL || x == NULL || !fill_authority(x, key, run_id))
        st = pl_pki_fail(err, "no authority could be made");
    else
        st = append(x, ca->certificate, sizeof ca->certificate, &ca->certificate_len, err);
    X509_free(x);
    EVP_PKEY_free(key);
    PL_TRY(st);
    ca->run_id = run_id;
    memcpy(ca->authority, ca->certificate, ca->certificate_len);
    ca->authority_len = ca->certificate_len;
    pl_pki_fingerprint(ca->authority, ca->authority_len, ca->fingerprint);
    return PELAGO_OK;
}

enum pelago_status pl_pki_request(const struct pl_credentials *c, uint8_t *out, uint32_t cap, uint32_t *len,
                                  struct pl_error *err)
{
    EVP_PKEY *key = pl_pki_load_key(c->key, c->key_len);
    X509_REQ *r = X509_REQ_new();
    enum pelago_status st = PELAGO_OK;
    int n = -1;
    if (key != NULL && r != NULL && X509_REQ_set_version(r, X509_REQ_VERSION_1) == 1 &&
        X509_REQ_set_pubkey(r, key) == 1 && X509_REQ_sign(r, key, NULL) > 0)
        n = i2d_X509_REQ(r, NULL);
    if (n <= 0)
        st = pl_pki_fail(err, "the request for a certificate cannot be made");
    else if ((uint32_t)n > cap)
        st = pl_fail(err, PELAGO_LIMIT, "a request of %u bytes does not fit into %u", (unsigned)n, cap);
    else
        (void)i2d_X509_REQ(r, &out);
    *len = st == PELAGO_OK ? (uint32_t)n : 0;
    X509_REQ_free(r);
    EVP_PKEY_free(key);
    return st;
}

/* The public key of a request, where the sender has proven to hold the private one; else NULL. */
static EVP_PKEY *requested_key(const uint8_t *request, uint32_t len)
{
    const uint8_t *at = request;
    X509_REQ *r = d2i_X509_REQ(NULL, &at, (long)len);
    EVP_PKEY *key = r != NULL && at == request + len ? X509_REQ_get_pubkey(r) : NULL;
    if (key != NULL && (!EVP_PKEY_is_a(key, "ED25519") || X509_REQ_verify(r, key) != 1)) {
        EVP_PKEY_free(key);
        key = NULL;
    }
    X509_REQ_free(r);
    ERR_clear_error();
    return key;
}

static enum pelago_status sign(X509 *x, X509 *authority, EVP_PKEY *ca_key, EVP_PKEY *key,
                               const struct pl_pki_name *name, uint64_t seconds, struct pl_error *err)
{
    const char *use = name->role == PL_ROLE_SHARD ? "serverAuth,clientAuth" : "clientAuth";
    if (x == NULL || authority == NULL || ca_key == NULL || !set_validity(x, seconds) ||
        !fill(x, authority, key, name) ||
        !add_extension(x, authority, NID_basic_constraints, "critical,CA:FALSE") ||
        !add_extension(x, authority, NID_key_usage, "critical,digitalSignature") ||
        !add_extension(x, authority, NID_ext_key_usage, use) || X509_sign(x, ca_key, NULL) <= 0)
        return pl_pki_fail(err, "the certificate cannot be made");
    return PELAGO_OK;
}

enum pelago_status pl_pki_issue(const struct pl_credentials *ca, const uint8_t *request, uint32_t request_len,
                                const struct pl_grant *grant, uint8_t *out, uint32_t cap, uint32_t *len,
                                struct pl_error *err)
{
    pl_assert(grant->role != PL_ROLE_NONE && (grant->role == PL_ROLE_SHARD || grant->identity != 0));
    pl_assert(grant->shard < PL_SHARDS_MAX);
    *len = 0;
    EVP_PKEY *key = requested_key(request, request_len);
    if (key == NULL)
        return pl_fail(
            err, PELAGO_INVALID,
            "this is no request for a certificate: PKCS 10 in DER is expected, of an Ed25519 key and "
            "signed by it");
    EVP_PKEY *ca_key = pl_pki_load_key(ca->key, ca->key_len);
    X509 *authority = pl_pki_load_certificate(ca->certificate, ca->certificate_len), *x = X509_new();
    const struct pl_pki_name name = {ca->run_id, grant->role, grant->identity, grant->shard};
    enum pelago_status st = sign(x, authority, ca_key, key, &name, grant->seconds, err);
    if (st == PELAGO_OK)
        st = append(x, out, cap, len, err);
    if (st == PELAGO_OK)
        st = append(authority, out, cap, len, err);
    X509_free(x);
    X509_free(authority);
    EVP_PKEY_free(ca_key);
    EVP_PKEY_free(key);
    return st;
}

/* What must be true of a certificate before c takes it; sets what it says. */
static enum pelago_status check_own(struct pl_credentials *c, X509 *x, X509 *authority, struct pl_error *err)
{
    struct pl_pki_name name;
    EVP_PKEY *key = pl_pki_load_key(c->key, c->key_len);
    bool fits = key != NULL && X509_check_private_key(x, key) == 1;
    EVP_PKEY_free(key);
    ERR_clear_error();
    if (!fits)
        return pl_fail(err, PELAGO_INVALID, "the certificate is for another key than this one");
    int why = pl_pki_verify(x, authority, X509_PURPOSE_SSL_CLIENT, false);
    if (why != X509_V_OK)
        return pl_fail(err, PELAGO_INVALID, "the certificate is not of this run's authority: %s",
                       X509_verify_cert_error_string(why));
    if (pl_pki_read_name(x, &name) != PELAGO_OK || name.role == PL_ROLE_NONE)
        return pl_fail(err, PELAGO_INVALID, "the certificate does not say whose it is");
    c->run_id = name.run_id;
    c->role = name.role;
    c->identity = name.identity;
    c->shard = name.shard;
    return PELAGO_OK;
}

/* The authority's certificate: as it came behind the other one, else as c knows it. Checked against the fingerprint. */
static enum pelago_status take_authority(struct pl_credentials *c, const uint8_t *der, uint32_t len,
                                         struct pl_error *err)
{
    uint8_t found[PL_FINGERPRINT_BYTES];
    if (len == 0 && c->authority_len == 0)
        return pl_fail(err, PELAGO_INVALID, "the authority's certificate is missing behind the certificate");
    if (len == 0)
        return PELAGO_OK;
    pl_pki_fingerprint(der, len, found);
    if (len > sizeof c->authority || memcmp(found, c->fingerprint, sizeof found) != 0)
        return pl_fail(
            err, PELAGO_INVALID,
            "the certificate comes from another authority than the token's: this is not the run it was "
            "made for");
    memcpy(c->authority, der, len);
    c->authority_len = len;
    return PELAGO_OK;
}

enum pelago_status pl_pki_accept(struct pl_credentials *c, const uint8_t *certificate, uint32_t len,
                                 struct pl_error *err)
{
    uint32_t used;
    struct pl_credentials next = *c;
    X509 *x = pl_pki_load_first(certificate, len, &used);
    if (x == NULL) {
        ERR_clear_error();
        return pl_fail(err, PELAGO_INVALID, "this is no certificate: X.509 in DER is expected");
    }
    X509 *authority = NULL;
    enum pelago_status st = take_authority(&next, certificate + used, len - used, err);
    if (st == PELAGO_OK) {
        authority = pl_pki_load_certificate(next.authority, next.authority_len);
        st = authority != NULL ? check_own(&next, x, authority, err)
                               : pl_pki_fail(err, "the authority's certificate cannot be read");
    }
    X509_free(authority);
    X509_free(x);
    if (st == PELAGO_OK && used > sizeof next.certificate)
        st = pl_fail(err, PELAGO_LIMIT, "the certificate has %u bytes, at most %u are kept", used,
                     (unsigned)sizeof next.certificate);
    if (st == PELAGO_OK) {
        memcpy(next.certificate, certificate, used);
        next.certificate_len = used;
        *c = next;
    }
    OPENSSL_cleanse(next.key, sizeof next.key);
    return st;
}

/* Both ends of the difference come from one clock: time(), which OpenSSL would ask, lags behind it by up to a tick. */
uint64_t pl_pki_seconds_left(const struct pl_credentials *c)
{
    X509 *x = c->certificate_len > 0 ? pl_pki_load_certificate(c->certificate, c->certificate_len) : NULL;
    ASN1_TIME *now = ASN1_TIME_set(NULL, (time_t)wall_seconds());
    int days = 0, seconds = 0;
    bool known = x != NULL && now != NULL && ASN1_TIME_diff(&days, &seconds, now, X509_get0_notAfter(x)) == 1;
    ASN1_TIME_free(now);
    X509_free(x);
    ERR_clear_error();
    int64_t left = (int64_t)days * 86400 + seconds;
    return known && left > 0 ? (uint64_t)left : 0;
}
