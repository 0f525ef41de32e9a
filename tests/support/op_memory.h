/* support/op_memory.h - the buffers of op_rig.h: values drawn at setup, guarded memory made anew for each run. */
#ifndef PL_TEST_OP_MEMORY_H
#define PL_TEST_OP_MEMORY_H

#include "op_rig.h"

/* Memory for a run on e, filled: NaN everywhere but in what goes in. sharing: honour op_share. */
void op_memory_make(struct op_rig *r, struct pl_engine *e, bool sharing);
/* Where the run wrote what it must not have written, as words; NULL when nowhere. */
const char *op_memory_spoilt(const struct op_buf *b, const struct pl_engine *e);
void op_memory_read(const struct op_buf *b, const struct pl_engine *e, float *values);
void op_memory_free(struct op_rig *r, struct pl_engine *e);
/* What setup has made. */
void op_buffers_free(struct op_rig *r);

/* To what activations of r->act_bytes can hold. */
void op_round_values(const struct op_rig *r, float *values, size_t count);

#endif
