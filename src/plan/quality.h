/* plan/quality.h - what fewer exchanges, fewer bits, later exchanges and more learners cost in loss, and that in tokens.
 *
 * A small model with published figures only (docs/planner.md names each), so that a plan can weigh a thin link against a
 * longer training. Losses are relative: 0.01 is a loss one per cent higher than data-parallel training's.
 */
#ifndef PL_PLAN_QUALITY_H
#define PL_PLAN_QUALITY_H

#include "codec/codec.h"

double pl_quality_period(double steps); /* inner steps between two merges of a learner's fragment */
double
pl_quality_overlap(double share); /* from copying a fragment to having its merge, of the time between two */
double pl_quality_codec(enum pl_codec codec);            /* one direction */
double pl_quality_learners(double params, double count); /* at a period of 30 */

/* The share of tokens that counts when the loss is so much higher: L falls as tokens to the power of -0.048, half of the
 * exponent with which it falls when parameters and tokens grow together (PAPER 11.5). */
double pl_quality_tokens(double loss);

/* On the link; bits of a parameter with its share of a block's scale. */
double pl_quality_bits(enum pl_codec codec);

#endif
