/* model.h: what calibrate.c needs to know of a model; the rest is api.c's own. */
#ifndef TEG_MODEL_H
#define TEG_MODEL_H

#include "graph/graph.h"

/* The graph of a model in exact mode, whose sessions run a plan; NULL: any other. */
const struct teg_graph *teg_model_graph(const struct teg_model *model);

#endif
