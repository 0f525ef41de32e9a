/* net/pki_name.c - the URI in a certificate, and what a certificate must be to count; see pki_int.h. */
#include "net/pki_int.h"

#include "base/check.h"
#include "base/fmt.h"

#include <openssl/err.h>
#include <openssl/x509v3.h>

static const char scheme[] = "pelago://";
static const char *const role_names[] = {NULL, "learner", "shard", "operator"};
enum { ROLES = sizeof role_names / sizeof *role_names, RUN_DIGITS = 16 };

static void print_hex(uint64_t v, char out[static RUN_DIGITS + 1])
{
    for (unsigned i = 0; i < RUN_DIGITS; i++)
        out[i] = "0123456789abcdef"[v >> (60 - 4 * i) & 15];
    out[RUN_DIGITS] = '\0';
}

void pl_pki_uri_print(const struct pl_pki_name *name, char out[static PL_PKI_URI_MAX])
{
    char run[RUN_DIGITS + 1];
    print_hex(name->run_id, run);
    if (name->role == PL_ROLE_NONE)
        pl_fmt(out, PL_PKI_URI_MAX, "%s%s/authority", scheme, run);
    else if (name->role == PL_ROLE_SHARD)
        pl_fmt(out, PL_PKI_URI_MAX, "%s%s/shard/%u/%lu", scheme, run, name->shard, name->identity);
    else
        pl_fmt(out, PL_PKI_URI_MAX, "%s%s/%s/%lu", scheme, run, role_names[name->role], name->identity);
}

/* Digits up to a slash or the end; wrong spellings are found by printing again. */
static uint64_t scan_number(const char **at, unsigned base)
{
    uint64_t v = 0;
    for (; **at != '/' && **at != '\0'; (*at)++) {
        char c = **at;
        unsigned digit = c >= '0' && c <= '9' ? (unsigned)(c - '0')
                         : c >= 'a'           ? (unsigned)(c - 'a') + 10u
                                              : 99u;
        if (digit >= base)
            break;
        v = v * base + digit;
    }
    if (**at == '/')
        (*at)++;
    return v;
}

static enum pl_role scan_role(const char **at)
{
    for (unsigned r = 1; r < ROLES; r++) {
        size_t n = strlen(role_names[r]);
        if (strncmp(*at, role_names[r], n) == 0 && (*at)[n] == '/') {
            *at += n + 1;
            return (enum pl_role)r;
        }
    }
    return PL_ROLE_NONE;
}

enum pelago_status pl_pki_uri_parse(const char *text, size_t len, struct pl_pki_name *name)
{
    char copy[PL_PKI_URI_MAX], again[PL_PKI_URI_MAX];
    *name = (struct pl_pki_name){0};
    if (len >= sizeof copy || len < sizeof scheme - 1 || memchr(text, '\0', len) != NULL)
        return PELAGO_INVALID;
    memcpy(copy, text, len);
    copy[len] = '\0';
    const char *at = copy + sizeof scheme - 1;
    name->run_id = scan_number(&at, 16);
    name->role = scan_role(&at);
    if (name->role == PL_ROLE_SHARD) {
        uint64_t shard = scan_number(&at, 10);
        if (shard >= PL_SHARDS_MAX)
            return PELAGO_INVALID;
        name->shard = (uint32_t)shard;
    }
    if (name->role != PL_ROLE_NONE)
        name->identity = scan_number(&at, 10);
    pl_pki_uri_print(name, again);
    bool nameless = name->identity == 0 && (name->role == PL_ROLE_LEARNER || name->role == PL_ROLE_OPERATOR);
    return strcmp(copy, again) == 0 && !nameless ? PELAGO_OK : PELAGO_INVALID;
}

enum pelago_status pl_pki_read_name(const X509 *certificate, struct pl_pki_name *name)
{
    GENERAL_NAMES *names = X509_get_ext_d2i(certificate, NID_subject_alt_name, NULL, NULL);
    enum pelago_status st = PELAGO_INVALID;
    if (names != NULL && sk_GENERAL_NAME_num(names) == 1) {
        const GENERAL_NAME *one = sk_GENERAL_NAME_value(names, 0);
        if (one->type == GEN_URI)
            st = pl_pki_uri_parse((const char *)ASN1_STRING_get0_data(one->d.uniformResourceIdentifier),
                                  (size_t)ASN1_STRING_length(one->d.uniformResourceIdentifier), name);
    }
    GENERAL_NAMES_free(names);
    ERR_clear_error();
    return st;
}

static int verify_in(X509_STORE_CTX *ctx, X509 *certificate, STACK_OF(X509) * trusted, int purpose,
                     bool check_time)
{
    if (X509_STORE_CTX_init(ctx, NULL, certificate, NULL) != 1)
        return X509_V_ERR_OUT_OF_MEM;
    X509_STORE_CTX_set0_trusted_stack(ctx, trusted);
    X509_STORE_CTX_set_flags(ctx, X509_V_FLAG_X509_STRICT | (check_time ? 0 : X509_V_FLAG_NO_CHECK_TIME));
    if (X509_STORE_CTX_set_purpose(ctx, purpose) != 1)
        return X509_V_ERR_INVALID_PURPOSE;
    if (X509_verify_cert(ctx) == 1)
        return X509_V_OK;
    int why = X509_STORE_CTX_get_error(ctx);
    return why != X509_V_OK ? why : X509_V_ERR_UNSPECIFIED;
}

int pl_pki_verify(X509 *certificate, X509 *authority, int purpose, bool check_time)
{
    pl_assert(certificate != NULL && authority != NULL);
    STACK_OF(X509) *trusted = sk_X509_new_null();
    X509_STORE_CTX *ctx = X509_STORE_CTX_new();
    int result = X509_V_ERR_OUT_OF_MEM;
    if (trusted != NULL && ctx != NULL && sk_X509_push(trusted, authority) > 0)
        result = verify_in(ctx, certificate, trusted, purpose, check_time);
    X509_STORE_CTX_free(ctx);
    sk_X509_free(trusted);
    ERR_clear_error();
    return result;
}
