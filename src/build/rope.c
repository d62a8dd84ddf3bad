/* build/rope.c: the frequencies of rotary position embeddings.
 *
 * Plain RoPE turns pair i by position · base^(-2i/d). Every scaling in use changes only these d/2 numbers and one
 * factor on cos and sin, so all of them are settled here, once, and the rope op sees a vector:
 *
 *   linear    f / factor
 *   llama3    long waves / factor, short ones kept, a linear blend between (or the file's own divisors: rope_freqs)
 *   yarn      interpolated and kept frequencies mixed by a ramp over dimensions; magnitude 0.1 ln(factor) + 1
 *   alpha     a base grown by the factor's d/(d-2)th power
 *   longrope  divisors for short and for long contexts; magnitude sqrt(1 + ln(factor) / ln(original context)), where a
 *             factor that the file leaves out is its context / original context
 *
 * Which of longrope's two vectors is used depends on the session's context, not on the tokens seen so far: a switch in
 * the middle of a text would make the keys in the cache disagree with the new ones. */
#include <math.h>

#include "build/builder.h"

#define PI 3.14159265358979323846

static double llama3(const struct teg_hparams *hp, double f)
{
    const double wave = 2 * PI / f, original = hp->original_context;
    const double low = hp->low_freq_factor, high = hp->high_freq_factor, factor = hp->rope_factor;
    if (wave > original / low)
        return f / factor;
    if (wave < original / high)
        return f;
    const double blend = (original / wave - low) / (high - low);
    return (1 - blend) * f / factor + blend * f;
}

/* The dimension whose wave makes `rotations` turns within the original context. */
static double yarn_dimension(const struct teg_hparams *hp, double rotations)
{
    const double original = hp->original_context ? hp->original_context : hp->context;
    return hp->rope_dims * log(original / (rotations * 2 * PI)) / (2 * log((double)hp->rope_base));
}

static double yarn(const struct teg_hparams *hp, double f, uint32_t pair)
{
    double low = yarn_dimension(hp, hp->beta_fast), high = yarn_dimension(hp, hp->beta_slow);
    if (!hp->yarn_exact_ramp) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0);
    high = fmin(high, hp->rope_dims - 1.0);
    if (low == high)
        high += 0.001;
    const double ramp = fmin(fmax((pair - low) / (high - low), 0), 1); /* 0: keep, 1: interpolate */
    return f / hp->rope_factor * ramp + f * (1 - ramp);
}

static double yarn_magnitude(double factor, double mscale)
{
    return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1;
}

static float magnitude(const struct teg_hparams *hp)
{
    if (hp->scaling == TEG_ROPE_YARN) {
        /* config.json's attention_factor replaces the formula; GGUF's attn_factor multiplies it. */
        if (hp->rope_magnitude > 0 && !hp->is_gguf)
            return hp->rope_magnitude;
        const double given = hp->rope_magnitude > 0 ? (double)hp->rope_magnitude : 1;
        if (hp->mscale > 0 && hp->mscale_all_dim > 0)
            return (float)(yarn_magnitude(hp->rope_factor, hp->mscale) /
                           yarn_magnitude(hp->rope_factor, hp->mscale_all_dim));
        return (float)(given * yarn_magnitude(hp->rope_factor, 1));
    }
    if (hp->rope_magnitude > 0)
        return hp->rope_magnitude;
    if (hp->scaling == TEG_ROPE_LONGROPE && hp->original_context) {
        const double given = hp->is_gguf ? 0 : (double)hp->rope_factor;
        const double factor = given > 0 ? given : (double)hp->context / hp->original_context;
        return factor <= 1 ? 1 : (float)sqrt(1 + log(factor) / log((double)hp->original_context));
    }
    return 1;
}

