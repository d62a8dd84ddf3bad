/* eval/ops_nms.c: non_maximum_suppression.
 *
 * Boxes are taken in descending order of their best class score; one that overlaps a taken box by more than
 * iou_threshold (of the same class, with per_class_suppression) is dropped. What is left free in the outputs is zero,
 * its index -1. Up to iOS16 boxes are [n, B, 4] and scores [n, B, K], there is a score_threshold, the best box is taken
 * where none passes it, and the number of boxes is a fourth output. From iOS17 on the last two dimensions are
 * exchanged, and neither threshold nor count exist. */
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "eval/eval.h"

struct nms {
    const float *boxes, *scores; /* of one batch */
    size_t n_boxes, n_classes, max_boxes;
    size_t box_step, box_part, score_step, score_part; /* strides: of a box and inside it */
    size_t out_box_step, out_box_part, out_score_step, out_score_part;
    float iou_threshold, score_threshold;
    bool per_class;
    float *best;       /* by box: best score; NaN never */
    int32_t *of_class; /* by box: its class */
    uint32_t *order;   /* boxes by descending best */
};

static void rank_boxes(const struct nms *s)
{
    for (size_t b = 0; b < s->n_boxes; b++) {
        s->best[b] = -INFINITY;
        s->of_class[b] = 0;
        for (size_t k = 0; k < s->n_classes; k++) {
            const float v = s->scores[b * s->score_step + k * s->score_part];
            if (v > s->best[b]) {
                s->best[b] = v;
                s->of_class[b] = (int32_t)k;
            }
        }
    }
    /* Insertion by halving: stable, and boxes are thousands at most. */
    for (size_t b = 0; b < s->n_boxes; b++) {
        size_t low = 0, high = b;
        while (low < high) {
            const size_t middle = (low + high) / 2;
            if (s->best[s->order[middle]] >= s->best[b])
                low = middle + 1;
            else
                high = middle;
        }
        memmove(s->order + low + 1, s->order + low, (b - low) * sizeof *s->order);
        s->order[low] = (uint32_t)b;
    }
}

/* Intersection over union of boxes given as centre and size. */
static float overlap(const struct nms *s, size_t a, size_t b)
{
    const float *const p = s->boxes + a * s->box_step, *const q = s->boxes + b * s->box_step;
    const size_t w = 2 * s->box_part, h = 3 * s->box_part, y = s->box_part;
    const float left = fmaxf(p[0] - 0.5f * p[w], q[0] - 0.5f * q[w]),
                right = fminf(p[0] + 0.5f * p[w], q[0] + 0.5f * q[w]);
    const float low = fmaxf(p[y] - 0.5f * p[h], q[y] - 0.5f * q[h]),
                high = fminf(p[y] + 0.5f * p[h], q[y] + 0.5f * q[h]);
    const float shared = fmaxf(0, right - left) * fmaxf(0, high - low);
    return shared / (p[w] * p[h] + q[w] * q[h] - shared);
}

/* Fills taken[] with the boxes that stay; returns how many. */
static size_t suppress(const struct teg_eval_call *c, const struct nms *s, uint32_t *taken)
{
    size_t n = 0;
    for (size_t i = 0; i < s->n_boxes && n < s->max_boxes && !teg_op_stopped(c); i++) {
        const uint32_t b = s->order[i];
        bool stays = s->best[b] > s->score_threshold;
        for (size_t t = 0; stays && t < n; t++)
            stays = (s->per_class && s->of_class[taken[t]] != s->of_class[b]) ||
                    !(overlap(s, taken[t], b) > s->iou_threshold);
        if (stays)
            taken[n++] = b;
    }
    return n;
}

static enum teg_status scratch_of(struct teg_eval_call *c, struct nms *s, uint32_t **taken)
{
    void *memory;
    TRY(teg_op_scratch(c, s->n_boxes, 4 * sizeof(uint32_t), &memory));
    s->best = memory;
    s->of_class = (int32_t *)memory + s->n_boxes;
    s->order = (uint32_t *)memory + 2 * s->n_boxes;
    *taken = (uint32_t *)memory + 3 * s->n_boxes;
    return TEG_OK;
}

static enum teg_status thresholds(struct teg_eval_call *c, struct nms *s, int32_t *max_boxes)
{
    TRY(teg_arg_float(c, "iou_threshold", 0, &s->iou_threshold));
    TRY(teg_arg_float(c, "score_threshold", -INFINITY, &s->score_threshold));
    TRY(teg_arg_int(c, "max_boxes", 0, max_boxes));
    TRY(teg_arg_bool(c, "per_class_suppression", false, &s->per_class));
    if (*max_boxes < 0)
        OP_FAIL(c, TEG_ERR_FORMAT, "parameter max_boxes: expected a number from 0, found %d", *max_boxes);
    s->max_boxes = (size_t)*max_boxes;
    return TEG_OK;
}

