/* tok/tok_folder.c: a tokenizer.json or tokenizer.model with what stands beside it: tokenizer_config.json,
 * chat_template.jinja and generation_config.json, each of which may be absent. So a package that holds a model's
 * tokenizer files behaves as the model's own directory does. */
#include <string.h>
#include <unistd.h>

#include "base/filemap.h"
#include "format/json.h"
#include "tok/tok_int.h"

const char *teg_tok_beside(struct teg_tok *tok, const char *path, const char *name)
{
    const char *const slash = strrchr(path, '/');
    const char *const other = teg_arena_printf(&tok->arena, "%.*s%s", slash ? (int)(slash - path) + 1 : 0, path, name);
    return other && access(other, R_OK) == 0 ? other : NULL;
}

static void read_ends(struct teg_tok *tok, const json_t *root)
{
    const json_t *const ends = json_object_get(root, "eos_token_id"), *const bos =
                                                                          json_object_get(root, "bos_token_id");
    const json_int_t first = json_integer_value(json_is_array(ends) ? json_array_get(ends, 0) : ends);
    if (json_is_integer(ends))
        teg_tok_add_end(tok, json_integer_value(ends));
    for (size_t i = 0; i < json_array_size(ends); i++)
        if (json_is_integer(json_array_get(ends, i)))
            teg_tok_add_end(tok, json_integer_value(json_array_get(ends, i)));
    if (tok->eos < 0 && ends && first >= 0 && (uint64_t)first < tok->vocab.n)
        tok->eos = (int32_t)first;
    if (tok->bos < 0 && json_is_integer(bos) && json_integer_value(bos) >= 0 &&
        (uint64_t)json_integer_value(bos) < tok->vocab.n)
        tok->bos = (int32_t)json_integer_value(bos);
}

static enum teg_status open_ends(struct teg_tok *tok, const char *path, struct teg_error *err)
{
    struct teg_filemap map;
    json_t *root = NULL;
    if (!path)
        return TEG_OK;
    TRY(teg_filemap_open(&map, path, "cannot read the tokenizer", err));
    const struct teg_span text = {map.bytes, map.n_bytes};
    const enum teg_status status = teg_json_object(text, "generation_config.json", path, 0, &root, err);
    if (status == TEG_OK)
        read_ends(tok, root);
    json_decref(root);
    teg_filemap_close(&map);
    return status;
}

enum teg_status teg_tok_read_folder(struct teg_tok *tok, const char *path, struct teg_error *err)
{
    const char *const config = teg_tok_beside(tok, path, "tokenizer_config.json");
    const char *const template = teg_tok_beside(tok, path, "chat_template.jinja");
    TRY(teg_tok_from_file(tok, path, config, template, err));
    return open_ends(tok, teg_tok_beside(tok, path, "generation_config.json"), err);
}
