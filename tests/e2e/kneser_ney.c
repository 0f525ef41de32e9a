/* tests/e2e/kneser_ney.c - the loss of an interpolated modified Kneser-Ney n-gram model: what a language model must beat.
 *
 *   cc -O2 -std=gnu11 tests/e2e/kneser_ney.c -lm -o kneser_ney
 *   kneser_ney [-n ORDER] [-t TOKENS] TRAIN VALID [TEXT_BYTES]
 *
 * TRAIN and VALID are token files (src/data/tokens.h says what is in them), or bare little-endian tokens of 2 bytes.
 * TOKENS limits what is read of TRAIN. TEXT_BYTES, the length of the text that VALID encodes, is known for a token file;
 * with it the output has nats per byte too.
 *
 * The highest order counts n-grams, every lower one counts in how many different ways its n-gram is continued to the
 * left. Three discounts per order come from the counts of counts (Chen and Goodman 1998), so nothing is tuned.
 * N-grams are known by a 64-bit hash; with 10^7 of them a collision changes nothing one could measure.
 */
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ORDER_MAX = 8 };

struct entry {
    uint64_t key;      /* 0: empty */
    uint32_t count;    /* of an n-gram: (continuation) count; of a context: sum of its n-grams' counts */
    uint32_t pos;      /* of an n-gram: its last token, where it was seen first */
    uint32_t words[3]; /* of a context: n-grams with count 1, 2, 3 and more */
};

struct table {
    struct entry *slots;
    uint64_t mask, used;
};

struct model {
    unsigned order;
    uint32_t vocabulary;
    struct table ngrams[ORDER_MAX + 1], contexts[ORDER_MAX + 1];
    double discount[ORDER_MAX + 1][3];
};

static _Noreturn void fail(const char *what, const char *about)
{
    fprintf(stderr, "kneser_ney: %s: %s\n", about, what);
    exit(1);
}

static void table_init(struct table *t, uint64_t slots)
{
    t->mask = slots - 1;
    t->used = 0;
    t->slots = calloc(slots, sizeof *t->slots);
    if (t->slots == NULL)
        fail("out of memory", "tables");
}

static struct entry *table_find(struct table *t, uint64_t key)
{
    uint64_t at = key & t->mask;
    while (t->slots[at].key != 0 && t->slots[at].key != key)
        at = (at + 1) & t->mask;
    return &t->slots[at];
}

/* The entry of the key, a new one when there is none. */
static struct entry *table_add(struct table *t, uint64_t key)
{
    if (2 * t->used > t->mask) {
        struct table wider;
        table_init(&wider, 2 * (t->mask + 1));
        for (uint64_t i = 0; i <= t->mask; i++)
            if (t->slots[i].key != 0)
                *table_find(&wider, t->slots[i].key) = t->slots[i];
        wider.used = t->used;
        free(t->slots);
        *t = wider;
    }
    struct entry *e = table_find(t, key);
    if (e->key == 0) {
        t->used++;
        e->key = key;
    }
    return e;
}

/* Of n tokens that end with *last; never 0. */
static uint64_t hash(const uint32_t *last, unsigned n)
{
    uint64_t h = 0x9E3779B97F4A7C15u * (n + 1);
    for (unsigned i = 0; i < n; i++) {
        h = (h ^ last[-(int)i]) * 0xD6E8FEB86659FD93u;
        h ^= h >> 32;
    }
    return h | 1;
}

/* A new n-gram is a new continuation of the n-gram without its first token, and so on downwards. */
static void count_ngrams(struct model *m, const uint32_t *tokens, uint32_t n)
{
    for (uint32_t i = m->order - 1; i < n; i++) {
        bool fresh = true;
        for (unsigned k = m->order; k > 0 && fresh; k--) {
            struct entry *e = table_add(&m->ngrams[k], hash(tokens + i, k));
            fresh = e->count == 0;
            e->count++;
            if (fresh)
                e->pos = i;
        }
    }
}

static void finish_order(struct model *m, const uint32_t *tokens, unsigned k)
{
    double have[5] = {0};
    const struct table *t = &m->ngrams[k];
    for (uint64_t i = 0; i <= t->mask; i++) {
        const struct entry *e = &t->slots[i];
        if (e->key == 0)
            continue;
        struct entry *context = table_add(&m->contexts[k], hash(tokens + e->pos - 1, k - 1));
        context->count += e->count;
        context->words[e->count < 3 ? e->count - 1 : 2]++;
        if (e->count <= 4)
            have[e->count]++;
    }
    double y = have[1] / (have[1] + 2 * have[2] + 1e-9);
    for (unsigned d = 0; d < 3; d++) {
        double estimate = have[d + 1] > 0 ? d + 1 - (d + 2) * y * have[d + 2] / have[d + 1] : 0.5;
        m->discount[k][d] = estimate > 0.05 ? estimate : 0.05;
    }
}

