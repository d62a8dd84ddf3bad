/* predict_report.c: outputs of a prediction as text, JSON and .npz.
 *
 * Invariant: the numbers that are shown are those of the declared type; min, max and mean leave NaN out and its count
 * is shown beside them, so one NaN does not hide the rest. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "array.h"
#include "predict.h"

enum { first_values = 8, top_entries = 5 };

static size_t count_of(const struct teg_feature_value *v)
{
    size_t n = 1;
    for (uint32_t d = 0; d < v->rank; d++)
        n *= (size_t)v->dims[d];
    return n;
}

/* ---- numbers ---- */

static double half_value(uint16_t bits)
{
    const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    const double sign = bits & 0x8000 ? -1 : 1;
    if (exponent == 31)
        return mantissa ? NAN : sign * INFINITY;
    return sign * (exponent ? ldexp(1024 + mantissa, exponent - 25) : ldexp(mantissa, -24));
}

#define READ(type)                                                                                                     \
    {                                                                                                                  \
        type x;                                                                                                        \
        memcpy(&x, (const char *)v->data + i * sizeof(x), sizeof(x));                                                  \
        return (double)x;                                                                                              \
    }

static double number_at(const struct teg_feature_value *v, size_t i)
{
    switch (v->element) {
    case TEG_ELEMENT_F16: {
        uint16_t bits;
        memcpy(&bits, (const char *)v->data + 2 * i, 2);
        return half_value(bits);
    }
    case TEG_ELEMENT_F32:
        READ(float)
    case TEG_ELEMENT_F64:
        READ(double)
    case TEG_ELEMENT_I8:
        READ(int8_t)
    case TEG_ELEMENT_I16:
        READ(int16_t)
    case TEG_ELEMENT_U16:
        READ(uint16_t)
    case TEG_ELEMENT_I32:
        READ(int32_t)
    case TEG_ELEMENT_U32:
        READ(uint32_t)
    case TEG_ELEMENT_I64:
        READ(int64_t)
    case TEG_ELEMENT_U64:
        READ(uint64_t)
    default:
        READ(uint8_t)
    }
}
#undef READ

struct statistics {
    double least, most, mean;
    size_t n_nan;
};

static struct statistics statistics_of(const struct teg_feature_value *v)
{
    struct statistics s = {INFINITY, -INFINITY, 0, 0};
    const size_t n = count_of(v);
    for (size_t i = 0; i < n; i++) {
        const double x = number_at(v, i);
        if (isnan(x)) {
            s.n_nan++;
            continue;
        }
        s.least = x < s.least ? x : s.least;
        s.most = x > s.most ? x : s.most;
        s.mean += x;
    }
    s.mean = n > s.n_nan ? s.mean / (double)(n - s.n_nan) : NAN;
    if (n == s.n_nan)
        s.least = s.most = NAN;
    return s;
}

/* The next best entry after those with a bit in `taken`; the number of entries is small where it matters. */
static size_t best_entry(const struct teg_feature_value *v, const size_t *taken, size_t n_taken)
{
    size_t best = SIZE_MAX;
    for (size_t i = 0; i < v->n_entries; i++) {
        bool free_entry = true;
        for (size_t k = 0; k < n_taken; k++)
            free_entry = free_entry && taken[k] != i;
        if (free_entry && (best == SIZE_MAX || v->entry_values[i] > v->entry_values[best]))
            best = i;
    }
    return best;
}

/* ---- text ---- */

static void print_array(struct cli_output *output, const struct teg_feature_value *v)
{
    (void)cli_output_printf(output, "%s [", teg_element_name(v->element));
    for (uint32_t d = 0; d < v->rank; d++)
        (void)cli_output_printf(output, "%s%llu", d ? ", " : "", (unsigned long long)v->dims[d]);
    const struct statistics s = statistics_of(v);
    const size_t n = count_of(v);
    (void)cli_output_printf(output, "]  min %.6g mean %.6g max %.6g", s.least, s.mean, s.most);
    if (s.n_nan)
        (void)cli_output_printf(output, " nan %zu", s.n_nan);
    (void)cli_output_printf(output, "  first");
    for (size_t i = 0; i < n && i < first_values; i++)
        (void)cli_output_printf(output, " %.6g", number_at(v, i));
    (void)cli_output_printf(output, "%s\n", n > first_values ? " …" : "");
}

