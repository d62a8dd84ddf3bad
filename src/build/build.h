/* build/build.h: source -> graph. One builder file per model family says what its forward pass is; everything it needs
 * to know comes from the file's metadata, never from its name. An architecture, a key or a tensor whose meaning is not
 * known is an error that names it: a guess would answer wrongly and look right. */
#ifndef TEG_BUILD_BUILD_H
#define TEG_BUILD_BUILD_H

#include "build/hparams.h"
#include "format/source.h"
#include "graph/graph.h"

/* Everything is allocated in `arena`; constants point into the source, which must outlive the graph. */
enum teg_status teg_build(const struct teg_source *source, struct teg_arena *arena, struct teg_graph **graph,
                          struct teg_hparams *hparams, struct teg_error *err);

#endif
