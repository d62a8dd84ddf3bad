/* tests/kernel/test_kernels_attend.c: attention over pages of integers (i16, k16v8, i8, q8, q4), every row this CPU
 * has.
 *
 * A page is decoded here by its layout and compared with what was appended; attention is compared with the definition
 * in double precision over the decoded page, with the bound of attend.h worked out for each row; and the bits of a row
 * are the same whatever stands beside it, behind it, and whichever instruction set computes it. */
#include "kernel/attend_layout.h"
#include "kernel_test.h"

struct problem {
    enum teg_kv_type type;
    size_t n_keys, width, group, window;
    bool sinks;
    float scale, softcap;
    enum data { ORDINARY, OUTLIERS, TINY, HUGE_VALUES, ONE_KEY, ZEROS } data;
    /* made by make_problem */
    size_t n_pages, offset, page_bytes;
    float *k, *v, *q, *sink; /* [n_keys, width] twice, [n_keys, group * width], [group] */
    void **pages;            /* 0xff where nothing was appended */
    float *scratch;
};

static void make_data(struct problem *p)
{
    const size_t n = p->n_keys * p->width;
    for (size_t i = 0; i < n; i++) {
        if (p->data == OUTLIERS) { /* one component of keys is huge, one key's value dwarfs the others */
            p->k[i] *= i % p->width == 3 ? 60.0f : 0.2f;
            p->v[i] *= i / p->width == 2 ? 1000.0f : 0.01f;
        } else if (p->data == TINY) {
            p->k[i] *= 0x1p-140f, p->v[i] *= i / p->width % 2 ? 1e-38f : 1e-44f;
        } else if (p->data == HUGE_VALUES) {
            p->k[i] *= 1e30f, p->v[i] *= attend_byte_values(p->type) ? 1e13f : 1e37f;
        } else if (p->data == ZEROS) {
            p->k[i] = p->v[i] = 0;
        } else if (p->data == ONE_KEY && i / p->width == p->n_keys / 2) {
            p->k[i] = 30.0f;
        }
    }
    for (size_t i = 0; i < p->n_keys * p->group * p->width; i++)
        p->q[i] = p->data == HUGE_VALUES ? p->q[i] * 1e-30f : p->data == ONE_KEY ? fabsf(p->q[i]) : p->q[i];
}

static void make_problem(struct problem *p, enum edge edge)
{
    p->page_bytes = teg_kv_page_bytes(p->type, p->width);
    p->n_pages = (p->n_keys + TEG_TILE_TOKENS - 1) / TEG_TILE_TOKENS;
    p->offset = 64;
    p->k = guarded_floats(p->n_keys * p->width, edge);
    p->v = guarded_floats(p->n_keys * p->width, edge);
    p->q = guarded_floats(p->n_keys * p->group * p->width, edge);
    p->sink = guarded_floats(p->group, edge);
    p->pages = guarded(p->n_pages * sizeof *p->pages, edge);
    for (size_t i = 0; i < p->n_pages; i++)
        p->pages[i] = (char *)guarded(p->page_bytes, edge) - p->offset;
    p->scratch = guarded_scratch(teg_attend_scratch_floats(p->width));
    fill_random(p->k, p->n_keys * p->width);
    fill_random(p->v, p->n_keys * p->width);
    fill_random(p->q, p->n_keys * p->group * p->width);
    fill_random(p->sink, p->group);
    make_data(p);
}

static void append_range(const struct teg_attend *record, const struct problem *p, size_t from, size_t to)
{
    record->append(&(struct teg_kv_append_args){.k = p->k + from * p->width,
                                                .v = p->v + from * p->width,
                                                .k_stride = p->width,
                                                .v_stride = p->width,
                                                .pages = p->pages,
                                                .page_offset_bytes = p->offset,
                                                .first_position = from,
                                                .n_tokens = to - from,
                                                .head_width = p->width});
}

/* Queries `q` at positions from …, n_tokens of them; rows of queries and results lie side by side. */
static struct teg_attention_args args_of(const struct problem *p, const float *q, float *out, size_t from,
                                         size_t n_tokens)
{
    return (struct teg_attention_args){.q = q,
                                       .q_stride = p->group * p->width,
                                       .out = out,
                                       .out_stride = p->group * p->width,
                                       .pages = (const void *const *)p->pages,
                                       .page_offset_bytes = p->offset,
                                       .first_position = from,
                                       .n_tokens = n_tokens,
                                       .head_width = p->width,
                                       .group = p->group,
                                       .window = p->window,
                                       .scale = p->scale,
                                       .softcap = p->softcap,
                                       .sinks = p->sinks ? p->sink : NULL,
                                       .scratch = p->scratch};
}