/* divisors NULL: none. */
static value frequencies(struct teg_builder *b, const char *name, const float *divisors)
{
    const struct teg_hparams *const hp = b->hp;
    const uint32_t n_pairs = hp->rope_dims / 2;
    float *const data = b->status == TEG_OK ? teg_arena_alloc(b->arena, (n_pairs + 1) * sizeof *data) : NULL;
    if (!data) {
        if (b->status == TEG_OK)
            b->status = teg_base_fail_memory(b->err, "RoPE frequencies", n_pairs * sizeof *data);
        return TEG_NO_VALUE;
    }
    double base = hp->rope_base;
    if (hp->rope_alpha > 0 && hp->rope_dims > 2)
        base *= pow(hp->rope_alpha, hp->rope_dims / (hp->rope_dims - 2.0));
    for (uint32_t i = 0; i < n_pairs; i++) {
        double f = pow(base, -2.0 * i / hp->rope_dims);
        if (hp->scaling == TEG_ROPE_LINEAR)
            f /= hp->rope_factor;
        else if (hp->scaling == TEG_ROPE_LLAMA3)
            f = llama3(hp, f);
        else if (hp->scaling == TEG_ROPE_YARN)
            f = yarn(hp, f, i);
        data[i] = (float)(divisors ? f / divisors[i] : f);
    }
    return teg_b_vector(b, name, data, n_pairs);
}

static enum teg_status check_scaling(const struct teg_builder *b)
{
    const struct teg_hparams *const hp = b->hp;
    if (hp->scaling == TEG_ROPE_LLAMA3 &&
        !(hp->low_freq_factor > 0 && hp->high_freq_factor > hp->low_freq_factor && hp->original_context))
        FAIL(b->err, TEG_ERR_FORMAT,
             "cannot use model: %s: rope_scaling: expected low_freq_factor < high_freq_factor and "
             "original_max_position_embeddings, found others; the file is damaged",
             b->source->path);
    if (hp->scaling == TEG_ROPE_YARN && !(hp->beta_fast > 0 && hp->beta_slow > 0))
        FAIL(b->err, TEG_ERR_FORMAT,
             "cannot use model: %s: yarn: expected positive beta_fast and beta_slow, found %g and "
             "%g; the file is damaged",
             b->source->path, (double)hp->beta_fast, (double)hp->beta_slow);
    return TEG_OK;
}

enum teg_status teg_b_rope_local(struct teg_builder *b, float base)
{
    struct teg_hparams local = *b->hp;
    const struct teg_hparams *const saved = b->hp;
    local.rope_base = base;
    local.scaling = TEG_ROPE_NONE;
    b->hp = &local;
    b->local_frequencies = frequencies(b, "rope.frequencies", NULL);
    b->hp = saved;
    return b->status;
}

enum teg_status teg_b_rope_setup(struct teg_builder *b)
{
    const struct teg_hparams *const hp = b->hp;
    const uint32_t n_pairs = hp->rope_dims / 2;
    TRY(check_scaling(b));
    const float *short_factors = hp->short_factors, *long_factors = hp->long_factors;
    const float *const freqs = teg_b_find_vector(b, ROPE_FREQS, n_pairs);
    if (freqs) {
        short_factors = freqs;
    } else if (hp->is_gguf) {
        short_factors = teg_b_find_vector(b, ROPE_SHORT, n_pairs);
        long_factors = teg_b_find_vector(b, ROPE_LONG, n_pairs);
    }
    if (b->status == TEG_OK && hp->scaling == TEG_ROPE_LONGROPE && (!short_factors || !long_factors))
        FAIL(b->err, TEG_ERR_FORMAT,
             "cannot use model: %s: longrope: expected factors for short and long contexts, found "
             "none; the file is not a whole model",
             b->source->path);
    b->rope_magnitude = magnitude(hp);
    b->frequencies = frequencies(b, "rope.frequencies", short_factors);
    b->long_frequencies = long_factors ? frequencies(b, "rope.long_frequencies", long_factors) : TEG_NO_VALUE;
    b->local_frequencies = b->frequencies;
    return b->status;
}
