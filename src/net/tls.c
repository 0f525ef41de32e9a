/* net/tls.c - see tls.h. */
#include "net/tls.h"

#include "base/check.h"
#include "base/num.h"

#include <errno.h>
#include <openssl/err.h>
#include <sys/socket.h>

/* Names of what is carried, with their lengths, in the order in which a side that accepts prefers them. */
static const uint8_t names[] = "\x9pelago/1b\x9pelago/1s\x8pelago/1";
enum { NAME_BYTES = 10, FRAMES_AT = 2 * NAME_BYTES, NAMES_BYTES = sizeof names - 1 };
static const char suites[] = "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256";
enum { CERTIFICATES_MAX = 2 * PL_CERTIFICATE_BYTES_MAX };

static bool is_transient(int code)
{
    return code == EAGAIN || code == EINTR;
}

static int pipe_read(BIO *bio, char *out, int len)
{
    struct pl_tls_pipe *p = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    if (p->in >= p->in_max) {
        p->error = EMSGSIZE;
        return -1;
    }
    size_t want = (size_t)pl_min64((uint64_t)len, p->in_max - p->in);
    ssize_t n = recv(p->fd, out, want, 0);
    if (n > 0) {
        p->in += (uint64_t)n;
        p->starved = false;
    } else if (n == 0) {
        p->eof = true;
    } else if (is_transient(errno)) {
        p->starved = errno == EAGAIN;
        BIO_set_retry_read(bio);
    } else {
        p->error = errno;
    }
    return (int)n;
}

/* What the socket took; less than 0: nothing, and retry says whether it may later. */
static ssize_t push(struct pl_tls_pipe *p, const void *bytes, size_t len, bool *retry)
{
    ssize_t n = send(p->fd, bytes, len, MSG_NOSIGNAL);
    *retry = n < 0 && is_transient(errno);
    if (n > 0)
        p->out += (uint64_t)n;
    else if (n < 0 && !*retry)
        p->error = errno;
    return n;
}

bool pl_tls_flush(struct pl_tls_pipe *p)
{
    struct pl_tls_batch *b = p->batch;
    bool retry;
    while (b != NULL && b->at < b->end) {
        ssize_t n = push(p, b->bytes + b->at, b->end - b->at, &retry);
        if (n < 0)
            return false;
        b->at += (size_t)n;
    }
    if (b != NULL)
        b->at = b->end = 0;
    return true;
}

static int pipe_write(BIO *bio, const char *bytes, int len)
{
    struct pl_tls_pipe *p = BIO_get_data(bio);
    struct pl_tls_batch *b = p->batch;
    bool retry = false;
    BIO_clear_retry_flags(bio);
    if (b != NULL && sizeof b->bytes - b->end < (size_t)len && !pl_tls_flush(p)) {
        if (p->error == 0)
            BIO_set_retry_write(bio);
        return -1;
    }
    if (b != NULL && (size_t)len <= sizeof b->bytes) {
        memcpy(b->bytes + b->end, bytes, (size_t)len);
        b->end += (size_t)len;
        return len;
    }
    ssize_t n = push(p, bytes, (size_t)len, &retry);
    if (retry)
        BIO_set_retry_write(bio);
    return (int)n;
}

static long pipe_control(BIO *bio, int what, long number, void *pointer)
{
    const struct pl_tls_pipe *p = BIO_get_data(bio);
    (void)number;
    (void)pointer;
    if (what == BIO_CTRL_FLUSH)
        return 1;
    return what == BIO_CTRL_EOF && p->eof ? 1 : 0;
}

static int pipe_create(BIO *bio)
{
    BIO_set_init(bio, 1);
    return 1;
}

/* One table for the whole process: connections may outlive whoever made them. */
static BIO_METHOD *pipe_method;
static CRYPTO_ONCE pipe_once = CRYPTO_ONCE_STATIC_INIT;

static void make_pipe_method(void)
{
    BIO_METHOD *m = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "pelago socket");
    if (m == NULL || BIO_meth_set_read(m, pipe_read) != 1 || BIO_meth_set_write(m, pipe_write) != 1 ||
        BIO_meth_set_ctrl(m, pipe_control) != 1 || BIO_meth_set_create(m, pipe_create) != 1)
        return;
    pipe_method = m;
}

