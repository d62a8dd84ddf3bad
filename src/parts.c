#include "parts.h"
enum teg_status teg_parts_open(const char *path, const struct teg_manifest *manifest,
                               const struct teg_allocator *allocator, struct teg_mil_program **program,
                               struct teg_error *err)
{
    (void)allocator;
    (void)program;
    (void)manifest;
    FAIL(err, TEG_ERR_UNSUPPORTED, "cannot open model: %.160s: parts: not in this version", path);
}
