/* base/filemap.h: a regular file, read-only, in memory. Directories, FIFOs and devices are refused with a sentence
 * that says so, because opening them would block or succeed and then fail far from the cause. */
#ifndef TEG_BASE_FILEMAP_H
#define TEG_BASE_FILEMAP_H

#include "base/error.h"

struct teg_filemap {
    const uint8_t *bytes; /* NULL for an empty file */
    size_t n_bytes;
};

/* `what` starts the message: "cannot open model". */
enum teg_status teg_filemap_open(struct teg_filemap *map, const char *path, const char *what, struct teg_error *err);
void teg_filemap_close(struct teg_filemap *map);
/* Tells the kernel that these bytes will not be read again soon; they stay valid. */
void teg_filemap_release(const struct teg_filemap *map, size_t offset_bytes, size_t n_bytes);

#endif
