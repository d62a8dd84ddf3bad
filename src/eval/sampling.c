/* eval/sampling.c: where the points of a resized axis lie; see sampling.h. In double: a float index is wrong from 2^24
 * on, and a point must not fall to the other side of a pixel by rounding. */
#include "eval/sampling.h"

enum teg_status teg_sampling_read(const struct teg_eval_call *c, const char *name, enum teg_sampling *mode)
{
    static const char *const names[] = {[TEG_SAMPLE_DEFAULT] = "DEFAULT",
                                        [TEG_SAMPLE_STRICT] = "STRICT_ALIGN_CORNERS",
                                        [TEG_SAMPLE_ALIGN] = "ALIGN_CORNERS",
                                        [TEG_SAMPLE_OFFSET] = "OFFSET_CORNERS",
                                        [TEG_SAMPLE_UNALIGN] = "UNALIGN_CORNERS"};
    struct teg_string text;
    TRY(teg_arg_string(c, name, "DEFAULT", &text));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (teg_string_is(text, names[i])) {
            *mode = (enum teg_sampling)i;
            return TEG_OK;
        }
    OP_FAIL(c, TEG_ERR_FORMAT,
            "parameter %s: expected DEFAULT, STRICT_ALIGN_CORNERS, ALIGN_CORNERS, OFFSET_CORNERS or "
            "UNALIGN_CORNERS, found \"%.*s\"",
            name, (int)(text.n_bytes < 60 ? text.n_bytes : 60), text.bytes);
}

double teg_sampling_point(enum teg_sampling mode, double start, double end, size_t n, size_t i)
{
    const double at = (double)i, count = (double)n, length = end - start;
    switch (mode) {
    case TEG_SAMPLE_STRICT:
        return n > 1 ? start + at * length / (count - 1) : start;
    case TEG_SAMPLE_ALIGN:
        return n > 1 ? start + at * length / (count - 1) : start + length / 2;
    case TEG_SAMPLE_OFFSET:
        return start + (at + 0.5) * (length > 1 ? length : 1) / count;
    case TEG_SAMPLE_UNALIGN:
        return start + (at + 0.5) * length / count - 0.5;
    default:
        return start + at * length / count;
    }
}

double teg_sampling_axis(enum teg_sampling mode, size_t n_in, size_t n, size_t i)
{
    const bool by_pixel = mode == TEG_SAMPLE_DEFAULT || mode == TEG_SAMPLE_UNALIGN;
    const double last = (double)n_in - 1, point = teg_sampling_point(mode, 0, by_pixel ? last + 1 : last, n, i);
    return point < 0 ? 0 : point > last ? last : point;
}