/* The peer's certificate among those it sent that is the authority we pin; NULL: none. */
static X509 *find_pinned(X509_STORE_CTX *store, const uint8_t *fingerprint)
{
    STACK_OF(X509) *chain = X509_STORE_CTX_get0_untrusted(store);
    for (int i = 0; i < sk_X509_num(chain); i++) {
        uint8_t found[EVP_MAX_MD_SIZE];
        unsigned n = 0;
        X509 *x = sk_X509_value(chain, i);
        if (X509_digest(x, EVP_sha256(), found, &n) == 1 && n == PL_FINGERPRINT_BYTES &&
            pl_secret_equal(found, fingerprint, n))
            return x;
    }
    return NULL;
}

static int refuse(struct pl_tls_check *check, int code, enum pelago_status status, const char *text)
{
    (void)pl_fail(&check->why, status, "%s", text);
    return code;
}

/* The dialling side: the authority we pin, a shard of it, the shard we meant. No clock in it. */
static int check_shard(X509_STORE_CTX *store, struct pl_tls_check *check)
{
    X509 *leaf = X509_STORE_CTX_get0_cert(store), *authority = find_pinned(store, check->fingerprint);
    if (authority == NULL)
        return refuse(
            check, X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY, PELAGO_INVALID,
            "this is not the syncer the token was made for: it belongs to another run; ask for a new token");
    int code = pl_pki_verify(leaf, authority, X509_PURPOSE_SSL_SERVER, false);
    if (code != X509_V_OK)
        return refuse(
            check, code, PELAGO_INVALID,
            "this is not the syncer the token was made for: its certificate is not of the run's authority");
    if (pl_pki_read_name(leaf, &check->name) != PELAGO_OK || check->name.role != PL_ROLE_SHARD)
        return refuse(check, X509_V_ERR_INVALID_PURPOSE, PELAGO_INVALID,
                      "this is a member of the run, but no syncer: its certificate is not one of a shard");
    if (check->expect_shard != PL_NONE32 && check->name.shard != check->expect_shard) {
        (void)pl_fail(&check->why, PELAGO_INVALID, "this is shard %u of the run, shard %u was expected here",
                      check->name.shard, check->expect_shard);
        return X509_V_ERR_SUBJECT_ISSUER_MISMATCH;
    }
    return X509_V_OK;
}

/* The accepting side: a certificate of our authority, valid by our clock. One that has run out is taken too, and marked: its
 * owner may have been away for longer than it lasts, and must be able to renew it. */
static int check_member(X509_STORE_CTX *store, struct pl_tls_check *check)
{
    X509 *leaf = X509_STORE_CTX_get0_cert(store);
    int code = pl_pki_verify(leaf, check->authority, X509_PURPOSE_SSL_CLIENT, true);
    if (code == X509_V_ERR_CERT_HAS_EXPIRED) {
        check->expired = true;
        code = pl_pki_verify(leaf, check->authority, X509_PURPOSE_SSL_CLIENT, false);
    }
    if (code == X509_V_ERR_CERT_NOT_YET_VALID)
        /* The alert for expired ones, which the peer reads as a question of clocks; there is none of its own. */
        return refuse(check, X509_V_ERR_CERT_HAS_EXPIRED, PELAGO_STALE,
                      "its certificate is not valid yet by this machine's clock");
    if (code != X509_V_OK)
        return refuse(check, code, PELAGO_INVALID, "its certificate is not of this run's authority");
    if (pl_pki_read_name(leaf, &check->name) != PELAGO_OK || check->name.role == PL_ROLE_NONE)
        return refuse(check, X509_V_ERR_INVALID_PURPOSE, PELAGO_INVALID,
                      "its certificate does not say whose it is");
    return X509_V_OK;
}

