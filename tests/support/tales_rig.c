#include "tales_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

static struct pl_alloc alloc;
static struct pl_tales *tales;

int tales_rig_open(void **state)
{
    (void)state;
    alloc = pl_alloc_system();
    return pl_tales_open(&alloc, &tales) == PELAGO_OK ? 0 : -1;
}

int tales_rig_close(void **state)
{
    (void)state;
    pl_tales_close(tales);
    return 0;
}

const struct pl_tales *tales_rig(void)
{
    return tales;
}

char *tales_rig_text(uint64_t seed, uint64_t index)
{
    struct pl_buf b;
    pl_buf_init(&b, &alloc, PL_TALES_STORY_BYTES_MAX + 1);
    assert_int_equal(pl_tales_story(tales, seed, PL_TALES_TRAIN, index, &b, NULL), PELAGO_OK);
    assert_int_equal(pl_buf_append(&b, "", 1), PELAGO_OK);
    char *copy = strdup((const char *)b.data);
    assert_non_null(copy);
    pl_buf_release(&b);
    return copy;
}
