/* support/op_rig.h - runs one operation of model/ops.h on every back end and compares with the reference.
 *
 * A case says which buffers an operation takes at one shape (setup) and how it is called with them (call). For every
 * shape and variant the rig draws values, lets ref compute what is right, and then, for each back end, gives the
 * operation fresh memory and looks at all of it afterwards:
 *   - outputs are close to ref's: the norm of the difference over the norm of ref's, and each element by itself;
 *   - one thread and three give the same bits;
 *   - nothing else was written: not the inputs, not before or behind a buffer, not the slack rows. Padding columns of
 *     activations may be written; those of floats may not;
 *   - nothing undefined was used: outputs, padding and slack begin as NaN.
 * A back end whose activations are bfloat16 gets, and so does ref, values that bfloat16 can hold: the difference is
 * then the operation's own.
 */
#ifndef PL_TEST_OP_RIG_H
#define PL_TEST_OP_RIG_H

#include "base/prng.h"
#include "model/engine.h"

enum { OP_DIMS = 6, OP_BUFS = 12, OP_BACKENDS = 8, OP_THREADS = 3 };

enum op_type {
    OP_F32 = 1,
    OP_ACT,    /* floats or bfloat16, as the back end has it */
    OP_BF16,   /* always bfloat16 */
    OP_I32,    /* tokens */
    OP_WEIGHT, /* floats, packed by the back end before the call */
};

enum op_use { OP_IN = 1, OP_OUT, OP_INOUT };

struct op_buf {
    const char *name;
    enum op_type type;
    enum op_use use;
    uint32_t rows, cols;
    size_t ld;
    double tolerance; /* relative; 0: exact */
    double floor; /* the size of a typical element is taken to be at least this: terms of size 1 may cancel */
    float *values;       /* (rows, cols) what goes in */
    float *expected;     /* (rows, cols) what ref says */
    float *got[2];       /* (rows, cols) from the back end: several threads, one thread */
    struct op_buf *home; /* where it lies: itself, or the buffer it shares memory with */
    bool written;        /* by this run: it, or one that shares its memory, is an output */
    struct pl_block memory;
    unsigned char *block, *before; /* the memory of this run and a copy of how it began */
    size_t block_bytes;
    void *at;
};

struct op_rig {
    const struct op_case *c;
    uint32_t shape[OP_DIMS], variant, serial; /* serial: number of this shape and variant */
    size_t act_bytes;                         /* of the back ends compared now */
    bool shares;                              /* some buffer shares memory with another */
    struct pl_prng prng;
    struct op_buf bufs[OP_BUFS];
    uint32_t count;
    uint64_t seed;
    uint32_t failures;
    bool quiet;
};

struct op_case {
    const char *name;
    const uint32_t (*shapes)[OP_DIMS];
    uint32_t shape_count, variants;
    void (*setup)(struct op_rig *r);
    void (*call)(struct op_rig *r, struct pl_engine *e);
    bool no_device; /* back ends with a device leave it to the processor */
};

/* For setup. Values are near a normal distribution with this deviation. Tolerances: of back ends with float
 * activations, and with bfloat16. */
struct op_buf *op_in(struct op_rig *r, const char *name, enum op_type type, uint32_t rows, uint32_t cols,
                     double deviation);
struct op_buf *op_out(struct op_rig *r, const char *name, enum op_type type, uint32_t rows, uint32_t cols,
                      double tolerance_f32, double tolerance_bf16);
struct op_buf *op_inout(struct op_rig *r, const char *name, enum op_type type, uint32_t rows, uint32_t cols,
                        double tolerance_f32, double tolerance_bf16);
struct op_buf *op_ids(struct op_rig *r, const char *name, uint32_t rows, uint32_t below, bool some_negative);
/* A row stride: padded as the model does it, padded more, or not at all, changing from shape to shape. */
size_t op_ld(const struct op_rig *r, uint32_t cols);
/* Except in ref's run out lies where in lies. */
void op_share(struct op_rig *r, struct op_buf *out, struct op_buf *in);
/* Makes floats such that bfloat16 holds them, where the back ends compared now do. */
void op_round(const struct op_rig *r, struct op_buf *b);

/* For call. */
void *op_at(const struct op_rig *r, const char *name);     /* NULL when there is no such buffer */
size_t op_ld_of(const struct op_rig *r, const char *name); /* 0 then */

/* A back end as it is tested. */
struct op_backend {
    const char *name;
    struct pl_engine many, one; /* OP_THREADS threads and one */
};
struct op_backends {
    struct op_backend at[OP_BACKENDS];
    uint32_t count;
};

/* op_main.c. All that this machine can run; says which it cannot. */
void op_backends_open(struct op_backends *b);
void op_backends_close(struct op_backends *b);

/* One case on all of these: the number of failures. Says which, unless quiet. */
uint32_t op_check(const struct op_case *c, struct op_backends *b, uint64_t seed, bool quiet);
/* A test program: one test a case, over all these back ends. Returns main's exit code. */
int op_run_cases(const char *title, const struct op_case *const *cases, uint32_t count,
                 struct op_backends *b);
/* The same over all back ends of this machine. */
int op_main(const char *title, const struct op_case *const *cases, uint32_t count);

#endif
