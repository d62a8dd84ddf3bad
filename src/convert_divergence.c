/* convert_divergence.c: what errors of weights let expect of the divergence of the next token.
 *
 * Small errors of weights move logits in proportion, and the divergence is a square of that: it grows as e², the square
 * of the relative error, weighed by the values that have it. The factors are what SmolLM2-135M showed over all rules of
 * docs/PERFORMANCE.md: 45 for scales, about twice that for palettes (which lose the large values that scales hold),
 * half for what was calibrated; embedding and head count once each on top, because all passes through them. Not taken:
 * a factor for each layer. Measured once it would be as long as the measurement itself, which --check makes. */
#include <math.h>

#include "convert_model.h"

static const double of_scales = 45, of_palettes = 90, of_plain_palettes = 120, of_calibrated = 20, most = 10;

static double factor_of(const struct teg_quant_rule *rule, bool calibrated)
{
    if (calibrated)
        return of_calibrated;
    if (rule->method != TEG_QUANT_PALETTE)
        return of_scales;
    return rule->plain ? of_plain_palettes : of_palettes;
}

void teg_divergence_add(struct teg_divergence *d, const struct teg_divergence_weight *w)
{
    const double n = (double)w->rows * (double)w->columns;
    const double loss = factor_of(w->rule, w->calibrated) * w->relative_error * w->relative_error;
    const bool is_of[3] = {!w->embedding && !w->head, w->embedding, w->head};
    for (size_t i = 0; i < 3; i++)
        if (is_of[i]) {
            d->n[i] += n;
            d->loss[i] += n * loss;
        }
}

double teg_divergence_of(const struct teg_divergence *d)
{
    double sum = 0;
    for (size_t i = 0; i < 3; i++)
        sum += d->n[i] > 0 ? d->loss[i] / d->n[i] : 0;
    return most * (1 - exp(-sum / most)); /* a model that knows nothing is so far away */
}
