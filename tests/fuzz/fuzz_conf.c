/* fuzz_conf.c - arbitrary bytes as a configuration file. What is taken consists of texts within their limits, each key once. */
#include "base/check.h"
#include "conf/conf.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct pl_conf conf;
    struct pl_alloc alloc = pl_alloc_system();
    struct pl_error err = {PELAGO_OK, ""};
    enum pelago_status st = pl_conf_parse(&conf, &alloc, "fuzz.yaml", (struct pl_bytes){data, size}, &err);
    pl_assert((st == PELAGO_OK) == (err.text[0] == '\0'));
    pl_assert(st == PELAGO_OK || conf.count == 0);
    for (uint32_t i = 0; i < conf.count; i++) {
        const struct pl_conf_entry *e = &conf.entries[i];
        pl_assert(strlen(e->value) < PL_CONF_VALUE_MAX && strlen(e->key) < PL_CONF_VALUE_MAX);
        pl_assert(e->line >= 1 && e->line <= size + 1);
        for (uint32_t k = 0; k < i; k++)
            pl_assert(strcmp(conf.entries[k].key, e->key) != 0);
    }
    pl_conf_release(&conf);
    return 0;
}
