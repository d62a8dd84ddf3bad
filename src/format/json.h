/* format/json.h: JSON text into jansson values, and those into metadata. Text that nests deeper than 64 or has
 * absurdly many values for its length is refused before jansson sees it. */
#ifndef TEG_FORMAT_JSON_H
#define TEG_FORMAT_JSON_H

#include <jansson.h>

#include "format/source.h"

/* The object in `text`, which begins at byte `offset` of the file; json_decref it. `what` names the format in
 * messages: "config.json". A key that comes twice in one object is an error. */
enum teg_status teg_json_object(struct teg_span text, const char *what, const char *path, uint64_t offset,
                                json_t **object, struct teg_error *err);

/* The members of `object` as metas, keys preceded by key_prefix; *metas has room for json_object_size(object). */
enum teg_status teg_json_metas(struct teg_arena *arena, json_t *object, const char *key_prefix, struct teg_meta *metas,
                               struct teg_error *err);

#endif
