/* net/pki_int.h - what pki*.c, credentials.c and tls.c share: OpenSSL's objects behind struct pl_credentials.
 *
 * A chain has two links here, never more: a certificate and the authority that signed it. What a certificate says is
 * one URI (struct pl_pki_name); everything else in it is there for the verification alone.
 */
#ifndef PL_NET_PKI_INT_H
#define PL_NET_PKI_INT_H

#include "net/pki.h"

#include <openssl/evp.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

enum { PL_PKI_URI_MAX = 80 }; /* with the final zero */

/* pelago://RUN/learner/7, pelago://RUN/operator/3, pelago://RUN/shard/NUMBER/IDENTITY; RUN is 16 hex digits. */
struct pl_pki_name {
    uint64_t run_id;
    enum pl_role role;
    uint64_t identity;
    uint32_t shard;
};

void pl_pki_uri_print(const struct pl_pki_name *name, char out[static PL_PKI_URI_MAX]);
/* INVALID for anything pl_pki_uri_print would not write. */
enum pelago_status pl_pki_uri_parse(const char *text, size_t len, struct pl_pki_name *name);

/* "out of memory" as NOMEM, anything else of OpenSSL's queue as a sentence that begins with what. Empties the queue. */
enum pelago_status pl_pki_fail(struct pl_error *err, const char *what);

/* Objects from bytes; NULL when they are no such thing, or followed by others. */
EVP_PKEY *pl_pki_load_key(const uint8_t *der, uint32_t len);
X509 *pl_pki_load_certificate(const uint8_t *der, uint32_t len);
/* The first certificate of several; *used is its length. */
X509 *pl_pki_load_first(const uint8_t *der, uint32_t len, uint32_t *used);

void pl_pki_fingerprint(const uint8_t *authority, uint32_t len, uint8_t out[static PL_FINGERPRINT_BYTES]);

/* Whether the certificate is signed by this authority, for a use (X509_PURPOSE_SSL_CLIENT or _SERVER), and at this time
 * where check_time says so. Returns X509_V_OK or the X509_V_ERR of the fault. */
int pl_pki_verify(X509 *certificate, X509 *authority, int purpose, bool check_time);
/* What a certificate says; INVALID when it does not say it in our way. */
enum pelago_status pl_pki_read_name(const X509 *certificate, struct pl_pki_name *name);

#endif