static void print_dictionary(struct cli_output *output, const struct teg_feature_value *v)
{
    size_t taken[top_entries], n_taken = 0;
    (void)cli_output_printf(output, "dictionary of %zu  first", v->n_entries);
    while (n_taken < top_entries && n_taken < v->n_entries) {
        const size_t i = best_entry(v, taken, n_taken);
        taken[n_taken++] = i;
        (void)cli_output_write(output, " ", 1);
        if (v->kind == TEG_FEATURE_DICT_STRING)
            (void)cli_output_name(output, v->string_keys[i], 0);
        else
            (void)cli_output_printf(output, "%lld", (long long)v->integer_keys[i]);
        (void)cli_output_printf(output, " = %.6g%s", v->entry_values[i], n_taken < v->n_entries ? "," : "");
    }
    (void)cli_output_printf(output, "%s\n", n_taken < v->n_entries ? " …" : "");
}

int cli_predict_print(const struct teg_values *outputs)
{
    static struct cli_output output;
    (void)cli_output_open(&output, NULL);
    for (size_t i = 0; i < teg_values_count(outputs); i++) {
        const struct teg_feature_value *const v = teg_values_at(outputs, i);
        (void)cli_output_name(&output, v->name, 20);
        (void)cli_output_write(&output, " ", 1);
        if (v->kind == TEG_FEATURE_INT64)
            (void)cli_output_printf(&output, "int64 %lld\n", (long long)v->integer);
        else if (v->kind == TEG_FEATURE_DOUBLE)
            (void)cli_output_printf(&output, "double %.9g\n", v->real);
        else if (v->kind == TEG_FEATURE_STRING) {
            (void)cli_output_write(&output, "string ", 7);
            (void)cli_output_name(&output, v->string, 0);
            (void)cli_output_write(&output, "\n", 1);
        } else if (v->kind == TEG_FEATURE_DICT_INT64 || v->kind == TEG_FEATURE_DICT_STRING)
            print_dictionary(&output, v);
        else
            print_array(&output, v);
    }
    return cli_output_close(&output, true);
}

/* ---- JSON ---- */

static json_t *json_array_output(const struct teg_feature_value *v)
{
    const struct statistics s = statistics_of(v);
    const size_t n = count_of(v);
    json_t *shape = json_array(), *first = json_array();
    for (uint32_t d = 0; d < v->rank; d++)
        json_array_append_new(shape, cli_json_u64(v->dims[d]));
    for (size_t i = 0; i < n && i < first_values; i++)
        json_array_append_new(first, cli_json_real(number_at(v, i)));
    return json_pack("{s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o}", "kind",
                     v->kind == TEG_FEATURE_IMAGE ? "image" : "array", "dtype", teg_element_name(v->element), "shape",
                     shape, "min", cli_json_real(s.least), "mean", cli_json_real(s.mean), "max", cli_json_real(s.most),
                     "nan", cli_json_u64(s.n_nan), "first", first);
}

static json_t *json_dictionary(const struct teg_feature_value *v)
{
    json_t *entries = json_object();
    for (size_t i = 0; i < v->n_entries; i++) {
        char number[32];
        snprintf(number, sizeof(number), "%lld", (long long)v->integer_keys[i]);
        const char *const key = v->kind == TEG_FEATURE_DICT_STRING ? v->string_keys[i] : number;
        json_t *clean = cli_json_text(key, strlen(key));
        json_object_set_new(entries, json_string_value(clean), cli_json_real(v->entry_values[i]));
        json_decref(clean);
    }
    return json_pack("{s:s, s:o}", "kind", "dictionary", "value", entries);
}

static json_t *json_output(const struct teg_feature_value *v)
{
    json_t *item = NULL;
    if (v->kind == TEG_FEATURE_INT64)
        item = json_pack("{s:s, s:I}", "kind", "int64", "value", (json_int_t)v->integer);
    else if (v->kind == TEG_FEATURE_DOUBLE)
        item = json_pack("{s:s, s:o}", "kind", "double", "value", cli_json_real(v->real));
    else if (v->kind == TEG_FEATURE_STRING)
        item = json_pack("{s:s, s:o}", "kind", "string", "value", cli_json_text(v->string, strlen(v->string)));
    else if (v->kind == TEG_FEATURE_DICT_INT64 || v->kind == TEG_FEATURE_DICT_STRING)
        item = json_dictionary(v);
    else
        item = json_array_output(v);
    json_object_set_new(item, "name", cli_json_text(v->name, strlen(v->name)));
    return item;
}