static void attend_range(const struct teg_attend *record, const struct problem *p, size_t from, size_t to, float *out)
{
    const size_t stride = p->group * p->width;
    const struct teg_attention_args args = args_of(p, p->q + from * stride, out + from * stride, from, to - from);
    record->run(&args);
}

/* ---- pages ---- */

static const char *page_of(const struct problem *p, size_t key)
{
    return (const char *)p->pages[key / TEG_TILE_TOKENS] + p->offset;
}

static double scale_of(const struct problem *p, size_t key, bool is_v)
{
    const struct attend_layout l = attend_layout(p->type, p->width);
    float scale;
    memcpy(&scale, page_of(p, key) + (is_v ? l.v_scale : l.k_scale) + key % TEG_TILE_TOKENS * sizeof scale, 4);
    return is_v && attend_byte_values(p->type) ? exp2((double)scale) : (double)scale;
}

/* Keys, or values, of the type are bytes. */
static bool bytes(const struct problem *p, bool is_v)
{
    return is_v ? attend_byte_values(p->type) : attend_byte_keys(p->type);
}

/* What pages of byte keys add to integer · scale of a key. */
static double reference_of(const struct problem *p, size_t key, size_t c)
{
    if (!bytes(p, false))
        return 0;
    float first;
    memcpy(&first, page_of(p, key) + attend_layout(p->type, p->width).k_first + c * sizeof first, sizeof first);
    return (double)first;
}

/* Bytes: x by the definition of attend_layout.h, times the block; else x. Returns the block. */
static double turned(const struct problem *p, bool is_v, const float *x, double *y)
{
    const size_t n = p->width, power = n & (~n + 1), block = power < 16 ? 1 : power < 512 ? power : 512;
    for (size_t i = 0; i < n; i++) {
        y[i] = 0;
        for (size_t j = i / block * block; bytes(p, is_v) && j < i / block * block + block; j++)
            y[i] += __builtin_popcountll((i & j) % block) % 2 ? -(double)x[j] : (double)x[j];
        if (!bytes(p, is_v))
            y[i] = (double)x[i];
    }
    return bytes(p, is_v) ? (double)block : 1;
}

/* The integer of one component, read as attend_layout.h describes it. */
static int integer_of(const struct problem *p, size_t key, size_t c, bool is_v)
{
    const struct attend_layout l = attend_layout(p->type, p->width);
    const char *const page = page_of(p, key);
    const size_t slot = key % TEG_TILE_TOKENS, b = c / 32, in = c % 32;
    if (p->type == TEG_KV_I16 || (p->type == TEG_KV_K16V8 && !is_v)) {
        int16_t value;
        const size_t at =
            is_v ? l.v + ((slot / 2 * l.w16 + c) * 2 + slot % 2) * 2 : ((c / 2 * 64 + slot) * 2 + c % 2) * 2;
        memcpy(&value, page + at, sizeof value);
        return value;
    }
    if (bytes(p, is_v)) {
        const unsigned char byte =
            (unsigned char)page[is_v ? l.v + (slot % 16 * l.w16 + c) * 4 + slot / 16 : (c / 4 * 64 + slot) * 4 + c % 4];
        return is_v ? (int8_t)byte : byte - 128;
    }
    struct kv_block block;
    memcpy(&block, page + (is_v ? l.v_block + (slot * l.n_blocks + b) * 4 : l.k_block + (b * 64 + slot) * 4), 4);
    const uint8_t *const codes = (const uint8_t *)page + (is_v ? l.v : 0);
    int code;
    if (p->type == TEG_KV_Q8)
        code = is_v ? codes[slot * l.w32 + c] : codes[(c / 2 * 64 + slot) * 2 + c % 2];
    else if (is_v)
        code = codes[(slot * l.n_blocks + b) * 16 + in % 16] >> (in < 16 ? 0 : 4) & 15;
    else
        code = codes[c / 2 * 64 + slot] >> (c % 2 ? 4 : 0) & 15;
    return block.offset + block.step * code;
}

