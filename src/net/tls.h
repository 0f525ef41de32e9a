/* net/tls.h - TLS 1.3 as pelago uses it: contexts, who may come in, and sentences for what went wrong.
 *
 * Only TLS 1.3, only Ed25519 and X25519, no tickets, no early data, no renegotiation, no compression; ALPN says what
 * is carried.
 * The bytes go through a BIO of our own on the plain socket: it counts them, stops a stranger after a few, never raises
 * SIGPIPE, and says whether the socket had nothing more.
 */
#ifndef PL_NET_TLS_H
#define PL_NET_TLS_H

#include "net/pki_int.h"

#include <openssl/ssl.h>

/* The socket under an SSL. */
struct pl_tls_pipe {
    int fd;
    int error;       /* errno of the last failure; 0: none */
    bool eof;        /* the peer ended the stream */
    bool starved;    /* the last read found nothing to read */
    uint64_t in_max; /* no more than this is read; then error is EMSGSIZE */
    uint64_t in, out;
    struct pl_tls_batch *batch; /* NULL: every record goes to the socket by itself */
};

/* Records on their way to the socket together: one call into the kernel for several is half of its cost. */
enum { PL_TLS_BATCH_BYTES = 8 * ((16 << 10) + 64) };
struct pl_tls_batch {
    size_t at, end;
    uint8_t bytes[PL_TLS_BATCH_BYTES];
};

/* What is expected of the peer, and what was found. */
struct pl_tls_check {
    X509 *authority;                           /* accepting side; borrowed */
    uint8_t fingerprint[PL_FINGERPRINT_BYTES]; /* dialling side */
    uint32_t expect_shard;                     /* dialling side; PL_NONE32: any */
    bool dialling;
    struct pl_pki_name name; /* found; role NONE: no certificate */
    bool expired;            /* accepting side: it was good until some time ago */
    struct pl_error why;     /* why it was refused; empty text: it was not */
};

/* What a connection carries; the two sides agree on it in the handshake (ALPN). */
enum pl_tls_kind {
    PL_TLS_OTHER = 0,
    PL_TLS_FRAMES, /* "pelago/1" */
    PL_TLS_BUNDLE, /* "pelago/1b": the first stream of a bundle (bundle.h) */
    PL_TLS_STREAM, /* "pelago/1s": one more */
};

/* What a side that dials shows of itself; both NULL: nothing. */
struct pl_tls_own {
    X509 *certificate;
    EVP_PKEY *key;
};
enum pelago_status pl_tls_own_load(struct pl_tls_own *own, const struct pl_credentials *c,
                                   struct pl_error *err);
void pl_tls_own_share(struct pl_tls_own *own, const struct pl_tls_own *with);
void pl_tls_own_release(struct pl_tls_own *own);

/* Of a side that accepts; needs a certificate of role shard and its authority. NULL with a sentence. */
SSL_CTX *pl_tls_new_listening(const struct pl_credentials *own, bool bundles, struct pl_error *err);
/* Of everybody who dials: made once for the process, since that costs more than a handshake, and never freed. Who dials
 * is said for each SSL. NULL with a sentence. */
SSL_CTX *pl_tls_dialling(struct pl_error *err);
/* NULL without memory. own and kind are of a side that dials (NULL: it shows nothing). pipe and check are borrowed for
 * the SSL's life. */
SSL *pl_tls_new(SSL_CTX *ctx, const struct pl_tls_own *own, enum pl_tls_kind kind, struct pl_tls_pipe *pipe,
                struct pl_tls_check *check);
/* Hands the batch to the socket. False: it takes no more now, or is broken (error). */
bool pl_tls_flush(struct pl_tls_pipe *pipe);

/* To be asked once the handshake is done: what did both sides mean? */
enum pl_tls_kind pl_tls_kind(const SSL *ssl);
/* Bytes that the two ends of this connection know and nobody else (RFC 8446 section 7.5). */
bool pl_tls_secret(SSL *ssl, uint8_t *out, size_t n);

/* Turns the failure of an SSL call into a sentence; open: the handshake was done before (OpenSSL has forgotten that by now);
 * who: the peer's address. Empties OpenSSL's queue. */
enum pelago_status pl_tls_explain(bool open, const struct pl_tls_pipe *pipe, const struct pl_tls_check *check,
                                  const char *who, struct pl_error *err);

#endif
