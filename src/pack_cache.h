/* pack_cache.h: which file holds a model's packed weights, and what says that the model's files are the same. */
#ifndef TEG_PACK_CACHE_H
#define TEG_PACK_CACHE_H

#include "plan/plan.h"

/* The cache of the model at `path` in the folder options->pack_cache_dir, which is made where it is missing. The path
 * lives in the arena. cache->path NULL where options ask for none, or after a warning, where there can be none. */
enum teg_status teg_pack_cache_of(const char *path, const struct teg_model_options *options,
                                  const struct teg_plan *plan, struct teg_arena *arena, struct teg_pack_cache *cache,
                                  struct teg_error *err);

#endif
