/* net/pki.h - a run's own authority: keys, certificates, invitations. Nobody needs an openssl command.
 *
 * The home shard makes an authority (Ed25519, self-signed) when the run begins. Everybody who takes part has a key of
 * his own, which never leaves his disk, and a certificate of that authority with role and identity in it:
 * SAN URI pelago://RUN/learner/7, pelago://RUN/operator/3, pelago://RUN/shard/1/9 (shard 1, identity 9). A token is one
 * line of text that holds address, the authority's fingerprint and a secret: whoever has it can enrol, and knows the
 * right syncer from a wrong one. Certificates are short-lived and judged by the syncer's clock alone: learners' clocks
 * do not matter.
 */
#ifndef PL_NET_PKI_H
#define PL_NET_PKI_H

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

enum pl_role { PL_ROLE_NONE = 0, PL_ROLE_LEARNER = 1, PL_ROLE_SHARD = 2, PL_ROLE_OPERATOR = 3 };

enum {
    PL_FINGERPRINT_BYTES = 32, /* SHA-256 of the authority's certificate in DER */
    PL_TOKEN_TEXT_MAX = 512,   /* with the final zero */
};

/* Who somebody is. Buffers hold DER; files are the caller's affair (PEM is not used). */
struct pl_credentials {
    uint64_t run_id;
    enum pl_role role;
    uint64_t identity;
    uint32_t shard;
    uint8_t fingerprint[PL_FINGERPRINT_BYTES]; /* of the authority */
    uint8_t key[512];                          /* private key, PKCS 8 */
    uint32_t key_len;
    uint8_t certificate[PL_CERTIFICATE_BYTES_MAX]; /* own; empty before enrolment */
    uint32_t certificate_len;
    uint8_t
        authority[PL_CERTIFICATE_BYTES_MAX]; /* its certificate; empty where only the fingerprint is known */
    uint32_t authority_len;
};

/* A new key; everything else empty. */
enum pelago_status pl_pki_new_key(struct pl_credentials *c, struct pl_error *err);

/* The run's authority: key and self-signed certificate in *ca, with its fingerprint. */
enum pelago_status pl_pki_new_authority(struct pl_credentials *ca, uint64_t run_id, struct pl_error *err);

/* A request for c's key. */
enum pelago_status pl_pki_request(const struct pl_credentials *c, uint8_t *out, uint32_t cap, uint32_t *len,
                                  struct pl_error *err);

struct pl_grant {
    enum pl_role role;
    uint64_t identity;
    uint32_t shard;
    uint64_t seconds; /* of validity from now */
};
/* Signs a request (its own signature is checked). INVALID for a request that is none. What comes out is the
 * certificate and, behind it, the authority's: whoever knows the fingerprint alone can then check both. */
enum pelago_status pl_pki_issue(const struct pl_credentials *ca, const uint8_t *request, uint32_t request_len,
                                const struct pl_grant *grant, uint8_t *out, uint32_t cap, uint32_t *len,
                                struct pl_error *err);

/* Takes what pl_pki_issue gave: it must be of the authority with c's fingerprint, for c's key. Sets role, identity, shard,
 * run_id, certificate, authority; changes nothing when it fails. The date is not looked at. */
enum pelago_status pl_pki_accept(struct pl_credentials *c, const uint8_t *certificate, uint32_t len,
                                 struct pl_error *err);
/* Seconds until the certificate expires by this machine's clock; 0 when it has. */
uint64_t pl_pki_seconds_left(const struct pl_credentials *c);

/* Credentials as bytes for a file that only its owner may read (mode 0600 is the caller's to set). */
size_t pl_credentials_bytes_max(void);
size_t pl_credentials_encode(const struct pl_credentials *c, uint8_t *out, size_t cap);
enum pelago_status pl_credentials_decode(struct pl_credentials *c, const uint8_t *bytes, size_t len,
                                         struct pl_error *err);

/* A token: "pelago1-" and letters, digits, '-' and '_'. */
struct pl_token {
    char address[256]; /* "host:port" of the home shard */
    uint8_t fingerprint[PL_FINGERPRINT_BYTES];
    uint64_t number;
    uint8_t secret[PL_SECRET_BYTES];
};
void pl_token_print(const struct pl_token *t, char out[static PL_TOKEN_TEXT_MAX]);
/* INVALID with a sentence: cut off, mistyped (it has a checksum), of another version. */
enum pelago_status pl_token_parse(const char *text, struct pl_token *t, struct pl_error *err);

/* Random bytes for secrets, nonces, run ids. */
void pl_random(void *out, size_t n);
/* The same time for equal and different bytes. */
bool pl_secret_equal(const uint8_t *a, const uint8_t *b, size_t n);
void pl_sha256(const void *bytes, size_t len, uint8_t out[static 32]);

#endif
