/* convert_parts.c: a model as several packages in one folder, whole layers each, and the tegula.json that joins them.
 *
 * Parts are lowered and written one after the other into a folder that gets its name when the last is whole
 * (convert_folder.c). */
#include <string.h>

#include "convert_model.h"

/* tegula.json: docs/FORMATS.md. */
static enum teg_status write_join(const struct teg_convert_job *j, const struct teg_convert_folder *folder, uint32_t n)
{
    struct teg_buf out = {0};
    struct teg_text text = {0};
    teg_buf_printf(&out, "{\n  \"format\": 1,\n  \"context\": %u,\n  \"chunk\": %u,\n", j->lower.context,
                   j->lower.chunk);
    if (j->in.n_items)
        teg_buf_printf(&out, "  \"tokenizer\": \"%s\",\n", j->in.items[0].name);
    teg_buf_puts(&out, "  \"parts\": [\n");
    for (uint32_t i = 0; i < n; i++)
        teg_buf_printf(&out,
                       "    {\"path\": \"part-%u.mlpackage\", \"functions\": {\"prefill\": \"prefill\", \"decode\": "
                       "\"decode\"}}%s\n",
                       i + 1, i + 1 < n ? "," : "");
    teg_buf_puts(&out, "  ]\n}\n");
    TRY(teg_buf_take(&out, &text, "tegula.json", j->err));
    const enum teg_status status = teg_convert_folder_write(folder, "tegula.json", text.bytes, text.n_bytes);
    teg_text_free(&text);
    return status;
}

static enum teg_status write_parts_into(struct teg_convert_job *j, const struct teg_convert_folder *folder)
{
    uint32_t first[TEG_CONVERT_MOST_PARTS], n = 0;
    TRY(teg_lower_parts(j->in.graph, &j->lower, j->o.part_bytes, j->o.n_parts, first, TEG_CONVERT_MOST_PARTS, &n,
                        j->err));
    const uint32_t n_layers = teg_lower_n_layers(j->in.graph);
    for (uint32_t i = 0; i < n; i++) {
        const char *const path = teg_arena_printf(&j->in.arena, "%s/part-%u.mlpackage", folder->hidden, i + 1);
        if (!path)
            return teg_base_fail_memory(j->err, "path", strlen(folder->hidden));
        j->lower.first_layer = first[i];
        j->lower.n_layers = (i + 1 < n ? first[i + 1] : n_layers) - first[i];
        TRY(teg_convert_write(j, path));
    }
    for (size_t i = 0; i < j->in.n_items; i++) {
        const struct teg_emit_item *const item = &j->in.items[i];
        TRY(teg_convert_folder_write(folder, item->name, item->bytes.bytes, item->bytes.n_bytes));
    }
    return write_join(j, folder, n);
}

enum teg_status teg_convert_write_parts(struct teg_convert_job *j)
{
    struct teg_convert_folder folder = {.verb = "convert", .err = j->err};
    TRY(teg_convert_folder_begin(&folder, j->output, &j->in.arena));
    return teg_convert_folder_end(&folder, write_parts_into(j, &folder));
}
