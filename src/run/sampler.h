/* run/sampler.h: implements teg_sampler_* of tegula.h, except _new, which needs a model. */
#ifndef TEG_RUN_SAMPLER_H
#define TEG_RUN_SAMPLER_H

#include "base/arena.h"

enum teg_status teg_run_sampler_new(size_t n_vocab, const struct teg_sampler_options *options,
                                    const struct teg_allocator *allocator, struct teg_sampler **sampler,
                                    struct teg_error *err);

#endif