/* What a component may be off by: half a step. */
static double page_bound(const struct problem *p, const float *x, size_t key, size_t c, bool is_v)
{
    double norm = 0, most = 0x1p-100, low = INFINITY, high = -INFINITY;
    for (size_t i = 0; i < p->width; i++) {
        norm += (double)x[i] * (double)x[i];
        most = fmax(most, fabs((double)x[i]));
        if (i / 32 == c / 32)
            low = fmin(low, (double)x[i]), high = fmax(high, (double)x[i]);
    }
    if (bytes(p, is_v)) /* sums of up to 512 floats of either sign on the way */
        return scale_of(p, key, is_v) * 0.501 + 32 * EPS * most;
    if (p->type == TEG_KV_I16 || p->type == TEG_KV_K16V8)
        return 1.005 * (is_v ? most / 4095 : fmax(sqrt(norm), most) / 32767) /
               2; /* a float of 32767 has 8 bits to spare */
    const double unit = most / 4095, codes = p->type == TEG_KV_Q8 ? 255 : 15;
    return 1.001 * (unit / 2 + (ceil((high - low) / unit / codes + 1) * unit) / 2) + unit;
}

static void test_append(const char *isa, const struct teg_attend *record, enum teg_kv_type type)
{
    static const size_t widths[] = {1, 7, 8, 32, 40, 64, 72, 80, 131, 256};
    double worst = 0;
    bool limits = true, untouched = true;
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
        for (int data = ORDINARY; data <= ZEROS; data++) {
            struct problem p = {.type = type, .n_keys = 150, .width = widths[i], .group = 1, .data = (enum data)data};
            make_problem(&p, (enum edge)(i % 2));
            append_range(record, &p, 0, 1);
            append_range(record, &p, 1, 63);
            append_range(record, &p, 63, 130);
            append_range(record, &p, 130, 149);
            for (size_t key = 0; key < 149; key++)
                for (int is_v = 0; is_v < 2; is_v++) {
                    const float *const x = (is_v ? p.v : p.k) + key * p.width;
                    double wanted[300];
                    const double block = turned(&p, is_v, x, wanted);
                    for (size_t c = 0; c < p.width; c++) {
                        const int integer = integer_of(&p, key, c, is_v);
                        const double value = integer * scale_of(&p, key, is_v) + (is_v ? 0 : reference_of(&p, key, c));
                        worst = fmax(worst, fabs(value - wanted[c] / block) / page_bound(&p, x, key, c, is_v));
                        limits &= abs(integer) <= (bytes(&p, is_v)                                  ? ATTEND_BYTE
                                                   : is_v || type == TEG_KV_Q8 || type == TEG_KV_Q4 ? ATTEND_V_MAX
                                                                                                    : ATTEND_UNIT);
                    }
                }
            untouched &= isnan(scale_of(&p, 149, false)) && isnan(scale_of(&p, 149, true));
            release_all();
        }
    tap_ok(worst <= 1 && limits, "%s append_%s within half a step (%.3f of it)", isa, teg_kv_type_name(type), worst);
    tap_ok(untouched, "%s append_%s leaves later tokens alone", isa, teg_kv_type_name(type));
}

/* ---- attention ---- */

struct seen_tile {
    double weight, scale, product; /* greatest of the keys that the row sees */
};

