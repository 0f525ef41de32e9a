/* codec/feedback.h - what an encoding loses is kept, and goes with what is encoded next: error feedback.
 *
 *   wanted   = change + decay * residual          pl_feedback_add
 *   sent     = encoding of wanted                 pl_feedback_encode
 *   residual = wanted - sent
 *
 * A learner has another place for what it did not send: its own values. There it is part of the next change by itself, and
 * the learner trains on from where it is. With a residual beside them it goes back to what was sent, and does the
 * rest again: where most is left behind, as in top-k, that is done many times over before it is sent once.
 *
 * With a decay of 1 nothing is ever lost. Top-k leaves most values behind and sends them many rounds later, when they
 * are no longer quite true: there a residual may fade, published is 0.95 a round. What a syncer sends has no decay: its
 * residual is the distance between its own parameters and those it has told everybody, which must not grow.
 *
 * Selective encoding also holds back whole blocks, chunks in top-k, that changed little beside the others of their array:
 * they are written as zeros, which the envelope's zstd makes nearly free, and wait in the residual until they
 * are worth sending.
 */
#ifndef PL_CODEC_FEEDBACK_H
#define PL_CODEC_FEEDBACK_H

#include "codec/codec.h"

/* The published decay (PAPER 11.6): 0.95 for top-k, else 1. A run's own default is 1 (host/settings.c). */
float pl_feedback_decay(enum pl_codec codec);

/* Moves this share of the residual to where the learner was: snapshot[i] += local * residual[i]. Whoever then moves from
 * the snapshot to a new value keeps it. */
void pl_feedback_keep(float *snapshot, float *residual, size_t n, float local);

/* change[i] += decay * residual[i] */
void pl_feedback_add(float *change, const float *residual, size_t n, float decay);

/* As pl_codec_encode_feedback. A block whose root mean square is below selective times that of all values is held back:
 * all its bytes are zero and its values stay. 0 <= selective < 1; 0 holds nothing back. */
bool pl_feedback_encode(enum pl_codec codec, float *values, size_t n, float selective, uint8_t *out);

/* Whether the envelope should try zstd: plain floats hardly get shorter, unless blocks of them are held back. */
bool pl_feedback_squeezes(enum pl_codec codec, float selective);

#endif
