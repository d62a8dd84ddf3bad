/* tok/tok.h: bytes <-> token ids.
 *
 * A tokenizer is made from GGUF metadata (tokenizer.ggml.*), from a Hugging Face tokenizer.json or from SentencePiece's
 * tokenizer.model, and is immutable after that. Three models of text: byte-level BPE (merge ranks, a pre-tokenizer
 * splits first), SentencePiece BPE (scores, U+2581 for space, byte fallback) and unigram (the segmentation with the
 * best sum of scores). Special tokens are cut out of the text before any of them sees it. */
#ifndef TEG_TOK_TOK_H
#define TEG_TOK_TOK_H

#include "base/arena.h"
#include "base/text.h"
#include "format/source.h"

struct teg_tok;

/* Does the file look like SentencePiece's tokenizer.model? false also where it cannot be read. */
bool teg_tok_is_sentencepiece(const char *path);
/* From what the source holds: GGUF keys, or the safetensors directory's tokenizer.json or tokenizer.model (+
 * tokenizer_config.json).
 * `path` not NULL: from that file instead (a tokenizer.json, a tokenizer.model or a GGUF); then source may be NULL. The
 * tokenizer refers to the source's token texts, so the source must outlive it. */
enum teg_status teg_tok_open(const struct teg_source *source, const char *path, const struct teg_allocator *allocator,
                             struct teg_tok **tok, struct teg_error *err);
/* A GGUF, or a tokenizer.json or tokenizer.model with what stands beside it (tokenizer_config.json,
 * chat_template.jinja, generation_config.json). */
enum teg_status teg_tok_open_folder(const char *path, const struct teg_allocator *allocator, struct teg_tok **tok,
                                    struct teg_error *err);
void teg_tok_free(struct teg_tok *tok);

size_t teg_tok_size(const struct teg_tok *tok); /* ids are 0 … size-1 */

/* See teg_tokenize in tegula.h, whose flags and rules these are. BOS (and EOS) are what the file's own rules add:
 * tokenizer.ggml.add_bos_token and add_eos_token (by default SentencePiece and Llama 3 add BOS), or the template of
 * tokenizer.json's post_processor. BOS is not added to a text that begins with it under TEG_TOKENIZE_SPECIAL, as the
 * output of many chat templates does. */
enum teg_status teg_tok_encode(const struct teg_tok *tok, const char *text, size_t n_bytes, unsigned flags,
                               int32_t *ids, size_t capacity, size_t *n_ids, struct teg_error *err);
/* Appends the bytes of one id as they stand inside a text (SentencePiece: U+2581 is a space); special tokens as
 * written. False when the id is outside the vocabulary. */
bool teg_tok_piece(const struct teg_tok *tok, int32_t id, struct teg_buf *out);
/* A whole text: as above, and SentencePiece's added leading space is removed again. */
enum teg_status teg_tok_decode(const struct teg_tok *tok, const int32_t *ids, size_t n_ids, struct teg_buf *out,
                               struct teg_error *err);

int32_t teg_tok_bos(const struct teg_tok *tok); /* -1: none */
int32_t teg_tok_eos(const struct teg_tok *tok);
bool teg_tok_is_end(const struct teg_tok *tok, int32_t id); /* EOS, EOT, and the other ends of generation */
/* The text of the id as the vocabulary has it, for templates' bos_token and eos_token; {NULL,0} for -1. */
struct teg_string teg_tok_text(const struct teg_tok *tok, int32_t id);
/* The chat template's source; {NULL,0} when there is none. */
struct teg_string teg_tok_chat_template(const struct teg_tok *tok);

/* Streaming (tok/stream.c): implements teg_stream_* of tegula.h over a tokenizer. */
struct teg_stream;
enum teg_status teg_tok_stream_new(const struct teg_tok *tok, const char *const *stops, size_t n_stops,
                                   struct teg_stream **stream, struct teg_error *err);

#endif