/* The definition over the decoded page, in double. Returns the worst error of the row over its bound. */
static double check_row(const struct problem *p, size_t position, size_t member, const float *row_out)
{
    const size_t first = p->window && position + 1 > p->window ? position + 1 - p->window : 0;
    double q[300], out[300];
    turned(p, false, p->q + (position * p->group + member) * p->width, q);
    const double block = turned(p, true, row_out, out);
    const struct attend_layout l = attend_layout(p->type, p->width);
    const double unit = bytes(p, false) ? ATTEND_BYTE
                        : p->type == TEG_KV_I16 || p->type == TEG_KV_K16V8
                            ? ATTEND_UNIT
                            : fmin(ATTEND_UNIT, 0x1p31 / (ATTEND_V_MAX * sqrt((double)l.w32)) - sqrt((double)l.w32));
    double *const weight = malloc((p->n_keys + 1) * sizeof *weight);
    double max = p->sinks ? (double)p->sink[member] : -INFINITY, norm = 0, drift = 0, greatest = 0x1p-100;
    for (size_t c = 0; c < p->width; c++) {
        norm += q[c] * q[c];
        greatest = fmax(greatest, fabs(q[c]));
    }
    norm = bytes(p, false) ? greatest : fmax(sqrt(norm), greatest); /* what `unit` stands for */
    for (size_t key = first; key <= position; key++) {
        double score = 0, sum = 0, products = 0;
        const double scale = scale_of(p, key, false) * (double)p->scale;
        for (size_t c = 0; c < p->width; c++) {
            const double k = integer_of(p, key, c, false) * scale;
            const double common = reference_of(p, key, c) * (double)p->scale;
            score += q[c] * (k + common);
            sum += fabs(k);
            products += fabs(q[c] * k) + (double)p->width / 16 * fabs(q[c] * common);
        }
        if (p->softcap > 0)
            score = (double)p->softcap * tanh(score / (double)p->softcap);
        drift = fmax(drift, norm / (2 * unit) * 1.001 * sum + 8 * EPS * (products + fabs(score)));
        weight[key] = score;
        max = fmax(max, score);
    }
    double sum = p->sinks ? exp((double)p->sink[member] - max) : 0;
    struct seen_tile *const tiles = calloc(p->n_pages, sizeof *tiles);
    for (size_t key = first; key <= position; key++) {
        struct seen_tile *const tile = &tiles[key / TEG_TILE_TOKENS];
        sum += weight[key] = exp(weight[key] - max);
        tile->weight = fmax(tile->weight, weight[key]);
        tile->scale = fmax(tile->scale, scale_of(p, key, true));
        tile->product = fmax(tile->product, weight[key] * scale_of(p, key, true));
    }
    const bool byte_values = bytes(p, true);
    const double relative = 2 * drift + (byte_values ? 0x1p-13 : 0x1p-17) + ((double)p->n_pages + 80) * EPS;
    struct worst worst = {0};
    struct got {
        double out, value, bound;
    } got[300];
    double total = 0;
    for (size_t c = 0; c < p->width; c++) {
        double value = 0, bound = 0, size = 0;
        for (size_t key = first; key <= position; key++) {
            const struct seen_tile *const tile = &tiles[key / TEG_TILE_TOKENS];
            const double integer = integer_of(p, key, c, true), v = integer * scale_of(p, key, true);
            value += weight[key] / sum * v;
            bound += 2 * relative * weight[key] / sum * fabs(v);
            const double unit_weight =
                byte_values ? tile->product / (2 * ATTEND_BYTE_P_MAX) : tile->weight * tile->scale / (2 * ATTEND_P_MAX);
            bound += (1 + 4 * relative) * unit_weight / sum * fabs(integer) * 1.01;
            size += weight[key] / sum * fabs(v);
        }
        total += size;
        got[c] = (struct got){out[c] / block, value, bound + 0x1p-126};
    }
    for (size_t c = 0; c < p->width; c++) /* turning back and forth costs all components a little */
        worst_add(&worst, got[c].out, got[c].value, got[c].bound + (byte_values ? 16 * EPS * total : 0));
    free(weight);
    free(tiles);
    return worst.ratio;
}

static void run_chunks(const struct teg_attend *record, const struct problem *p, size_t chunk, float *out)
{
    for (size_t from = 0; from < p->n_keys; from += chunk) {
        const size_t to = from + chunk < p->n_keys ? from + chunk : p->n_keys;
        append_range(record, p, from, to);
        for (size_t t = from; t < to;) { /* as many rows as the scratch has */
            const size_t most = TEG_ATTENTION_ROWS / p->group ? TEG_ATTENTION_ROWS / p->group : 1;
            const size_t end = t + most < to ? t + most : to;
            attend_range(record, p, t, end, out);
            t = end;
        }
    }
}

static void blank_pages(const struct problem *p)
{
    for (size_t page = 0; page < p->n_pages; page++)
        memset((char *)p->pages[page] + p->offset, 0xff, p->page_bytes);
}

static uint64_t hash_of(uint64_t h, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        h = (h ^ bits) * 0x100000001b3u;
    }
    return h;
}