static double probability(struct model *m, const uint32_t *last)
{
    double p = 1.0 / m->vocabulary;
    for (unsigned k = 1; k <= m->order; k++) {
        const struct entry *context = table_find(&m->contexts[k], hash(last - 1, k - 1));
        if (context->key == 0)
            break;
        const double *d = m->discount[k];
        double kept = d[0] * context->words[0] + d[1] * context->words[1] + d[2] * context->words[2];
        const struct entry *e = table_find(&m->ngrams[k], hash(last, k));
        double own = e->key != 0 ? e->count - d[e->count < 3 ? e->count - 1 : 2] : 0;
        p = (own + kept * p) / context->count;
    }
    return p;
}

struct tokens {
    uint32_t *at;
    uint32_t count;
    double text_bytes; /* 0: not known */
};

static uint64_t number(const uint8_t *p, unsigned bytes)
{
    uint64_t v = 0;
    for (unsigned i = bytes; i-- > 0;)
        v = v << 8 | p[i];
    return v;
}

static uint8_t *read_file(const char *path, uint64_t *bytes)
{
    FILE *f = fopen(path, "rb");
    if (f == NULL || fseek(f, 0, SEEK_END) != 0)
        fail("cannot be read", path);
    long size = ftell(f);
    uint8_t *raw = size > 0 ? malloc((size_t)size) : NULL;
    if (raw == NULL || fseek(f, 0, SEEK_SET) != 0 || fread(raw, 1, (size_t)size, f) != (size_t)size)
        fail("is empty or cannot be read", path);
    fclose(f);
    *bytes = (uint64_t)size;
    return raw;
}

static struct tokens read_tokens(const char *path)
{
    uint64_t bytes, skip = 0, width = 2;
    uint8_t *raw = read_file(path, &bytes);
    uint64_t count = bytes / width;
    struct tokens t = {0};
    if (bytes >= 96 && memcmp(raw, "PELAGOTK", 8) == 0) {
        skip = 96;
        width = number(raw + 12, 4);
        count = number(raw + 24, 8);
        t.text_bytes = (double)number(raw + 32, 8);
    }
    if (count < 64 || count > UINT32_MAX || (width != 2 && width != 4) || (bytes - skip) / width < count)
        fail("has too few tokens or too many, or is damaged", path);
    t.count = (uint32_t)count;
    t.at = malloc(count * sizeof *t.at);
    if (t.at == NULL)
        fail("out of memory", path);
    for (uint64_t i = 0; i < count; i++)
        t.at[i] = (uint32_t)number(raw + skip + i * width, (unsigned)width);
    free(raw);
    return t;
}

static void train(struct model *m, const uint32_t *tokens, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (tokens[i] >= m->vocabulary)
            m->vocabulary = tokens[i] + 1;
    for (unsigned k = 1; k <= m->order; k++) {
        table_init(&m->ngrams[k], 1u << 16);
        table_init(&m->contexts[k], 1u << 16);
    }
    count_ngrams(m, tokens, count);
    for (unsigned k = 1; k <= m->order; k++)
        finish_order(m, tokens, k);
}

int main(int argc, char **argv)
{
    struct model m = {.order = 5};
    uint32_t limit = UINT32_MAX;
    for (int c; (c = getopt(argc, argv, "n:t:")) != -1;) {
        long v = c == '?' ? -1 : atol(optarg);
        if (c == 'n' && v >= 2 && v <= ORDER_MAX)
            m.order = (unsigned)v;
        else if (c == 't' && v >= 64 && v <= UINT32_MAX)
            limit = (uint32_t)v;
        else
            fail("wrong option", argv[0]);
    }
    if (argc - optind < 2)
        fail("usage: kneser_ney [-n ORDER] [-t TOKENS] TRAIN VALID [TEXT_BYTES]", argv[0]);
    struct tokens learn = read_tokens(argv[optind]), valid = read_tokens(argv[optind + 1]);
    if (argc - optind > 2)
        valid.text_bytes = atof(argv[optind + 2]);
    learn.count = learn.count < limit ? learn.count : limit;
    train(&m, learn.at, learn.count);
    double nats = 0;
    uint32_t scored = valid.count - m.order;
    for (uint32_t i = m.order; i < valid.count; i++)
        nats -= log(probability(&m, valid.at + i));
    printf("{\"order\": %u, \"train_tokens\": %" PRIu32 ", \"valid_tokens\": %" PRIu32
           ", \"ngrams\": %" PRIu64 ", \"nats_per_token\": %.5f",
           m.order, learn.count, scored, m.ngrams[m.order].used, nats / scored);
    if (valid.text_bytes > 0)
        printf(", \"nats_per_byte\": %.5f", nats / scored * valid.count / valid.text_bytes);
    printf("}\n");
    free(learn.at);
    free(valid.at);
    return 0;
}
