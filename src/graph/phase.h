/* graph/phase.h: which part of a training step the ops of a trace belong to. */
#ifndef GD_GRAPH_PHASE_H
#define GD_GRAPH_PHASE_H

#include <gradus/tensor.h>

/* The part of a training step that an op belongs to: for the times of each, compile/timed.h. */
typedef enum gd_phase { GD_PHASE_FORWARD, GD_PHASE_BACKWARD, GD_PHASE_UPDATE, GD_PHASES } gd_phase;

/* Ops are of that phase from here on; returns the one before. Outside of a trace nothing happens. */
gd_phase gd_trace_set_phase(gd_context *context, gd_phase phase);

#endif