static uint64_t check_problem(const struct teg_attend *record, struct problem p, enum edge edge, double *ratio,
                              bool *same)
{
    random_state = 0x1234567u + p.n_keys * p.width;
    make_problem(&p, edge);
    const size_t n = p.n_keys * p.group * p.width;
    float *const out = guarded_floats(n, edge), *const again = guarded_floats(n, edge);
    run_chunks(record, &p, p.n_keys, out);
    for (size_t t = 0; t<p.n_keys; t += p.n_keys> 100 ? 17 : 1)
        for (size_t g = 0; g<p.group; g += p.group> 8 ? 9 : 1)
            *ratio = fmax(*ratio, check_row(&p, t, g, out + (t * p.group + g) * p.width));
    static const size_t chunks[] = {1, 5, 33, 64};
    for (size_t i = 0; i < sizeof chunks / sizeof chunks[0]; i++) {
        blank_pages(&p);
        memset(again, 0, n * sizeof *again);
        run_chunks(record, &p, chunks[i], again);
        *same &= all_same_bits(out, again, n);
    }
    const uint64_t h = hash_of(0xcbf29ce484222325u, out, n);
    release_all();
    return h;
}

static const struct problem problems[] = {
    {.n_keys = 1, .width = 64, .group = 1, .scale = 0.125f},
    {.n_keys = 63, .width = 32, .group = 3, .scale = 0.2f},
    {.n_keys = 64, .width = 40, .group = 2, .scale = 0.15f, .sinks = true},
    {.n_keys = 65, .width = 72, .group = 4, .scale = 0.12f, .softcap = 5},
    {.n_keys = 131, .width = 64, .group = 5, .scale = 0.125f, .window = 64},
    {.n_keys = 200, .width = 80, .group = 1, .scale = 0.1f, .window = 3, .sinks = true},
    {.n_keys = 200, .width = 128, .group = 1, .scale = 0.09f, .window = 65, .softcap = 20},
    {.n_keys = 150, .width = 256, .group = 2, .scale = 0.0625f, .window = 1},
    {.n_keys = 140, .width = 37, .group = 7, .scale = -0.2f},
    {.n_keys = 70, .width = 264, .group = 64, .scale = 0.06f},
    {.n_keys = 321, .width = 96, .group = 3, .scale = 1.0f, .window = 200},
    {.n_keys = 150, .width = 64, .group = 2, .scale = 0.125f, .data = OUTLIERS},
    {.n_keys = 150, .width = 64, .group = 2, .scale = 0.125f, .data = TINY},
    {.n_keys = 150, .width = 64, .group = 2, .scale = 0.125f, .data = HUGE_VALUES},
    {.n_keys = 150, .width = 128, .group = 2, .scale = 0.125f, .data = ONE_KEY},
    {.n_keys = 100, .width = 64, .group = 2, .scale = 0.125f, .data = ZEROS, .sinks = true},
};
enum { N_PROBLEMS = sizeof problems / sizeof problems[0] };

static uint64_t hashes[TEG_ISA_COUNT][TEG_KV_TYPES];

static void test_attention(enum teg_isa isa, const struct teg_attend *record, enum teg_kv_type type)
{
    double ratio = 0;
    bool same = true;
    for (size_t i = 0; i < N_PROBLEMS; i++) {
        struct problem p = problems[i];
        p.type = type;
        double here = 0;
        bool here_same = true;
        hashes[isa][type] = hashes[isa][type] * 31 + check_problem(record, p, (enum edge)(i % 2), &here, &here_same);
        if (!(here <= 1) || !here_same)
            tap_note("problem %zu: %.3f of the bound, %s", i, here, here_same ? "same bits" : "other bits");
        ratio = fmax(ratio, isnan(here) ? INFINITY : here);
        same &= here_same;
    }
    tap_ok(ratio <= 1, "%s within the bound (%.3f of it)", record->name, ratio);
    tap_ok(same, "%s same bits for any chunk and any memory behind it", record->name);
}

/* The last rows of a problem by ranges of keys, some at a time: the bits of all ranges at once. */
static bool ranges_agree(const struct teg_attend *record, const struct problem *p, size_t n_tokens, size_t n_at_a_time,
                         float *states)
{
    float out[8 * 3 * 64], again[8 * 3 * 64];
    const size_t row = p->group * p->width, from = p->n_keys - n_tokens;
    const size_t state = teg_attend_state_floats(p->width), set = n_tokens * p->group * state;
    struct teg_attention_args args = args_of(p, p->q, out, from, n_tokens);
    args.state_stride = p->group * state;
    record->run(&args);
    args.out = again;
    for (size_t range = 0; range <= p->n_keys / TEG_RANGE_TOKENS + n_at_a_time; range += n_at_a_time) {
        for (size_t i = n_at_a_time; i-- > 0;) {
            args.range = range + i;
            args.state = states + (1 + i) * set;
            record->run(&args);
        }
        args.range = range;
        args.state = states;
        record->join(&args, states + set, n_at_a_time, set);
    }
    return all_same_bits(out, again, n_tokens * row);
}

