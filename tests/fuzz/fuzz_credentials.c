/* Fuzz target: tokens, credentials, certificates, requests and addresses of arbitrary bytes.
 *
 * The first byte chooses. Whatever is accepted must be printed or encoded again as the same bytes; files get their
 * checksum put right, so that the fuzzer reaches what lies behind it.
 */
#include "base/bytes.h"
#include "base/check.h"
#include "base/hash.h"
#include "net/address.h"
#include "net/pki.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { BYTES_MAX = 1 << 15 };
static uint8_t bytes[BYTES_MAX], again[BYTES_MAX];
static char text[BYTES_MAX + 16];
static struct pl_credentials ca, member;

static void set_up(void)
{
    uint8_t request[PL_CERTIFICATE_BYTES_MAX], certificate[PL_CERTIFICATE_BYTES_MAX];
    uint32_t request_len, len;
    const struct pl_grant grant = {PL_ROLE_LEARNER, 7, 0, 3600};
    pl_assert(pl_pki_new_authority(&ca, 5, NULL) == PELAGO_OK && pl_pki_new_key(&member, NULL) == PELAGO_OK);
    memcpy(member.fingerprint, ca.fingerprint, sizeof ca.fingerprint);
    pl_assert(pl_pki_request(&member, request, sizeof request, &request_len, NULL) == PELAGO_OK);
    pl_assert(pl_pki_issue(&ca, request, request_len, &grant, certificate, sizeof certificate, &len, NULL) ==
              PELAGO_OK);
    pl_assert(pl_pki_accept(&member, certificate, len, NULL) == PELAGO_OK);
}

static void fuzz_token(const uint8_t *data, size_t size, bool prefixed)
{
    struct pl_token t;
    struct pl_error err = {.text = ""};
    char out[PL_TOKEN_TEXT_MAX];
    size_t head = prefixed ? 8 : 0;
    memcpy(text, "pelago1-", 8);
    memcpy(text + head, data, size);
    text[head + size] = '\0';
    if (pl_token_parse(text, &t, &err) != PELAGO_OK) {
        pl_assert(err.text[0] != '\0');
        return;
    }
    pl_token_print(&t, out);
    pl_assert(strncmp(out, text, strlen(out)) == 0);
}

/* A token of arbitrary content, printed by us: reading gives it back, or refuses its address. */
static void fuzz_token_content(const uint8_t *data, size_t size)
{
    struct pl_token t = {.number = size}, out;
    memcpy(t.address, data, size < sizeof t.address ? size : sizeof t.address - 1);
    pl_token_print(&t, text);
    if (pl_token_parse(text, &out, NULL) == PELAGO_OK)
        pl_assert(strcmp(out.address, t.address) == 0 && out.number == t.number);
}

static void check_credentials(size_t len)
{
    struct pl_credentials c;
    struct pl_error err = {.text = ""};
    if (pl_credentials_decode(&c, bytes, len, &err) != PELAGO_OK) {
        pl_assert(err.text[0] != '\0' && c.key_len == 0);
        return;
    }
    size_t n = pl_credentials_encode(&c, again, sizeof again);
    pl_assert(n == len && memcmp(bytes, again, n) == 0);
}

/* Good credentials with some bytes changed, or arbitrary ones; the checksum fits. */
static void fuzz_credentials(struct pl_reader *in, const struct pl_credentials *good)
{
    size_t len = good != NULL ? pl_credentials_encode(good, bytes, sizeof bytes) : pl_reader_left(in);
    if (good == NULL && len > 0)
        memcpy(bytes, pl_read_bytes(in, len), len);
    while (good != NULL && pl_reader_left(in) >= 3) {
        size_t at = (size_t)pl_read_le(in, 2) % len;
        bytes[at] = pl_read_u8(in);
    }
    if (len >= 8)
        pl_put_le(bytes + len - 8, pl_hash64(bytes, len - 8, 0), 8);
    check_credentials(len);
}

static void fuzz_certificate(const uint8_t *data, size_t size)
{
    struct pl_credentials c = member;
    const struct pl_grant grant = {PL_ROLE_OPERATOR, 9, 0, 1};
    uint32_t len;
    (void)pl_pki_issue(&ca, data, (uint32_t)size, &grant, again, PL_CERTIFICATE_BYTES_MAX, &len, NULL);
    if (pl_pki_accept(&c, data, (uint32_t)size, NULL) == PELAGO_OK)
        pl_assert(c.identity == 7 && c.role == PL_ROLE_LEARNER); /* nobody can sign another */
}

static void fuzz_address(const uint8_t *data, size_t size)
{
    struct pl_address a;
    memcpy(text, data, size);
    text[size] = '\0';
    if (pl_address_parse(text, &a, NULL) == PELAGO_OK)
        pl_assert(strlen(a.host) < sizeof a.host && strlen(a.port) >= 1 && strlen(a.port) <= 5);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (ca.key_len == 0)
        set_up();
    struct pl_reader in = pl_reader_of(data, size);
    uint8_t what = pl_read_u8(&in) % 8;
    if (in.bad || size > BYTES_MAX)
        return 0;
    if (what < 2)
        fuzz_token(in.at, pl_reader_left(&in), what == 1);
    else if (what == 2)
        fuzz_token_content(in.at, pl_reader_left(&in));
    else if (what < 6)
        fuzz_credentials(&in, what == 3 ? NULL : what == 4 ? &member : &ca);
    else if (what == 6)
        fuzz_certificate(in.at, pl_reader_left(&in));
    else
        fuzz_address(in.at, pl_reader_left(&in));
    return 0;
}
