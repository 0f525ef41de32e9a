/* sim/faults.h - what breaks: actions on nodes and links, and the random plan that draws them. */
#ifndef PL_SIM_FAULTS_H
#define PL_SIM_FAULTS_H

#include "sim/world.h"

/* Begins to break things at random, as the options say, until the world is healed. */
void pl_faults_begin(struct pl_world *w);

/* The end of the safety phase: everything is mended and started again. */
void pl_faults_heal(struct pl_world *w);

#endif
