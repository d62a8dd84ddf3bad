/* mil/text_value.c: tokens, types and literals of MIL text.
 *
 *   type     tensor<fp16, [1, ?]>   fp16   state<type>   list<type, n|?>   tuple<type, …>   dict<type, type>
 *   literal  type ( body )
 *   body     tensor: number | true | "text" | nested [ ] one level a dimension | BLOBFILE(path = …, offset = …)
 *            list, tuple: [ … ] or ( … )     dict: {{key, value}, …}; items are literals or bare bodies
 *
 * Program version 1.0 writes every scalar as tensor<T, []>, 1.3 as T; both read the same here. Numbers are read by
 * hand, not by strtod, whose result hangs on the host program's locale. */
#include "mil/text.h"

#include <math.h>
#include <stdio.h>

#include "dtype/dtype.h"

/* ---- tokens ---- */

static void skip_space(struct teg_mil_text *t)
{
    while (t->at < t->end) {
        const uint8_t c = *t->at;
        const bool is_comment = c == '/' && t->end - t->at > 1 && t->at[1] == '/';
        if (is_comment)
            while (t->at < t->end && *t->at != '\n')
                t->at++;
        else if (c == ' ' || c == '\n' || c == '\t' || c == '\r')
            t->at++;
        else
            return;
    }
}

uint8_t teg_mil_text_peek(struct teg_mil_text *t)
{
    skip_space(t);
    return t->at < t->end ? *t->at : 0;
}

enum teg_status teg_mil_text_wrong(struct teg_mil_text *t, const char *expected)
{
    skip_space(t);
    if (t->at == t->end)
        MIL_FAIL(t->r, TEG_ERR_FORMAT, t->at, "expected %s, found the end of the text; compile the model again",
                 expected);
    size_t n = 0;
    while (n < 24 && t->at + n < t->end && t->at[n] > ' ' && t->at[n] < 0x7f)
        n++;
    if (!n)
        MIL_FAIL(t->r, TEG_ERR_FORMAT, t->at, "expected %s, found the byte %02x; compile the model again", expected,
                 *t->at);
    MIL_FAIL(t->r, TEG_ERR_FORMAT, t->at, "expected %s, found '%.*s'; compile the model again", expected, (int)n,
             (const char *)t->at);
}

bool teg_mil_text_accept(struct teg_mil_text *t, char c)
{
    if (teg_mil_text_peek(t) != (uint8_t)c || t->at == t->end)
        return false;
    t->at++;
    return true;
}

enum teg_status teg_mil_text_expect(struct teg_mil_text *t, const char *token)
{
    const size_t n = strlen(token);
    char quoted[40];
    skip_space(t);
    if ((size_t)(t->end - t->at) >= n && memcmp(t->at, token, n) == 0) {
        t->at += n;
        return TEG_OK;
    }
    (void)snprintf(quoted, sizeof quoted, "'%s'", token);
    return teg_mil_text_wrong(t, quoted);
}

