/* host/trouble.c - see trouble.h. */
#include "host/trouble.h"

#include "base/fmt.h"
#include "base/num.h"

#include <string.h>

static const uint64_t first_pause_ns = 60 * PL_SEC, pause_max_ns = 600 * PL_SEC;

static bool has_changed(const struct pl_trouble *t, const char *why)
{
    char text[sizeof t->text];
    (void)pl_fmt(text, sizeof text, "%s", why);
    return strcmp(text, t->text) != 0;
}

bool pl_trouble_is_due(struct pl_trouble *t, const char *why, uint64_t now_ns)
{
    bool begins = t->pause_ns == 0;
    if (!begins && now_ns < t->again_ns && !has_changed(t, why))
        return false;
    if (begins)
        t->since_ns = now_ns;
    if (begins || now_ns >= t->again_ns) {
        t->pause_ns = begins ? first_pause_ns : pl_min64(2 * t->pause_ns, pause_max_ns);
        t->again_ns = now_ns + t->pause_ns;
    }
    (void)pl_fmt(t->text, sizeof t->text, "%s", why);
    return true;
}

void pl_trouble_over(struct pl_trouble *t)
{
    *t = (struct pl_trouble){0};
}