static void test_ranges(const struct teg_attend *record, enum teg_kv_type type)
{
    static const struct problem far[] = {
        {.n_keys = 3 * TEG_RANGE_TOKENS + 2, .width = 40, .group = 3, .scale = 0.2f},
        {.n_keys = 2 * TEG_RANGE_TOKENS, .width = 16, .group = 1, .scale = 0.2f, .sinks = true},
        {.n_keys = 2 * TEG_RANGE_TOKENS + 3, .width = 16, .group = 2, .scale = 0.2f, .window = 7, .softcap = 3},
        {.n_keys = 2 * TEG_RANGE_TOKENS + 4, .width = 16, .group = 2, .scale = 0.2f, .window = TEG_RANGE_TOKENS + 3},
        {.n_keys = TEG_RANGE_TOKENS + 5, .width = 16, .group = 2, .scale = 0.2f, .window = 600, .sinks = true},
        {.n_keys = 30, .width = 64, .group = 2, .scale = 0.125f},
    };
    static const size_t n_tokens[] = {1, 3, 8};
    bool same = true;
    for (size_t i = 0; i < sizeof far / sizeof *far; i++) {
        struct problem p = far[i];
        p.type = type;
        make_problem(&p, EDGE_END);
        append_range(record, &p, 0, p.n_keys);
        for (size_t n = 0; n < sizeof n_tokens / sizeof *n_tokens; n++)
            for (size_t n_at_a_time = 1; n_at_a_time <= 4; n_at_a_time += n + 1) {
                const size_t n_floats = (1 + n_at_a_time) * n_tokens[n] * p.group * teg_attend_state_floats(p.width);
                const bool here =
                    ranges_agree(record, &p, n_tokens[n], n_at_a_time, guarded_floats(n_floats, EDGE_END));
                if (!here)
                    tap_note("problem %zu: %zu tokens, %zu ranges at a time", i, n_tokens[n], n_at_a_time);
                same &= here;
            }
        release_all();
    }
    tap_ok(same, "%s the same bits by ranges of keys", record->name);
}

/* Keys and values that are not finite reach exactly the rows that see them; so does such a query its own row. */
static void test_not_finite(const struct teg_attend *record, enum teg_kv_type type)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    bool right = true;
    for (size_t i = 0; i < 6; i++) {
        struct problem p = {.type = type, .n_keys = 200, .width = 48, .group = 2, .scale = 0.15f, .window = 20};
        if (i % 2)
            p.window = 0;
        make_problem(&p, EDGE_END);
        const size_t row = p.group * p.width, n = p.n_keys * row, end = p.window ? 70 : 200;
        float *const out = guarded_floats(n, EDGE_END), *const again = guarded_floats(n, EDGE_END);
        append_range(record, &p, 0, p.n_keys);
        for (size_t t = 0; t < p.n_keys; t += 25)
            attend_range(record, &p, t, t + 25, out);
        (i < 3 ? p.k : p.v)[50 * p.width + 7] = bad[i % 3];
        append_range(record, &p, 50, 51);
        for (size_t t = 0; t < p.n_keys; t += 25)
            attend_range(record, &p, t, t + 25, again);
        right &= all_same_bits(out, again, 50 * row) &&
                 all_same_bits(out + end * row, again + end * row, (p.n_keys - end) * row);
        for (size_t j = 50 * row; j < end * row; j++)
            right &= isnan(again[j]);
        p.q[20 * row + p.width + 5] = bad[i % 3];
        attend_range(record, &p, 0, 25, again);
        right &=
            all_same_bits(out, again, 20 * row + p.width) && all_same_bits(out + 21 * row, again + 21 * row, 4 * row);
        for (size_t j = 20 * row + p.width; j < 21 * row; j++)
            right &= isnan(again[j]);
        release_all();
    }
    tap_ok(right, "%s what is not finite reaches exactly the rows that see it", record->name);
}

