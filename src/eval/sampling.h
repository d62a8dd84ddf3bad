/* eval/sampling.h: where the points of a resized axis lie; shared by resizing and by cropping boxes.
 *
 * A mode places n_out points over a stretch of an axis. Resizing whole axes is the stretch [0, n_in - 1] for modes that
 * count from pixel centre to pixel centre, [0, n_in] for those that count pixels. */
#ifndef TEG_EVAL_SAMPLING_H
#define TEG_EVAL_SAMPLING_H

#include "eval/eval.h"

enum teg_sampling {
    TEG_SAMPLE_DEFAULT, /* start + i · (end - start) / n */
    TEG_SAMPLE_STRICT,  /* start + i · (end - start) / (n - 1); one point: start */
    TEG_SAMPLE_ALIGN,   /* the same; one point: the middle */
    TEG_SAMPLE_OFFSET,  /* start + (i + 1/2) · max(1, end - start) / n */
    TEG_SAMPLE_UNALIGN, /* start + (i + 1/2) · (end - start) / n - 1/2 */
};

/* Reads a sampling_mode parameter. */
enum teg_status teg_sampling_read(const struct teg_eval_call *c, const char *name, enum teg_sampling *mode);
/* Point i of n; not clamped to the axis. */
double teg_sampling_point(enum teg_sampling mode, double start, double end, size_t n, size_t i);
/* Point i of n over an axis of n_in, clamped to it. */
double teg_sampling_axis(enum teg_sampling mode, size_t n_in, size_t n, size_t i);

#endif