static void put(const struct nms *s, size_t i, uint32_t box, float *boxes, float *scores)
{
    for (size_t k = 0; k < 4; k++)
        boxes[i * s->out_box_step + k * s->out_box_part] = s->boxes[box * s->box_step + k * s->box_part];
    for (size_t k = 0; k < s->n_classes; k++)
        scores[i * s->out_score_step + k * s->out_score_part] = s->scores[box * s->score_step + k * s->score_part];
}

static enum teg_status run(struct teg_eval_call *c, bool boxes_last)
{
    const struct teg_array *boxes, *scores;
    struct teg_array *out_boxes, *out_scores, *out_indices, *out_count = NULL;
    struct nms s = {0};
    int32_t max_boxes;
    uint32_t *taken;
    TRY(teg_arg_form(c, "boxes", TEG_FORM_F32, &boxes));
    TRY(teg_arg_form(c, "scores", TEG_FORM_F32, &scores));
    TRY(thresholds(c, &s, &max_boxes));
    const uint32_t of_box = boxes_last ? 2 : 1, of_part = boxes_last ? 1 : 2;
    if (boxes->rank != 3 || scores->rank != 3 || boxes->dims[of_part] != 4 || boxes->dims[0] != scores->dims[0] ||
        boxes->dims[of_box] != scores->dims[of_box])
        OP_FAIL(c, TEG_ERR_FORMAT,
                "parameter boxes: expected four numbers for each of the scores' boxes, found shapes %s "
                "and %s",
                teg_shape_text(boxes->rank, boxes->dims).text, teg_shape_text(scores->rank, scores->dims).text);
    const size_t n_batch = boxes->dims[0], n = boxes->dims[of_box], k = scores->dims[of_part], m = s.max_boxes;
    s.n_boxes = n;
    s.n_classes = k;
    s.box_step = boxes_last ? 1 : 4;
    s.box_part = boxes_last ? n : 1;
    s.score_step = boxes_last ? 1 : k;
    s.score_part = boxes_last ? n : 1;
    s.out_box_step = boxes_last ? 1 : 4;
    s.out_box_part = boxes_last ? m : 1;
    s.out_score_step = boxes_last ? 1 : k;
    s.out_score_part = boxes_last ? m : 1;
    TRY(scratch_of(c, &s, &taken));
    TRY(teg_output(c, 0, TEG_FORM_F32, 3,
                   boxes_last ? (const size_t[]){n_batch, 4, m} : (const size_t[]){n_batch, m, 4}, &out_boxes));
    TRY(teg_output(c, 1, TEG_FORM_F32, 3,
                   boxes_last ? (const size_t[]){n_batch, k, m} : (const size_t[]){n_batch, m, k}, &out_scores));
    TRY(teg_output(c, 2, TEG_FORM_I32, 2, (const size_t[]){n_batch, m}, &out_indices));
    if (!boxes_last)
        TRY(teg_output(c, 3, TEG_FORM_I32, 1, &n_batch, &out_count));
    memset(out_boxes->data, 0, out_boxes->n_bytes);
    memset(out_scores->data, 0, out_scores->n_bytes);
    memset(out_indices->data, 0xff, out_indices->n_bytes); /* -1 */
    for (size_t batch = 0; batch < n_batch; batch++) {
        s.boxes = boxes->f32 + batch * 4 * n;
        s.scores = scores->f32 + batch * k * n;
        rank_boxes(&s);
        size_t n_taken = suppress(c, &s, taken);
        if (!n_taken && !boxes_last && n && m)
            taken[n_taken++] = s.order[0];
        for (size_t i = 0; i < n_taken; i++) {
            put(&s, i, taken[i], out_boxes->f32 + batch * 4 * m, out_scores->f32 + batch * k * m);
            out_indices->i32[batch * m + i] = (int32_t)taken[i];
        }
        if (out_count)
            out_count->i32[batch] = (int32_t)n_taken;
    }
    return TEG_OK;
}

static enum teg_status op_nms_15(struct teg_eval_call *c)
{
    return run(c, false);
}

static enum teg_status op_nms_17(struct teg_eval_call *c)
{
    return run(c, true);
}

const struct teg_eval_row teg_eval_rows_nms[] = {
    {"non_maximum_suppression", 6, op_nms_15},
    {"non_maximum_suppression", 8, op_nms_17},
    {NULL, 0, NULL},
};