/* Scores that overflow are not finite either. */
static void test_overflow(const struct teg_attend *record, enum teg_kv_type type)
{
    struct problem p = {.type = type, .n_keys = 3, .width = 16, .group = 1, .scale = 1.0f};
    make_problem(&p, EDGE_END);
    float out[48];
    for (size_t i = 0; i < 16; i++)
        p.k[16 + i] = 1e38f, p.q[16 + i] = 1e38f;
    append_range(record, &p, 0, 3);
    attend_range(record, &p, 0, 3, out);
    tap_ok(!isnan(out[0]) && isnan(out[16]) && isnan(out[31]), "%s a score of infinity makes NaN", record->name);
    release_all();
}

/* Bytes: a first key that is not finite is no reference: rows that do not see it are as ever. A value beyond the type's
 * range counts as not finite. */
static void test_bytes(const struct teg_attend *record, enum teg_kv_type type)
{
    struct problem p = {.type = type, .n_keys = 130, .width = 64, .group = 2, .scale = 0.15f, .window = 20};
    make_problem(&p, EDGE_END);
    const size_t row = p.group * p.width;
    float *const out = guarded_floats(p.n_keys * row, EDGE_END);
    p.k[64 * p.width + 3] = NAN;
    p.v[100 * p.width + 9] = 1e16f;
    append_range(record, &p, 0, p.n_keys);
    for (size_t t = 0; t < p.n_keys; t += 26)
        attend_range(record, &p, t, t + 26, out);
    bool right = true;
    for (size_t i = 0; i < p.n_keys * row; i++)
        right &= isnan(out[i]) == ((i / row >= 64 && i / row < 84) || (i / row >= 100 && i / row < 120));
    double ratio = 0;
    for (size_t t = 84; t < 100; t++)
        ratio = fmax(ratio, check_row(&p, t, 0, out + t * row));
    tap_ok(right && ratio <= 1, "%s a page without a reference, a value out of range (%.3f of the bound)", record->name,
           ratio);
    release_all();
}

/* The choice: every CPU gets a row that it can run, known ones without measuring. */
static void test_select(void)
{
    struct teg_cpu cpu;
    struct teg_kernels kernels;
    struct teg_attend_table table;
    teg_cpu_detect(&cpu);
    teg_kernels_select(&cpu, &kernels);
    teg_attend_select(&cpu, &kernels, &table);
    tap_ok(cpu.has[table.isa] && (table.isa != TEG_ISA_BASE || table.fast == TEG_KV_F16), "a row that runs here: %s",
           table.of[TEG_KV_I16].name);
    cpu.family = cpu.model = 0;
    teg_attend_select(&cpu, &kernels, &table);
    tap_ok(cpu.has[table.isa] && table.choice != TEG_ATTEND_KNOWN_CPU, "an unknown CPU is measured: %s",
           table.of[TEG_KV_I16].name);
    memset(cpu.has + 1, 0, sizeof cpu.has - sizeof cpu.has[0]);
    teg_attend_select(&cpu, &kernels, &table);
    bool full = true;
    for (int type = TEG_KV_F32; type < TEG_KV_TYPES; type++)
        full &= table.of[type].run && table.of[type].append;
    tap_ok(full && table.isa == TEG_ISA_BASE && table.choice == TEG_ATTEND_ONLY && table.fast == TEG_KV_F16,
           "the baseline has every type");
}

int main(void)
{
    struct teg_cpu cpu;
    teg_cpu_detect(&cpu);
    int first = -1;
    for (int isa = 0; isa < TEG_ISA_COUNT; isa++) {
        const struct teg_attend_row *const row = teg_attend_row(&cpu, (enum teg_isa)isa);
        for (int t = TEG_KV_I16; row && t < TEG_KV_TYPES; t++) {
            const enum teg_kv_type type = (enum teg_kv_type)t;
            test_append(teg_isa_name((enum teg_isa)isa), &row->of[t], type);
            test_attention((enum teg_isa)isa, &row->of[t], type);
            test_not_finite(&row->of[t], type);
            test_overflow(&row->of[t], type);
            test_ranges(&row->of[t], type);
            if (attend_byte_values(type))
                test_bytes(&row->of[t], type);
            if (isa != TEG_ISA_BASE && first >= 0)
                tap_ok(hashes[isa][t] == hashes[first][t], "%s the same bits as %s", row->of[t].name,
                       teg_isa_name((enum teg_isa)first));
        }
        if (row && isa != TEG_ISA_BASE && first < 0)
            first = isa;
    }
    test_select();
    return tap_done();
}
