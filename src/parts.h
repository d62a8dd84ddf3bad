/* parts.h: several packages that are one language model, as one program. */
#ifndef TEG_PARTS_H
#define TEG_PARTS_H

#include "manifest.h"
#include "mil/program.h"

/* Opens the parts of a tegula.json and joins them: `path` is the model's name in messages. The caller frees *program.
 */
enum teg_status teg_parts_open(const char *path, const struct teg_manifest *manifest,
                               const struct teg_allocator *allocator, struct teg_mil_program **program,
                               struct teg_error *err);

#endif
