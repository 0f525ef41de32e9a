/* support/fake_device.h - a back end with a device that is none: ref's operations, on memory that the host cannot touch.
 *
 * What operations alone may use has addresses that fault when the host reads or writes them; parameters that change without
 * a word, or after begin, are not seen; gradients are NaN at home until they are brought there. So whoever forgets one of these fails here, without a GPU.
 */
#ifndef PL_TEST_FAKE_DEVICE_H
#define PL_TEST_FAKE_DEVICE_H

#include "base/status.h"
#include "model/ops.h"

/* For pl_engine_offer("fake", fake_device_load). */
const struct pl_ops *fake_device_load(struct pl_error *err);

/* How it is, until the next load. */
struct fake_device {
    uint32_t logit_rows;  /* 0: as many as ref */
    bool absent, closed;  /* load finds nothing; open fails */
    uint32_t memory_left; /* pieces of memory before there is no more; 0: enough */
    bool breaks;          /* at the next finish */
};
extern struct fake_device fake_device;
/* Pieces of memory that nobody has given back. */
uint32_t fake_device_pieces(void);

#endif
