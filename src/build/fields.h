/* build/fields.h: the keys that hold hyperparameters, as tables (fields.c). Private to build/.
 *
 * A row names a field of struct teg_hparams, its GGUF key (after "<arch>."), its config.json key, its type and whether
 * it must be there. A key that no row has, and that is not known to be harmless, may be the one that makes a model
 * different: hparams.c refuses it. */
#ifndef TEG_BUILD_FIELDS_H
#define TEG_BUILD_FIELDS_H

#include "build/hparams.h"

enum teg_field_type { FIELD_U32, FIELD_F32, FIELD_BOOL, FIELD_BOOLS, FIELD_F32S, FIELD_SPECIAL, FIELD_IGNORED };

struct teg_field {
    const char *gguf, *json; /* NULL: not in such files */
    enum teg_field_type type;
    size_t offset; /* in struct teg_hparams */
    bool required;
};

/* What the key means for this family, or NULL. GGUF: without the architecture in front. */
const struct teg_field *teg_field_find(const struct teg_hparams *hp, const char *key);
/* As find, inside config.json's rope_scaling or rope_parameters. */
const struct teg_field *teg_field_find_rope(const struct teg_hparams *hp, const char *key);
/* The i-th row that a file of any family may have; NULL: there are no more. */
const struct teg_field *teg_field_at(size_t i);
/* The key of that row as files of this family spell it. */
const char *teg_field_key(const struct teg_hparams *hp, const struct teg_field *field);

#endif