static int verify(X509_STORE_CTX *store, void *unused)
{
    (void)unused;
    const SSL *ssl = X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx());
    struct pl_tls_check *check = SSL_get_app_data(ssl);
    int code = check->dialling ? check_shard(store, check) : check_member(store, check);
    if (code != X509_V_OK)
        check->name = (struct pl_pki_name){0};
    X509_STORE_CTX_set_error(store, code);
    return code == X509_V_OK;
}

/* from: where in names the kinds begin that this side takes. */
static int choose(const uint8_t **out, uint8_t *out_len, const uint8_t *in, unsigned in_len, unsigned from)
{
    uint8_t *chosen = NULL;
    if (SSL_select_next_proto(&chosen, out_len, names + from, NAMES_BYTES - from, in, in_len) !=
        OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    *out = chosen;
    return SSL_TLSEXT_ERR_OK;
}

static int choose_any(SSL *ssl, const uint8_t **out, uint8_t *out_len, const uint8_t *in, unsigned in_len,
                      void *unused)
{
    (void)ssl;
    (void)unused;
    return choose(out, out_len, in, in_len, 0);
}

static int choose_frames(SSL *ssl, const uint8_t **out, uint8_t *out_len, const uint8_t *in, unsigned in_len,
                         void *unused)
{
    (void)ssl;
    (void)unused;
    return choose(out, out_len, in, in_len, FRAMES_AT);
}

/* A bundle can also be a plain connection, where the other side knows no bundles. */
static bool offer(SSL *ssl, enum pl_tls_kind kind)
{
    uint8_t both[NAMES_BYTES - NAME_BYTES];
    memcpy(both, names, NAME_BYTES);
    memcpy(both + NAME_BYTES, names + FRAMES_AT, NAMES_BYTES - FRAMES_AT);
    if (kind == PL_TLS_BUNDLE)
        return SSL_set_alpn_protos(ssl, both, sizeof both) == 0;
    if (kind == PL_TLS_STREAM)
        return SSL_set_alpn_protos(ssl, names + NAME_BYTES, NAME_BYTES) == 0;
    return SSL_set_alpn_protos(ssl, names + FRAMES_AT, NAMES_BYTES - FRAMES_AT) == 0;
}

static bool set_rules(SSL_CTX *ctx)
{
    SSL_CTX_set_options(ctx, SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_TICKET |
                                 SSL_OP_CIPHER_SERVER_PREFERENCE);
    /* Without AUTO_RETRY a record that is no data returns to us, and cannot keep the loop busy by the thousand. */
    SSL_CTX_clear_mode(ctx, SSL_MODE_AUTO_RETRY);
    SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                              SSL_MODE_RELEASE_BUFFERS | SSL_MODE_NO_AUTO_CHAIN);
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_max_cert_list(ctx, CERTIFICATES_MAX);
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, NULL);
    SSL_CTX_set_cert_verify_callback(ctx, verify, NULL);
    return SSL_CTX_set_min_proto_version(ctx, TLS1_3_VERSION) == 1 &&
           SSL_CTX_set_max_proto_version(ctx, TLS1_3_VERSION) == 1 &&
           SSL_CTX_set_ciphersuites(ctx, suites) == 1 && SSL_CTX_set1_groups_list(ctx, "X25519") == 1 &&
           SSL_CTX_set1_sigalgs_list(ctx, "ed25519") == 1 &&
           SSL_CTX_set1_client_sigalgs_list(ctx, "ed25519") == 1 && SSL_CTX_set_num_tickets(ctx, 0) == 1 &&
           SSL_CTX_set_max_early_data(ctx, 0) == 1;
}

enum pelago_status pl_tls_own_load(struct pl_tls_own *own, const struct pl_credentials *c,
                                   struct pl_error *err)
{
    *own = (struct pl_tls_own){NULL, NULL};
    if (c->certificate_len == 0)
        return PELAGO_OK;
    own->certificate = pl_pki_load_certificate(c->certificate, c->certificate_len);
    own->key = pl_pki_load_key(c->key, c->key_len);
    if (own->certificate != NULL && own->key != NULL &&
        X509_check_private_key(own->certificate, own->key) == 1)
        return PELAGO_OK;
    pl_tls_own_release(own);
    return pl_pki_fail(err, "TLS cannot be set up with these credentials");
}

