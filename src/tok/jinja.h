/* tok/jinja.h: the subset of Jinja that real chat templates use.
 *
 * A template is parsed once and rendered with a JSON object of variables. What the subset lacks is an error that names
 * the construct and its line, never a wrong text. Semantics are those of jinja2 as transformers configures it:
 * ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]), tojson without HTML
 * escaping and with ensure_ascii=False, raise_exception(message) and strftime_now(format) as globals. */
#ifndef TEG_TOK_JINJA_H
#define TEG_TOK_JINJA_H

#include "base/text.h"

struct teg_jinja;

enum teg_status teg_jinja_parse(const char *source, size_t n_bytes, struct teg_jinja **jinja, struct teg_error *err);
void teg_jinja_free(struct teg_jinja *jinja);

/* `variables_json`: an object, e.g. {"messages":[…],"add_generation_prompt":true,"bos_token":"<s>"}. Object order is
 * kept. now_unix: what strftime_now formats (local time). Work and memory are bounded: a template that loops or grows
 * without end is an error. */
enum teg_status teg_jinja_render(const struct teg_jinja *jinja, const char *variables_json, size_t n_bytes,
                                 int64_t now_unix, struct teg_text *text, struct teg_error *err);

#endif
