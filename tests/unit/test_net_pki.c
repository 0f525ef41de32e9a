/* test_net_pki.c - keys, certificates, credentials and tokens: what is taken, and what each wrong byte leads to. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/hash.h"
#include "base/prng.h"
#include "net/pki_int.h"
#include "net_rig.h"
#include "seed.h"

#include <stdio.h>
#include <string.h>

static struct pl_credentials ca, other_ca, member;
static uint8_t bytes[1 << 16];

static int setup(void **state)
{
    (void)state;
    assert_int_equal(pl_pki_new_authority(&ca, 0xabcdef, NULL), PELAGO_OK);
    assert_int_equal(pl_pki_new_authority(&other_ca, 0xabcdef, NULL), PELAGO_OK);
    net_enrol(&ca, PL_ROLE_LEARNER, 7, 0, 3600, &member);
    return 0;
}

static void an_authority_signs_who_somebody_is(void **state)
{
    (void)state;
    struct pl_credentials c;
    assert_int_equal(member.role, PL_ROLE_LEARNER);
    assert_int_equal(member.identity, 7);
    assert_int_equal(member.run_id, 0xabcdef);
    assert_memory_equal(member.fingerprint, ca.fingerprint, sizeof ca.fingerprint);
    assert_int_equal(member.authority_len, ca.certificate_len);
    uint64_t left = pl_pki_seconds_left(&member);
    assert_true(left > 3500 && left <= 3600);
    net_enrol(&ca, PL_ROLE_SHARD, 12, 63, 60, &c);
    assert_int_equal(c.role, PL_ROLE_SHARD);
    assert_int_equal(c.identity, 12);
    assert_int_equal(c.shard, 63);
    net_enrol(&ca, PL_ROLE_OPERATOR, UINT64_MAX, 0, UINT64_MAX, &c);
    assert_int_equal(c.role, PL_ROLE_OPERATOR);
    assert_true(c.identity == UINT64_MAX);
    assert_true(pl_pki_seconds_left(&c) > UINT64_C(99) * 365 * 86400);
    net_enrol(&ca, PL_ROLE_LEARNER, 1, 0, 0, &c);
    assert_int_equal(pl_pki_seconds_left(&c), 0);
}

static void serials_keys_and_fingerprints_differ(void **state)
{
    (void)state;
    struct pl_credentials again;
    net_enrol(&ca, PL_ROLE_LEARNER, 7, 0, 3600, &again);
    assert_memory_not_equal(again.key, member.key, member.key_len);
    assert_memory_not_equal(again.certificate, member.certificate, 64);
    assert_memory_not_equal(ca.fingerprint, other_ca.fingerprint, sizeof ca.fingerprint);
}

static void only_real_requests_are_signed(void **state)
{
    (void)state;
    const struct pl_grant grant = {PL_ROLE_LEARNER, 1, 0, 60};
    uint8_t request[PL_CERTIFICATE_BYTES_MAX], out[PL_CERTIFICATE_BYTES_MAX];
    uint32_t len, out_len;
    struct pl_error err;
    assert_int_equal(pl_pki_request(&member, request, sizeof request, &len, NULL), PELAGO_OK);
    assert_int_equal(pl_pki_issue(&ca, request, len, &grant, out, sizeof out, &out_len, NULL), PELAGO_OK);
    assert_int_equal(pl_pki_issue(&ca, request, len, &grant, out, 100, &out_len, &err), PELAGO_LIMIT);
    assert_int_equal(pl_pki_request(&member, request, 10, &out_len, &err), PELAGO_LIMIT);
    for (uint32_t i = 0; i < len;
         i++) { /* every byte counts: each is under the request's own signature, or is it */
        request[i] ^= 1;
        assert_int_equal(pl_pki_issue(&ca, request, len, &grant, out, sizeof out, &out_len, &err),
                         PELAGO_INVALID);
        request[i] ^= 1;
    }
    assert_int_equal(pl_pki_issue(&ca, request, len - 1, &grant, out, sizeof out, &out_len, &err),
                     PELAGO_INVALID);
    assert_int_equal(pl_pki_issue(&ca, request, len + 1, &grant, out, sizeof out, &out_len, &err),
                     PELAGO_INVALID);
    assert_int_equal(pl_pki_issue(&ca, NULL, 0, &grant, out, sizeof out, &out_len, &err), PELAGO_INVALID);
    assert_non_null(strstr(err.text, "no request for a certificate"));
}