int cli_predict_json(const struct teg_values *outputs, const struct cli_timing *timing,
                     const struct teg_predict_report *report)
{
    json_t *list = json_array();
    for (size_t i = 0; i < teg_values_count(outputs); i++)
        json_array_append_new(list, json_output(teg_values_at(outputs, i)));
    json_t *overflow =
        report->overflow_op ? cli_json_text(report->overflow_op, strlen(report->overflow_op)) : json_null();
    return cli_json_print(json_pack(
        "{s:o, s:{s:I, s:f, s:f, s:f}, s:o, s:o, s:o}", "outputs", list, "timing", "runs", (json_int_t)timing->n_runs,
        "median_ms", timing->median * 1e3, "min_ms", timing->least * 1e3, "max_ms", timing->most * 1e3, "overflow_op",
        overflow, "peak_bytes", cli_json_u64(report->peak_bytes), "n_ops", cli_json_u64(report->n_ops)));
}

/* ---- .npz ---- */

/* Strings as fixed-width bytes, which NumPy reads without unpickling. */
static int add_strings(struct cli_npz_writer *npz, const char *name, const char *const *strings, size_t n,
                       uint32_t rank)
{
    size_t width = 1;
    for (size_t i = 0; i < n; i++)
        width = strlen(strings[i]) > width ? strlen(strings[i]) : width;
    char *const table = calloc(n ? n : 1, width);
    if (!table)
        return cli_fail_memory();
    for (size_t i = 0; i < n; i++)
        memcpy(table + i * width, strings[i], strlen(strings[i]));
    const uint64_t dims[1] = {n};
    const int code = cli_npz_add(npz, name, TEG_ELEMENT_U8, width, rank, dims, table);
    free(table);
    return code;
}

static int add_dictionary(struct cli_npz_writer *npz, const struct teg_feature_value *v)
{
    char keys[512], values[512];
    const uint64_t dims[1] = {v->n_entries};
    snprintf(keys, sizeof(keys), "%.500s.keys", v->name);
    snprintf(values, sizeof(values), "%.500s.values", v->name);
    const int code = v->kind == TEG_FEATURE_DICT_STRING
                         ? add_strings(npz, keys, v->string_keys, v->n_entries, 1)
                         : cli_npz_add(npz, keys, TEG_ELEMENT_I64, 0, 1, dims, v->integer_keys);
    return code != CLI_DONE ? code : cli_npz_add(npz, values, TEG_ELEMENT_F64, 0, 1, dims, v->entry_values);
}

static int add_output(struct cli_npz_writer *npz, const struct teg_feature_value *v)
{
    switch (v->kind) {
    case TEG_FEATURE_INT64:
        return cli_npz_add(npz, v->name, TEG_ELEMENT_I64, 0, 0, NULL, &v->integer);
    case TEG_FEATURE_DOUBLE:
        return cli_npz_add(npz, v->name, TEG_ELEMENT_F64, 0, 0, NULL, &v->real);
    case TEG_FEATURE_STRING:
        return add_strings(npz, v->name, &v->string, 1, 0);
    case TEG_FEATURE_DICT_INT64:
    case TEG_FEATURE_DICT_STRING:
        return add_dictionary(npz, v);
    default:
        return cli_npz_add(npz, v->name, v->element, 0, v->rank, v->dims, v->data);
    }
}

int cli_predict_write(const struct teg_values *outputs, const char *path)
{
    static struct cli_output output;
    struct cli_npz_writer npz;
    int code = cli_output_open(&output, path);
    cli_npz_begin(&npz, &output);
    for (size_t i = 0; code == CLI_DONE && i < teg_values_count(outputs); i++)
        code = add_output(&npz, teg_values_at(outputs, i));
    if (code == CLI_DONE)
        code = cli_npz_finish(&npz);
    cli_bytes_free(&npz.directory);
    const int closed = cli_output_close(&output, code == CLI_DONE);
    return code != CLI_DONE ? code : closed;
}