static bool is_letter(uint8_t c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_digit(uint8_t c)
{
    return c >= '0' && c <= '9';
}

enum teg_status teg_mil_text_word(struct teg_mil_text *t, const char *what, struct teg_span *word)
{
    skip_space(t);
    const uint8_t *const begin = t->at;
    if (t->at == t->end || !is_letter(*t->at))
        return teg_mil_text_wrong(t, what);
    while (t->at < t->end && (is_letter(*t->at) || is_digit(*t->at) || *t->at == '@' || *t->at == '.'))
        t->at++;
    *word = (struct teg_span){begin, (size_t)(t->at - begin)};
    return TEG_OK;
}

static bool accept_word(struct teg_mil_text *t, const char *word)
{
    struct teg_span found;
    const uint8_t *const begin = t->at;
    skip_space(t);
    if (t->at < t->end && is_letter(*t->at) && teg_mil_text_word(t, word, &found) == TEG_OK &&
        found.n_bytes == strlen(word) && memcmp(found.bytes, word, found.n_bytes) == 0)
        return true;
    t->at = begin;
    return false;
}

enum teg_status teg_mil_text_skip(struct teg_mil_text *t)
{
    size_t depth = 0;
    bool in_string = false;
    const uint8_t *const begin = t->at;
    for (; t->at < t->end; t->at++) {
        const uint8_t c = *t->at;
        if (in_string) {
            t->at += c == '\\' && t->at + 1 < t->end;
            in_string = c != '"';
            continue;
        }
        in_string = c == '"';
        depth += c == '[' || c == '(' || c == '{';
        depth -= (c == ']' || c == ')' || c == '}') && depth;
        if (!depth && c == ']') {
            t->at++;
            return TEG_OK;
        }
    }
    MIL_FAIL(t->r, TEG_ERR_FORMAT, begin,
             "expected ']' for every '[', found the end of the text; compile the model "
             "again");
}

/* ---- numbers ---- */

static int digit_of(uint8_t c)
{
    return is_digit(c) ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : 99;
}

/* Digits with at most one point into a mantissa of 60 bits or more and the exponent of the base that goes with it. */
static bool read_digits(struct teg_mil_text *t, int base, uint64_t *mantissa, int64_t *exponent)
{
    bool any = false, after_point = false;
    uint64_t m = 0;
    int64_t e = 0;
    for (; t->at < t->end; t->at++) {
        if (*t->at == '.' && !after_point) {
            after_point = true;
            continue;
        }
        const int d = digit_of(*t->at);
        if (d >= base)
            break;
        any = true;
        if (m <= (UINT64_MAX - 15) / 16) { /* later digits are beyond the precision of every type */
            m = m * (uint64_t)base + (uint64_t)d;
            e -= after_point;
        } else
            e += !after_point;
    }
    *mantissa = m;
    *exponent = e;
    return any;
}

/* p+3 or e-3, where there is one; capped, since past the cap everything is 0 or infinite. */
static bool read_exponent(struct teg_mil_text *t, char letter, int64_t *exponent)
{
    enum { CAP = 100000 };
    if (t->at == t->end || (*t->at | 0x20) != letter)
        return true;
    t->at++;
    const bool is_negative = t->at < t->end && *t->at == '-';
    t->at += t->at < t->end && (*t->at == '-' || *t->at == '+');
    int64_t e = 0;
    const uint8_t *const begin = t->at;
    for (; t->at < t->end && is_digit(*t->at); t->at++)
        e = e < CAP ? e * 10 + (*t->at - '0') : e;
    *exponent += is_negative ? -e : e;
    return t->at > begin;
}

static int clamp_exponent(int64_t e)
{
    return e > 100000 ? 100000 : e < -100000 ? -100000 : (int)e;
}

static enum teg_status read_float(struct teg_mil_text *t, double *out)
{
    skip_space(t);
    const uint8_t *const begin = t->at;
    const bool is_negative = teg_mil_text_accept(t, '-');
    uint64_t mantissa = 0;
    int64_t exponent = 0;
    double v;
    if (accept_word(t, "inf") || accept_word(t, "infinity"))
        v = (double)INFINITY;
    else if (accept_word(t, "nan"))
        v = (double)NAN;
    else {
        const bool is_hex = t->end - t->at > 2 && t->at[0] == '0' && (t->at[1] | 0x20) == 'x';
        t->at += is_hex ? 2 : 0;
        if (!read_digits(t, is_hex ? 16 : 10, &mantissa, &exponent)) {
            t->at = begin;
            return teg_mil_text_wrong(t, "a number");
        }
        exponent *= is_hex ? 4 : 1;
        if (!read_exponent(t, is_hex ? 'p' : 'e', &exponent)) {
            t->at = begin;
            return teg_mil_text_wrong(t, "a number");
        }
        v = is_hex || !mantissa ? ldexp((double)mantissa, clamp_exponent(exponent))
                                : (double)((long double)mantissa * powl(10.0L, (long double)clamp_exponent(exponent)));
    }
    *out = is_negative ? -v : v;
    return TEG_OK;
}

/* A decimal or 0x integer that 64 bits hold, signed or not. */
static enum teg_status read_int(struct teg_mil_text *t, int64_t *out)
{
    skip_space(t);
    const uint8_t *const begin = t->at;
    const bool is_negative = teg_mil_text_accept(t, '-');
    const bool is_hex = t->end - t->at > 2 && t->at[0] == '0' && (t->at[1] | 0x20) == 'x';
    const int base = is_hex ? 16 : 10;
    uint64_t v = 0;
    bool any = false, fits = true;
    t->at += is_hex ? 2 : 0;
    for (; t->at < t->end && digit_of(*t->at) < base; t->at++) {
        const uint64_t d = (uint64_t)digit_of(*t->at);
        fits = fits && v <= (UINT64_MAX - d) / (uint64_t)base;
        v = fits ? v * (uint64_t)base + d : v;
        any = true;
    }
    if (!any || !fits || (is_negative && v > (uint64_t)1 << 63)) {
        t->at = begin;
        return teg_mil_text_wrong(t, "an integer of 64 bits");
    }
    *out = (int64_t)(is_negative ? 0 - v : v);
    return TEG_OK;
}

/* ---- strings ---- */

static uint8_t unescape(uint8_t c)
{
    static const char from[] = "ntr0", to[] = "\n\t\r\0";
    const char *const found = c ? strchr(from, c) : NULL;
    return found ? (uint8_t)to[found - from] : c;
}

static enum teg_status read_string(struct teg_mil_text *t, struct teg_string *out)
{
    if (!teg_mil_text_accept(t, '"'))
        return teg_mil_text_wrong(t, "a quoted string");
    const uint8_t *const begin = t->at;
    size_t n_escapes = 0;
    while (t->at < t->end && *t->at != '"') {
        const bool is_escape = *t->at == '\\' && t->end - t->at > 1;
        n_escapes += is_escape;
        t->at += is_escape ? 2 : 1;
    }
    if (t->at >= t->end)
        MIL_FAIL(t->r, TEG_ERR_FORMAT, begin,
                 "expected a closing quote, found the end of the text; compile the model "
                 "again");
    const size_t n = (size_t)(t->at++ - begin);
    *out = (struct teg_string){(const char *)begin, n};
    if (!n_escapes)
        return TEG_OK;
    char *const copy = teg_arena_array(t->r->arena, n, 1);
    if (!copy)
        return teg_mil_no_memory(t->r, n);
    size_t length = 0;
    for (size_t i = 0; i < n; i++) {
        const bool is_escape = begin[i] == '\\' && i + 1 < n;
        i += is_escape;
        copy[length++] = (char)(is_escape ? unescape(begin[i]) : begin[i]);
    }
    *out = (struct teg_string){copy, length};
    return TEG_OK;
}

/* ---- types ---- */

static enum teg_status read_length(struct teg_mil_text *t, int64_t *length)
{
    if (teg_mil_text_accept(t, '?')) {
        *length = TEG_MIL_UNKNOWN;
        return TEG_OK;
    }
    TRY(read_int(t, length));
    return *length < 0 ? teg_mil_text_wrong(t, "a length of 0 or more") : TEG_OK;
}

static enum teg_status read_dtype(struct teg_mil_text *t, enum teg_mil_dtype *dtype)
{
    struct teg_span word;
    TRY(teg_mil_text_word(t, "an element type", &word));
    if (!teg_mil_dtype_by_name(word, dtype))
        MIL_FAIL(t->r, TEG_ERR_UNSUPPORTED, word.bytes, "expected a known element type, found '%.*s'; update tegula",
                 MIL_NAME(word));
    return TEG_OK;
}

static enum teg_status read_tensor_type(struct teg_mil_text *t, struct teg_mil_type *type)
{
    TRY(teg_mil_text_expect(t, "<"));
    TRY(read_dtype(t, &type->dtype));
    TRY(teg_mil_text_expect(t, ","));
    TRY(teg_mil_text_expect(t, "["));
    if (teg_mil_text_accept(t, '.')) { /* [...]: any rank */
        TRY(teg_mil_text_expect(t, ".."));
        type->rank = -1;
    } else if (teg_mil_text_peek(t) != ']')
        do {
            if (type->rank == TEG_MIL_MAX_RANK)
                MIL_FAIL(t->r, TEG_ERR_UNSUPPORTED, t->at,
                         "expected tensors of rank %d at most, found more; export the "
                         "model with fewer dimensions",
                         TEG_MIL_MAX_RANK);
            TRY(read_length(t, &type->dims[type->rank++]));
        } while (teg_mil_text_accept(t, ','));
    TRY(teg_mil_text_expect(t, "]"));
    return teg_mil_text_expect(t, ">");
}

static enum teg_status read_inner_type(struct teg_mil_text *t, int depth, const struct teg_mil_type **out)
{
    struct teg_mil_type *const type = teg_arena_array(t->r->arena, 1, sizeof *type);
    if (!type)
        return teg_mil_no_memory(t->r, sizeof *type);
    *out = type;
    return teg_mil_text_type(t, depth + 1, type);
}

static enum teg_status read_state_type(struct teg_mil_text *t, int depth, struct teg_mil_type *type)
{
    TRY(teg_mil_text_expect(t, "<"));
    TRY(teg_mil_text_type(t, depth + 1, type));
    if (type->kind != TEG_MIL_TENSOR)
        return teg_mil_text_wrong(t, "a state of a tensor");
    type->kind = TEG_MIL_STATE;
    return teg_mil_text_expect(t, ">");
}

static enum teg_status read_list_type(struct teg_mil_text *t, int depth, struct teg_mil_type *type)
{
    type->kind = TEG_MIL_LIST;
    TRY(teg_mil_text_expect(t, "<"));
    TRY(read_inner_type(t, depth, &type->element));
    TRY(teg_mil_text_expect(t, ","));
    TRY(read_length(t, &type->length));
    return teg_mil_text_expect(t, ">");
}

static enum teg_status read_dict_type(struct teg_mil_text *t, int depth, struct teg_mil_type *type)
{
    type->kind = TEG_MIL_DICT;
    TRY(teg_mil_text_expect(t, "<"));
    TRY(read_inner_type(t, depth, &type->key));
    TRY(teg_mil_text_expect(t, ","));
    TRY(read_inner_type(t, depth, &type->element));
    return teg_mil_text_expect(t, ">");
}

static enum teg_status read_tuple_type(struct teg_mil_text *t, int depth, struct teg_mil_type *type)
{
    const struct teg_mil_type *ignored;
    type->kind = TEG_MIL_TUPLE;
    TRY(teg_mil_text_expect(t, "<"));
    do
        TRY(read_inner_type(t, depth, &ignored));
    while (teg_mil_text_accept(t, ','));
    return teg_mil_text_expect(t, ">");
}

enum teg_status teg_mil_text_type(struct teg_mil_text *t, int depth, struct teg_mil_type *type)
{
    static const struct {
        const char *word;
        enum teg_status (*read)(struct teg_mil_text *, int, struct teg_mil_type *);
    } compound[] = {
        {"state", read_state_type}, {"list", read_list_type}, {"dict", read_dict_type}, {"tuple", read_tuple_type}};
    *type = (struct teg_mil_type){.kind = TEG_MIL_TENSOR};
    if (depth > TEG_MIL_MAX_TYPE_DEPTH)
        return teg_mil_text_wrong(t, "types at most 16 deep");
    if (accept_word(t, "tensor"))
        return read_tensor_type(t, type);
    for (size_t i = 0; i < sizeof compound / sizeof *compound; i++)
        if (accept_word(t, compound[i].word))
            return compound[i].read(t, depth, type);
    return read_dtype(t, &type->dtype);
}

/* ---- tensor literals ---- */

static void put_bits(uint8_t *to, size_t i, uint32_t width, uint64_t bits)
{
    if (width >= 8) {
        for (uint32_t b = 0; b < width / 8; b++)
            to[i * (width / 8) + b] = (uint8_t)(bits >> (8 * b));
        return;
    }
    for (uint32_t b = 0; b < width; b++) {
        const size_t at = i * width + b;
        to[at / 8] = (uint8_t)(to[at / 8] | (bits >> b & 1) << (at % 8));
    }
}

static bool bits_of_float(enum teg_mil_dtype dtype, double v, uint64_t *bits)
{
    const float f = (float)v;
    uint32_t low;
    memcpy(&low, &f, sizeof low);
    memcpy(bits, &v, sizeof *bits);
    if (dtype == TEG_MIL_FP32)
        *bits = low;
    else if (dtype == TEG_MIL_FP16)
        *bits = teg_f32_to_f16(f);
    else if (dtype == TEG_MIL_BF16)
        *bits = teg_f32_to_bf16(f);
    return dtype != TEG_MIL_FP8E4M3FN && dtype != TEG_MIL_FP8E5M2;
}

static enum teg_status read_bool(struct teg_mil_text *t, uint64_t *bits)
{
    *bits = accept_word(t, "true");
    return *bits || accept_word(t, "false") ? TEG_OK : teg_mil_text_wrong(t, "true or false");
}

static bool int_fits(const struct teg_mil_dtype_info *info, int64_t v)
{
    if (info->bits == 64)
        return true;
    const int64_t most = ((int64_t)1 << (info->bits - (info->class_ == TEG_MIL_CLASS_INT))) - 1;
    return v <= most && v >= (info->class_ == TEG_MIL_CLASS_INT ? -most - 1 : 0);
}

static enum teg_status read_element(struct teg_mil_text *t, struct teg_mil_const *value, uint8_t *to, size_t i)
{
    const struct teg_mil_dtype_info *const info = teg_mil_dtype_info(value->type.dtype);
    uint64_t bits = 0;
    int64_t integer = 0;
    double real = 0;
    switch (info->class_) {
    case TEG_MIL_CLASS_STRING:
        return read_string(t, (struct teg_string *)(void *)to + i);
    case TEG_MIL_CLASS_BOOL:
        TRY(read_bool(t, &bits));
        break;
    case TEG_MIL_CLASS_FLOAT:
        TRY(read_float(t, &real));
        if (!bits_of_float(value->type.dtype, real, &bits))
            MIL_FAIL(t->r, TEG_ERR_UNSUPPORTED, t->at,
                     "expected inline floats of 16 bits or more, found %s; keep them "
                     "in the weight file",
                     info->name);
        break;
    case TEG_MIL_CLASS_INT:
    case TEG_MIL_CLASS_UINT:
        TRY(read_int(t, &integer));
        if (!int_fits(info, integer))
            MIL_FAIL(t->r, TEG_ERR_FORMAT, t->at,
                     "expected integers in the range of %s, found %lld; export the model "
                     "again",
                     info->name, (long long)integer);
        bits = (uint64_t)integer;
        break;
    }
    put_bits(to, i, info->bits, bits);
    return TEG_OK;
}

/* One bracket level a dimension; recursion is bounded by the rank. */
static enum teg_status read_nested(struct teg_mil_text *t, struct teg_mil_const *value, int32_t dim, uint8_t *to,
                                   size_t *i)
{
    if (dim == value->type.rank)
        return read_element(t, value, to, (*i)++);
    TRY(teg_mil_text_expect(t, "["));
    for (int64_t k = 0; k < value->type.dims[dim]; k++) {
        if (k)
            TRY(teg_mil_text_expect(t, ","));
        TRY(read_nested(t, value, dim + 1, to, i));
    }
    return teg_mil_text_expect(t, "]");
}

static enum teg_status read_tensor(struct teg_mil_text *t, struct teg_mil_const *value)
{
    const bool is_string = value->type.dtype == TEG_MIL_STRING;
    size_t n, n_bytes = 0, i = 0;
    if (!teg_mil_count(&value->type, &n) || n > (size_t)(t->end - t->at))
        return teg_mil_text_wrong(t, "a value for every element of a constant shape");
    if (!is_string && !teg_mil_bytes(value->type.dtype, n, &n_bytes))
        return teg_mil_no_memory(t->r, n);
    uint8_t *const to = teg_arena_array(t->r->arena, is_string ? n : n_bytes, is_string ? sizeof *value->strings : 1);
    if (!to)
        return teg_mil_no_memory(t->r, n_bytes);
    if (is_string)
        value->strings = (const struct teg_string *)(const void *)to;
    else {
        value->bytes = to;
        value->n_bytes = n_bytes;
    }
    return n ? read_nested(t, value, 0, to, &i) : teg_mil_text_skip(t);
}

/* ( path = string, offset = uint64 ), in any order */
static enum teg_status read_blob(struct teg_mil_text *t, int depth, struct teg_mil_const *value)
{
    const uint8_t *const at = t->at;
    struct teg_mil_const path = {0}, offset = {0};
    TRY(teg_mil_text_expect(t, "("));
    do {
        const bool is_path = accept_word(t, "path");
        if (!is_path)
            TRY(teg_mil_text_expect(t, "offset"));
        TRY(teg_mil_text_expect(t, "="));
        TRY(teg_mil_text_literal(t, depth + 1, is_path ? &path : &offset));
    } while (teg_mil_text_accept(t, ','));
    TRY(teg_mil_text_expect(t, ")"));
    uint64_t place = 0;
    if (!path.strings || path.type.rank || !offset.bytes || offset.n_bytes != sizeof place)
        return teg_mil_text_wrong(t, "a path and an offset of 64 bits before this");
    for (size_t b = 0; b < sizeof place; b++)
        place |= (uint64_t)offset.bytes[b] << (8 * b);
    const struct teg_span name = {(const uint8_t *)path.strings->bytes, path.strings->n_bytes};
    return teg_mil_blob(t->r, name, place, value, at);
}

/* ---- other literals ---- */

static enum teg_status read_body(struct teg_mil_text *t, int depth, struct teg_mil_const *value);

/* A literal of its own, or a bare body of the type that the container declares (tuples declare none). */
static enum teg_status read_item(struct teg_mil_text *t, int depth, const struct teg_mil_type *type,
                                 struct teg_mil_const *value)
{
    const uint8_t *const begin = t->at;
    struct teg_span word;
    const bool is_word = is_letter(teg_mil_text_peek(t)) && teg_mil_text_word(t, "a type", &word) == TEG_OK;
    const uint8_t next = is_word ? teg_mil_text_peek(t) : 0;
    t->at = begin;
    if ((is_word && (next == '<' || next == '(')) || !type)
        return teg_mil_text_literal(t, depth, value);
    *value = (struct teg_mil_const){.type = *type};
    return read_body(t, depth, value);
}

static enum teg_status append(struct teg_mil_text *t, struct teg_mil_const **items, size_t *n, size_t *capacity,
                              struct teg_mil_const **item)
{
    void *grown = *items;
    if (!teg_mil_grow(t->r->arena, &grown, *n, capacity, sizeof **items))
        return teg_mil_no_memory(t->r, *n * sizeof **items);
    *items = grown;
    *item = &(*items)[(*n)++];
    return TEG_OK;
}

static enum teg_status read_entry(struct teg_mil_text *t, int depth, const struct teg_mil_type *dict,
                                  struct teg_mil_const **items, size_t *n, size_t *capacity)
{
    struct teg_mil_const *item = NULL;
    TRY(teg_mil_text_expect(t, "{"));
    TRY(append(t, items, n, capacity, &item));
    TRY(read_item(t, depth + 1, dict->key, item));
    TRY(teg_mil_text_expect(t, ","));
    TRY(append(t, items, n, capacity, &item));
    TRY(read_item(t, depth + 1, dict->element, item));
    return teg_mil_text_expect(t, "}");
}

static enum teg_status read_items(struct teg_mil_text *t, int depth, struct teg_mil_const *value)
{
    static const char closers[] = {'[', ']', '(', ')', '{', '}'};
    const bool is_dict = value->type.kind == TEG_MIL_DICT;
    struct teg_mil_const *items = NULL, *item = NULL;
    size_t n = 0, capacity = 0, kind = is_dict ? 4 : teg_mil_text_peek(t) == '(' ? 2 : 0;
    if (!teg_mil_text_accept(t, closers[kind]))
        return teg_mil_text_wrong(t, is_dict ? "'{'" : "'[' or '('");
    if (!teg_mil_text_accept(t, closers[kind + 1])) {
        do {
            if (is_dict) {
                TRY(read_entry(t, depth, &value->type, &items, &n, &capacity));
                continue;
            }
            TRY(append(t, &items, &n, &capacity, &item));
            TRY(read_item(t, depth + 1, value->type.element, item));
        } while (teg_mil_text_accept(t, ','));
        if (!teg_mil_text_accept(t, closers[kind + 1]))
            return teg_mil_text_wrong(t, "',' or the end of a list");
    }
    if (value->type.kind == TEG_MIL_LIST && value->type.length != TEG_MIL_UNKNOWN && (uint64_t)value->type.length != n)
        return teg_mil_text_wrong(t, "as many list items as the type says before this");
    value->items = items;
    value->n_items = n;
    return TEG_OK;
}

static enum teg_status read_body(struct teg_mil_text *t, int depth, struct teg_mil_const *value)
{
    if (depth > TEG_MIL_MAX_VALUE_DEPTH)
        return teg_mil_text_wrong(t, "values at most 16 deep");
    if (accept_word(t, "BLOBFILE"))
        return read_blob(t, depth, value);
    if (value->type.kind == TEG_MIL_STATE)
        return teg_mil_text_wrong(t, "a value that is not a state");
    return value->type.kind == TEG_MIL_TENSOR ? read_tensor(t, value) : read_items(t, depth, value);
}

enum teg_status teg_mil_text_literal(struct teg_mil_text *t, int depth, struct teg_mil_const *value)
{
    *value = (struct teg_mil_const){0};
    TRY(teg_mil_text_type(t, 1, &value->type));
    TRY(teg_mil_text_expect(t, "("));
    TRY(read_body(t, depth, value));
    return teg_mil_text_expect(t, ")");
}
