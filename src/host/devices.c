#include "host/devices.h"

#include "model/cuda/plugin.h"
#include "model/engine.h"
#include "os/plugin.h"

#include <string.h>

static void *state(struct pl_engine *e)
{
    return e->device;
}

static void set_state(struct pl_engine *e, void *to)
{
    e->device = to;
}

static struct pl_cuda_host host = {.state = state, .set_state = set_state, .fail = pl_engine_fail};

/* Once found, found for good: the library stays loaded. */
static const struct pl_ops *load_cuda(struct pl_error *err)
{
    static const struct pl_ops *found;
    char why[PL_TEXT_MAX] = "";
    if (found != NULL)
        return found;
    void *symbol = pl_plugin_open(PL_CUDA_FILE, PL_CUDA_OPEN, err);
    pl_cuda_open_fn *open = NULL;
    if (symbol == NULL)
        return NULL;
    memcpy(&open, &symbol, sizeof open);
    host.shape = pl_cuda_shape();
    found = open(&host, why, sizeof why);
    if (found == NULL)
        (void)pl_fail(err, PELAGO_UNSUPPORTED, "%s", why);
    return found;
}

void pl_devices_offer(void)
{
    pl_engine_offer("cuda", load_cuda);
}
