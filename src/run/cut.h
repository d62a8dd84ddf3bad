/* run/cut.h: how a step is cut into slices. */
#ifndef TEG_RUN_CUT_H
#define TEG_RUN_CUT_H

#include <stddef.h>

/* A product [n_rows, n]: slices of `columns` columns (a multiple of TEG_QGEMM_COLUMNS) and `rows` rows, the last ones
 * shorter; columns of one range of rows follow one another. */
struct teg_linear_cut {
    size_t columns, rows, n_column_slices, n_slices;
};
struct teg_linear_cut teg_cut_linear(size_t n, size_t n_rows, size_t n_threads);

/* Rows of a lane, a run of rows that one thread takes through all steps; n_rows: lanes would not pay. width: of the
 * model. */
size_t teg_cut_lanes(size_t width, size_t n_rows, size_t n_threads);

/* Attention: blocks of `tokens` tokens, so that tokens · group fills the kernel's rows; a group too wide for that in
 * parts. Units are blocks, then KV heads, then parts. Where n_ranges > 1, each unit is a slice for each of that many
 * ranges of keys at a time. */
struct teg_attention_cut {
    size_t group, group_part, n_parts, tokens, n_blocks, n_units, n_ranges;
};
/* n_ranges: of the keys that the rows see; 1 where they cannot be cut. */
struct teg_attention_cut teg_cut_attention(size_t n_heads, size_t n_kv_heads, size_t n_rows, size_t n_ranges,
                                           size_t n_threads);
/* Rows times ranges at a time, at most: what memory there is for states. */
#define TEG_CUT_STATES 16

#endif