void pl_tls_own_share(struct pl_tls_own *own, const struct pl_tls_own *with)
{
    *own = *with;
    if (own->certificate != NULL)
        (void)X509_up_ref(own->certificate);
    if (own->key != NULL)
        (void)EVP_PKEY_up_ref(own->key);
}

void pl_tls_own_release(struct pl_tls_own *own)
{
    X509_free(own->certificate);
    EVP_PKEY_free(own->key);
    *own = (struct pl_tls_own){NULL, NULL};
}

/* A side that accepts shows its authority too, for those who know the fingerprint alone. */
static bool set_credentials(SSL_CTX *ctx, const struct pl_credentials *c)
{
    struct pl_tls_own own;
    if (pl_tls_own_load(&own, c, NULL) != PELAGO_OK)
        return false;
    X509 *authority = pl_pki_load_certificate(c->authority, c->authority_len);
    bool good = authority != NULL && SSL_CTX_use_certificate(ctx, own.certificate) == 1 &&
                SSL_CTX_use_PrivateKey(ctx, own.key) == 1 && SSL_CTX_add1_chain_cert(ctx, authority) == 1;
    X509_free(authority);
    pl_tls_own_release(&own);
    return good;
}

/* NULL: OpenSSL's queue says why. */
static SSL_CTX *new_context(const SSL_METHOD *method)
{
    SSL_CTX *ctx = SSL_CTX_new(method);
    if (ctx != NULL && CRYPTO_THREAD_run_once(&pipe_once, make_pipe_method) == 1 && pipe_method != NULL &&
        set_rules(ctx))
        return ctx;
    SSL_CTX_free(ctx);
    return NULL;
}

SSL_CTX *pl_tls_new_listening(const struct pl_credentials *own, bool bundles, struct pl_error *err)
{
    if (own->role != PL_ROLE_SHARD || own->certificate_len == 0 || own->authority_len == 0) {
        (void)pl_fail(err, PELAGO_INVALID, "a syncer cannot listen before it has the certificate of a shard");
        return NULL;
    }
    SSL_CTX *ctx = new_context(TLS_server_method());
    if (ctx != NULL && set_credentials(ctx, own)) {
        SSL_CTX_set_alpn_select_cb(ctx, bundles ? choose_any : choose_frames, NULL);
        return ctx;
    }
    (void)pl_pki_fail(err, "TLS cannot be set up with these credentials");
    SSL_CTX_free(ctx);
    return NULL;
}

static SSL_CTX *dialling;
static CRYPTO_ONCE dialling_once = CRYPTO_ONCE_STATIC_INIT;

static void make_dialling(void)
{
    dialling = new_context(TLS_client_method());
}

SSL_CTX *pl_tls_dialling(struct pl_error *err)
{
    if (CRYPTO_THREAD_run_once(&dialling_once, make_dialling) != 1 || dialling == NULL)
        (void)pl_pki_fail(err, "TLS cannot be set up");
    return dialling;
}

static bool show_own(SSL *ssl, const struct pl_tls_own *own)
{
    return own == NULL || own->certificate == NULL ||
           (SSL_use_certificate(ssl, own->certificate) == 1 && SSL_use_PrivateKey(ssl, own->key) == 1);
}

SSL *pl_tls_new(SSL_CTX *ctx, const struct pl_tls_own *own, enum pl_tls_kind kind, struct pl_tls_pipe *pipe,
                struct pl_tls_check *check)
{
    SSL *ssl = SSL_new(ctx);
    BIO *bio = BIO_new(pipe_method);
    if (ssl == NULL || bio == NULL || (check->dialling && (!show_own(ssl, own) || !offer(ssl, kind)))) {
        SSL_free(ssl);
        BIO_free(bio);
        ERR_clear_error();
        return NULL;
    }
    BIO_set_data(bio, pipe);
    SSL_set_bio(ssl, bio, bio);
    SSL_set_app_data(ssl, check);
    if (check->dialling)
        SSL_set_connect_state(ssl);
    else
        SSL_set_accept_state(ssl);
    return ssl;
}