static void assert_not_accepted(const struct pl_credentials *c, const uint8_t *certificate, uint32_t len,
                                const char *text)
{
    struct pl_credentials copy = *c, before = *c;
    struct pl_error err;
    assert_int_equal(pl_pki_accept(&copy, certificate, len, &err), PELAGO_INVALID);
    assert_memory_equal(&copy, &before, sizeof copy);
    if (strstr(err.text, text) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", err.text, text);
}

static void a_certificate_must_be_ours(void **state)
{
    (void)state;
    struct pl_credentials mine, stolen;
    uint8_t both[2 * PL_CERTIFICATE_BYTES_MAX];
    net_enrol(&ca, PL_ROLE_LEARNER, 8, 0, 60, &mine);
    assert_not_accepted(&mine, member.certificate, member.certificate_len, "another key");
    assert_not_accepted(&mine, ca.certificate, ca.certificate_len, "another key");
    assert_not_accepted(&ca, ca.certificate, ca.certificate_len, "not of this run's authority");
    assert_not_accepted(&mine, (const uint8_t *)"x", 1, "no certificate");
    assert_not_accepted(&mine, NULL, 0, "no certificate");
    memcpy(both, mine.certificate, mine.certificate_len);
    memcpy(both + mine.certificate_len, other_ca.certificate, other_ca.certificate_len);
    assert_not_accepted(&mine, both, mine.certificate_len + other_ca.certificate_len, "another authority");
    stolen = mine;
    stolen.authority_len = 0;
    assert_not_accepted(&stolen, mine.certificate, mine.certificate_len, "missing");
    memcpy(stolen.authority, other_ca.certificate, other_ca.certificate_len);
    stolen.authority_len = other_ca.certificate_len;
    assert_not_accepted(&stolen, mine.certificate, mine.certificate_len, "not of this run's authority");
}

/* A learner's certificate signs nothing: a chain through it ends nowhere. */
static void a_member_is_no_authority(void **state)
{
    (void)state;
    struct pl_credentials forged;
    uint8_t request[PL_CERTIFICATE_BYTES_MAX], out[PL_CERTIFICATE_BYTES_MAX];
    uint32_t request_len, len;
    const struct pl_grant grant = {PL_ROLE_SHARD, 1, 0, 60};
    assert_int_equal(pl_pki_new_key(&forged, NULL), PELAGO_OK);
    assert_int_equal(pl_pki_request(&forged, request, sizeof request, &request_len, NULL), PELAGO_OK);
    assert_int_equal(pl_pki_issue(&member, request, request_len, &grant, out, sizeof out, &len, NULL),
                     PELAGO_OK);
    memcpy(forged.fingerprint, ca.fingerprint, sizeof ca.fingerprint);
    assert_not_accepted(&forged, out, len, "another authority");
    memcpy(forged.authority, ca.certificate, ca.certificate_len);
    forged.authority_len = ca.certificate_len;
    assert_not_accepted(&forged, out, len - member.certificate_len, "not of this run's authority");
}

static void names_have_one_spelling(void **state)
{
    (void)state;
    static const char *const good[] = {
        "pelago://0000000000000001/learner/7", "pelago://ffffffffffffffff/operator/18446744073709551615",
        "pelago://0000000000000001/shard/0/0", "pelago://0000000000000001/shard/63/4",
        "pelago://0000000000000001/authority",
    };
    static const char *const bad[] = {
        "",
        "pelago://",
        "pelago://1/learner/7",
        "pelago://000000000000000G/learner/7",
        "pelago://000000000000000A/learner/7",
        "pelago://0000000000000001/learner/07",
        "pelago://0000000000000001/learner/7/",
        "pelago://0000000000000001/learner/7 ",
        "pelago://0000000000000001/learner/",
        "pelago://0000000000000001/learner/0",
        "pelago://0000000000000001/learner/18446744073709551616",
        "pelago://0000000000000001/shard/64/1",
        "pelago://0000000000000001/shard/1",
        "pelago://0000000000000001/king/1",
        "http://00000000000000001/learner/7",
        "pelago://0000000000000001/operator/18446744073709551615/and/something/longer/than/any",
    };
    struct pl_pki_name name;
    char again[PL_PKI_URI_MAX];
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_int_equal(pl_pki_uri_parse(good[i], strlen(good[i]), &name), PELAGO_OK);
        pl_pki_uri_print(&name, again);
        assert_string_equal(again, good[i]);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (pl_pki_uri_parse(bad[i], strlen(bad[i]), &name) != PELAGO_INVALID)
            fail_msg("taken: %s", bad[i]);
    assert_int_equal(pl_pki_uri_parse("pelago://0000000000000001/learner/7\0", 36, &name), PELAGO_INVALID);
}

static void credentials_survive_a_file(void **state)
{
    (void)state;
    struct pl_credentials fresh, out;
    assert_int_equal(pl_pki_new_key(&fresh, NULL), PELAGO_OK);
    const struct pl_credentials *all[] = {&ca, &member, &fresh};
    for (unsigned i = 0; i < 3; i++) {
        size_t len = pl_credentials_encode(all[i], bytes, pl_credentials_bytes_max());
        assert_int_equal(pl_credentials_decode(&out, bytes, len, NULL), PELAGO_OK);
        assert_memory_equal(&out, all[i], sizeof out);
    }
}

static void assert_corrupt(size_t len, const char *text)
{
    struct pl_credentials out;
    struct pl_error err = {.text = ""};
    assert_true(pl_credentials_decode(&out, bytes, len, &err) != PELAGO_OK);
    if (strstr(err.text, text) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", err.text, text);
    for (size_t i = 0; i < sizeof out; i++)
        assert_int_equal(((const uint8_t *)&out)[i], 0); /* no key is left behind */
}

/* The same bytes with a checksum that fits. */
static size_t encode(const struct pl_credentials *c)
{
    return pl_credentials_encode(c, bytes, sizeof bytes);
}

static void damaged_credentials_are_refused(void **state)
{
    (void)state;
    size_t len = encode(&member);
    for (size_t i = 0; i < len; i++) {
        bytes[i] ^= 0x40;
        assert_corrupt(len, i < 8 ? "PLCREDS1" : "checksum");
        bytes[i] ^= 0x40;
        assert_corrupt(i, i < 8 ? "PLCREDS1" : "checksum");
    }
}

static void credentials_must_agree_with_themselves(void **state)
{
    (void)state;
    struct pl_credentials c = member;
    c.identity++;
    assert_corrupt(encode(&c), "something else than their certificate");
    c = member;
    c.role = PL_ROLE_OPERATOR;
    assert_corrupt(encode(&c), "something else than their certificate");
    c = member;
    c.role = PL_ROLE_NONE;
    assert_corrupt(encode(&c), "do not fit together");
    c = member;
    c.fingerprint[0] ^= 1;
    assert_corrupt(encode(&c), "fingerprint");
    c = member;
    c.authority_len = 0;
    assert_corrupt(encode(&c), "lack their authority");
    c = member;
    memcpy(c.key, ca.key, ca.key_len);
    assert_corrupt(encode(&c), "another key");
    c = member;
    c.key_len--;
    assert_corrupt(encode(&c), "Ed25519");
    c = member;
    c.certificate[c.certificate_len++] = 0;
    assert_corrupt(encode(&c), "");
    c = ca;
    c.run_id++;
    assert_corrupt(encode(&c), "do not fit together");
    size_t len = encode(&member);
    bytes[16] = 4;
    pl_put_le(bytes + len - 8, pl_hash64(bytes, len - 8, 0), 8);
    assert_corrupt(len, "role is 4");
    bytes[16] = 1;
    pl_put_le(bytes + 61, 513, 4);
    pl_put_le(bytes + len - 8, pl_hash64(bytes, len - 8, 0), 8);
    assert_corrupt(len, "key has 513 bytes");
    pl_put_le(bytes + 61, 512, 4);
    pl_put_le(bytes + len - 8, pl_hash64(bytes, len - 8, 0), 8);
    assert_corrupt(len, "");
    len = encode(&member) + 1;
    pl_put_le(bytes + len - 8, pl_hash64(bytes, len - 8, 0), 8);
    assert_corrupt(len, "too many");
}

static struct pl_token some_token(const char *address)
{
    struct pl_token t = {.number = 42};
    (void)snprintf(t.address, sizeof t.address, "%s", address);
    memcpy(t.fingerprint, ca.fingerprint, sizeof t.fingerprint);
    pl_random(t.secret, sizeof t.secret);
    return t;
}

static void tokens_are_one_line(void **state)
{
    (void)state;
    char longest[256], text[PL_TOKEN_TEXT_MAX], with_end[PL_TOKEN_TEXT_MAX + 2];
    memset(longest, 'a', sizeof longest);
    memcpy(longest + 248, ":65535", 7);
    const char *addresses[] = {"10.0.0.7:7447", "[fe80::1]:7447", "h:1", "example.org:80", longest};
    for (unsigned i = 0; i < 5; i++) {
        struct pl_token t = some_token(addresses[i]), out;
        pl_token_print(&t, text);
        assert_memory_equal(text, "pelago1-", 8);
        assert_int_equal(strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"),
                         strlen(text));
        assert_int_equal(pl_token_parse(text, &out, NULL), PELAGO_OK);
        assert_memory_equal(&out, &t, sizeof t);
        (void)snprintf(with_end, sizeof with_end, "%s\n", text);
        assert_int_equal(pl_token_parse(with_end, &out, NULL), PELAGO_OK);
    }
}

static void assert_no_token(const char *text, const char *says)
{
    struct pl_token t;
    struct pl_error err;
    assert_int_equal(pl_token_parse(text, &t, &err), PELAGO_INVALID);
    if (strstr(err.text, says) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", err.text, says);
}

static void mistyped_tokens_are_explained(void **state)
{
    (void)state;
    char text[PL_TOKEN_TEXT_MAX], copy[PL_TOKEN_TEXT_MAX], longer[2 * PL_TOKEN_TEXT_MAX];
    struct pl_token t = some_token("10.0.0.7:7447");
    pl_token_print(&t, text);
    size_t len = strlen(text);
    for (size_t i = 8; i < len; i++) {
        memcpy(copy, text, len + 1);
        copy[i] = copy[i] == 'A' ? 'B' : 'A';
        assert_no_token(copy, i + 1 < len ? "mistyped" : "");
        copy[i] = '!';
        assert_no_token(copy, "is none that a token has");
        copy[i] = '\0';
        assert_no_token(copy, "cut off");
    }
    assert_no_token("", "begins with pelago1-");
    assert_no_token("hello", "begins with pelago1-");
    assert_no_token("pelago2-AAAA", "another version");
    assert_no_token("pelago1-", "cut off");
    memset(longer, 'A', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    memcpy(longer, "pelago1-", 8);
    assert_no_token(longer, "too long");
    t = some_token("nowhere");
    pl_token_print(&t, text);
    assert_no_token(text, "host:port");
}

static void random_texts_are_no_tokens(void **state)
{
    (void)state;
    struct pl_prng p;
    struct pl_token t;
    char text[64] = "pelago1-";
    pl_prng_seed(&p, test_seed(), 1);
    for (unsigned i = 0; i < 10000; i++) {
        size_t n = (size_t)pl_prng_below(&p, 55);
        for (size_t k = 0; k < n; k++)
            text[8 + k] = (char)pl_prng_range(&p, 1, 127);
        text[8 + n] = '\0';
        assert_int_equal(pl_token_parse(text, &t, NULL), PELAGO_INVALID);
    }
}

static void secrets_compare_and_hash(void **state)
{
    (void)state;
    uint8_t a[32] = {1}, b[32] = {1}, digest[32];
    assert_true(pl_secret_equal(a, b, 32));
    b[31] = 1;
    assert_false(pl_secret_equal(a, b, 32));
    pl_sha256("abc", 3, digest);
    assert_int_equal(digest[0], 0xba);
    assert_int_equal(digest[31], 0xad);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_authority_signs_who_somebody_is),
        cmocka_unit_test(serials_keys_and_fingerprints_differ),
        cmocka_unit_test(only_real_requests_are_signed),
        cmocka_unit_test(a_certificate_must_be_ours),
        cmocka_unit_test(a_member_is_no_authority),
        cmocka_unit_test(names_have_one_spelling),
        cmocka_unit_test(credentials_survive_a_file),
        cmocka_unit_test(damaged_credentials_are_refused),
        cmocka_unit_test(credentials_must_agree_with_themselves),
        cmocka_unit_test(tokens_are_one_line),
        cmocka_unit_test(mistyped_tokens_are_explained),
        cmocka_unit_test(random_texts_are_no_tokens),
        cmocka_unit_test(secrets_compare_and_hash),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
