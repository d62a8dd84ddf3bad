/* manifest.h: tegula.json, what a language model's packages do not say of themselves: docs/FORMATS.md, "tegula.json".
 */
#ifndef TEG_MANIFEST_H
#define TEG_MANIFEST_H

#include "base/arena.h"

/* What an input or output means in a call for T tokens after P others. */
enum teg_lm_role {
    TEG_LM_UNKNOWN,
    TEG_LM_TOKENS,    /* the ids of the call */
    TEG_LM_HIDDEN,    /* activations, from the part before */
    TEG_LM_POSITIONS, /* P … P + T - 1 */
    TEG_LM_POSITION,  /* P */
    TEG_LM_LENGTH,    /* P + T */
    TEG_LM_LAST,      /* T - 1: the row of the last token */
    TEG_LM_MASK,      /* [..., T, S]: 0 where a row sees the slot, else -inf; integers and bools: 1, else 0 */
    TEG_LM_KEEP,      /* [..., S]: 1 for each of the P + T tokens */
    TEG_LM_WRITES,    /* [..., S, ...]: 1 for the slots that the call writes */
    TEG_LM_CACHE,     /* keys or values: an output of the call before; outputs: an input of the next */
    TEG_LM_LOGITS,
    TEG_LM_IGNORED, /* outputs */
    TEG_LM_ROLE_COUNT
};
/* "tokens", as tegula.json has it. */
const char *teg_lm_role_name(enum teg_lm_role role);

struct teg_lm_naming {
    const char *name;
    enum teg_lm_role role;
};

struct teg_lm_functions {
    const char *prefill, *decode; /* NULL: found by their inputs */
};

struct teg_lm_part {
    const char *path; /* as it can be opened */
    struct teg_lm_functions functions;
};

/* Zero where the file does not say. */
struct teg_manifest {
    const char *path; /* NULL: there is no file */
    const char *tokenizer;
    struct teg_lm_naming *inputs, *outputs;
    size_t n_inputs, n_outputs;
    struct teg_lm_functions functions;
    uint32_t context, chunk;
    bool evaluate;   /* op by op, even where the program is recognised */
    bool overwrites; /* slots after the last token are hidden, and written before they are seen */
    struct teg_lm_part *parts;
    size_t n_parts;
};

/* Reads the file `path`; everything lies in `arena`. Relative paths in it are relative to its folder. */
enum teg_status teg_manifest_read(const char *path, struct teg_arena *arena, struct teg_manifest *manifest,
                                  struct teg_error *err);

#endif