enum pl_tls_kind pl_tls_kind(const SSL *ssl)
{
    const uint8_t *chosen = NULL;
    unsigned len = 0;
    SSL_get0_alpn_selected(ssl, &chosen, &len);
    for (unsigned at = 0, kind = 0; at < NAMES_BYTES; at += names[at] + 1u, kind++)
        if (len == names[at] && memcmp(chosen, names + at + 1, len) == 0)
            return kind == 0 ? PL_TLS_BUNDLE : kind == 1 ? PL_TLS_STREAM : PL_TLS_FRAMES;
    return PL_TLS_OTHER;
}

bool pl_tls_secret(SSL *ssl, uint8_t *out, size_t n)
{
    static const char label[] = "EXPORTER-pelago-bundle";
    return SSL_export_keying_material(ssl, out, n, label, sizeof label - 1, NULL, 0, 0) == 1;
}

/* What the other side told us, or what its bytes looked like. NULL: no sentence for it. */
static const char *reason_text(int reason)
{
    switch (reason) {
    case SSL_R_WRONG_VERSION_NUMBER:
    case SSL_R_UNSUPPORTED_PROTOCOL:
    case SSL_R_TLSV1_ALERT_PROTOCOL_VERSION:
    case SSL_R_HTTP_REQUEST:
    case SSL_R_PACKET_LENGTH_TOO_LONG:
    case SSL_R_BAD_RECORD_TYPE:
        return "it does not speak TLS 1.3: is this the address and port of a pelago syncer?";
    case SSL_R_NO_APPLICATION_PROTOCOL:
    case SSL_R_TLSV1_ALERT_NO_APPLICATION_PROTOCOL:
        return "it speaks TLS but not pelago/1: is this the address and port of a pelago syncer of this "
               "version?";
    case SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED:
        return "it says that our certificate has expired, or is not valid yet by its clock: join again with "
               "a new token";
    case SSL_R_TLSV1_ALERT_UNKNOWN_CA:
    case SSL_R_SSLV3_ALERT_BAD_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN:
    case SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE:
    case SSL_R_TLSV1_ALERT_DECRYPT_ERROR:
        return "it does not accept our certificate, which is of another run: join again with a token of this "
               "run";
    case SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE:
    case SSL_R_NO_SHARED_CIPHER:
    case SSL_R_NO_SUITABLE_KEY_SHARE:
    case SSL_R_NO_SUITABLE_SIGNATURE_ALGORITHM:
        return "the two sides have no common TLS 1.3 cipher: is this a pelago syncer?";
    default:
        return NULL;
    }
}

static bool is_stale(int reason)
{
    return reason == SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED;
}

enum pelago_status pl_tls_explain(bool open, const struct pl_tls_pipe *pipe, const struct pl_tls_check *check,
                                  const char *who, struct pl_error *err)
{
    unsigned long code = ERR_peek_error();
    int reason = ERR_GET_LIB(code) == ERR_LIB_SSL ? ERR_GET_REASON(code) : 0;
    const char *text = reason_text(reason), *other = ERR_reason_error_string(code);
    ERR_clear_error();
    if (check->why.text[0] != '\0')
        return pl_fail(err, check->why.status, "%s: %s", who, check->why.text);
    if (text != NULL)
        return pl_fail(err, is_stale(reason) ? PELAGO_STALE : PELAGO_PROTO, "%s: %s", who, text);
    if (pipe->error == EMSGSIZE)
        return pl_fail(err, PELAGO_LIMIT, "%s: it sent more than a handshake needs", who);
    if (pipe->error != 0)
        return pl_fail(err, PELAGO_IO, "the connection to %s broke: %s", who, strerror(pipe->error));
    if (pipe->eof || reason == SSL_R_UNEXPECTED_EOF_WHILE_READING)
        return pl_fail(err, PELAGO_IO, "%s closed the connection%s", who,
                       open ? "" : " during the handshake: it may be busy, or no pelago syncer");
    return pl_fail(err, PELAGO_PROTO, "TLS with %s failed: %s", who,
                   other != NULL ? other : "no reason was given");
}
