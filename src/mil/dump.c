/* mil/dump.c: a function as MIL-like text, for people: small constants stand where they are used, long ones are cut,
 * large ones are named. Not a format: text.c reads what Apple's compiler writes, not this. */
#include <inttypes.h>
#include <math.h>

#include "base/text.h"
#include "dtype/dtype.h"
#include "mil/impl.h"

enum { MOST_SHOWN = 8, INDENT = 4 };

/* ---- constants ---- */

static uint64_t element_bits(const struct teg_mil_const *value, size_t i)
{
    const uint32_t width = teg_mil_dtype_info(value->type.dtype)->bits;
    uint64_t bits = 0;
    for (uint32_t b = 0; b < width; b++) {
        const uint64_t at = (uint64_t)i * width + b;
        bits |= (uint64_t)(value->bytes[at / 8] >> (at % 8) & 1) << b;
    }
    return bits;
}

/* Sign, exponent, mantissa from the top bit down; no infinities in e4m3fn. */
static double fp8(uint64_t bits, int exponent_bits, int mantissa_bits, bool is_finite)
{
    const int bias = (1 << (exponent_bits - 1)) - 1;
    const int exponent = (int)(bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
    const int mantissa = (int)bits & ((1 << mantissa_bits) - 1);
    const double sign = bits >> 7 ? -1.0 : 1.0;
    if (is_finite ? (bits & 0x7f) == 0x7f : exponent == (1 << exponent_bits) - 1 && mantissa)
        return NAN;
    if (!is_finite && exponent == (1 << exponent_bits) - 1)
        return sign * (double)INFINITY;
    return sign *
           ldexp(mantissa + (exponent ? 1 << mantissa_bits : 0), (exponent ? exponent : 1) - bias - mantissa_bits);
}

static double float_of(enum teg_mil_dtype dtype, uint64_t bits)
{
    float f;
    double d;
    const uint32_t low = (uint32_t)bits;
    switch (dtype) {
    case TEG_MIL_FP16:
        return (double)teg_f16_to_f32((uint16_t)bits);
    case TEG_MIL_BF16:
        return (double)teg_bf16_to_f32((uint16_t)bits);
    case TEG_MIL_FP8E4M3FN:
        return fp8(bits, 4, 3, true);
    case TEG_MIL_FP8E5M2:
        return fp8(bits, 5, 2, false);
    case TEG_MIL_FP32:
        memcpy(&f, &low, sizeof f);
        return (double)f;
    default:
        memcpy(&d, &bits, sizeof d);
        return d;
    }
}

static void print_element(struct teg_buf *out, const struct teg_mil_const *value, size_t i)
{
    const struct teg_mil_dtype_info *const info = teg_mil_dtype_info(value->type.dtype);
    if (value->type.dtype == TEG_MIL_STRING) {
        teg_buf_json_string(out, value->strings[i].bytes, value->strings[i].n_bytes);
        return;
    }
    const uint64_t bits = element_bits(value, i);
    const uint32_t spare = 64 - info->bits;
    if (info->class_ == TEG_MIL_CLASS_BOOL)
        teg_buf_puts(out, bits ? "true" : "false");
    else if (info->class_ == TEG_MIL_CLASS_UINT)
        teg_buf_printf(out, "%" PRIu64, bits);
    else if (info->class_ == TEG_MIL_CLASS_INT)
        teg_buf_printf(out, "%" PRId64, (int64_t)(bits << spare) / (int64_t)((uint64_t)1 << spare));
    else
        teg_buf_printf(out, "%.6g", float_of(value->type.dtype, bits));
}

static void print_tensor(struct teg_buf *out, const struct teg_mil_const *value)
{
    size_t n = 0;
    (void)teg_mil_count(&value->type, &n);
    if (value->file) {
        teg_buf_puts(out, "BLOBFILE(");
        teg_buf_json_string(out, value->file, strlen(value->file));
        teg_buf_printf(out, ", %" PRIu64 ")", value->file_offset);
        return;
    }
    teg_buf_puts(out, value->type.rank ? "[" : "");
    for (size_t i = 0; i < n && i < MOST_SHOWN; i++) {
        teg_buf_puts(out, i ? ", " : "");
        print_element(out, value, i);
    }
    teg_buf_puts(out, n > MOST_SHOWN ? ", ..." : "");
    teg_buf_puts(out, value->type.rank ? "]" : "");
}

static void print_value(struct teg_buf *out, const struct teg_mil_const *value);

/* Lists, tuples, dictionaries; values nest TEG_MIL_MAX_VALUE_DEPTH deep at most. */
static void print_items(struct teg_buf *out, const struct teg_mil_const *value)
{
    const bool is_dict = value->type.kind == TEG_MIL_DICT;
    teg_buf_puts(out, is_dict ? "{" : "(");
    for (size_t i = 0; i < value->n_items && i < MOST_SHOWN; i++) {
        teg_buf_puts(out, !i ? "" : is_dict && i % 2 ? ": " : ", ");
        print_value(out, &value->items[i]);
    }
    teg_buf_puts(out, value->n_items > MOST_SHOWN ? ", ..." : "");
    teg_buf_puts(out, is_dict ? "}" : ")");
}

static void print_value(struct teg_buf *out, const struct teg_mil_const *value)
{
    if (value->type.kind == TEG_MIL_TENSOR)
        print_tensor(out, value);
    else
        print_items(out, value);
}

/* ---- ops ---- */

static bool is_small(const struct teg_mil_const *value)
{
    size_t n;
    return value->type.kind != TEG_MIL_TENSOR || (!value->file && teg_mil_count(&value->type, &n) && n <= MOST_SHOWN);
}

static void print_var(struct teg_buf *out, const struct teg_mil_var *var)
{
    const bool has_name = var->name[0] != '\0';
    if (var->constant && (!has_name || is_small(var->constant))) {
        if (var->constant->file) {
            teg_mil_print_type(out, &var->type);
            teg_buf_puts(out, " ");
        }
        print_value(out, var->constant);
    } else
        teg_buf_puts(out, var->name);
}

static void print_vars(const struct teg_mil_program *p, const teg_mil_var_id *ids, size_t n, struct teg_buf *out)
{
    for (size_t i = 0; i < n; i++) {
        teg_buf_puts(out, i ? ", " : "");
        print_var(out, &p->vars[ids[i]]);
    }
}

static void print_typed(const struct teg_mil_program *p, const teg_mil_var_id *ids, size_t n, struct teg_buf *out)
{
    for (size_t i = 0; i < n; i++) {
        teg_buf_puts(out, i ? ", " : "");
        teg_mil_print_type(out, &p->vars[ids[i]].type);
        teg_buf_printf(out, " %s", p->vars[ids[i]].name);
    }
}

static void print_block(const struct teg_mil_program *p, const struct teg_mil_block *block, int indent,
                        struct teg_buf *out);

static void print_op(const struct teg_mil_program *p, const struct teg_mil_op *op, int indent, struct teg_buf *out)
{
    teg_buf_printf(out, "%*s", indent, "");
    print_typed(p, op->outputs, op->n_outputs, out);
    teg_buf_printf(out, "%s%s(", op->n_outputs ? " = " : "", op->type);
    for (size_t i = 0; i < op->n_args; i++) {
        const struct teg_mil_arg *const arg = &op->args[i];
        teg_buf_printf(out, "%s%s = %s", i ? ", " : "", arg->name, arg->n_vars == 1 ? "" : "(");
        print_vars(p, arg->vars, arg->n_vars, out);
        teg_buf_puts(out, arg->n_vars == 1 ? "" : ")");
    }
    teg_buf_puts(out, ")");
    const bool says_name = op->name[0] && (!op->n_outputs || strcmp(op->name, p->vars[op->outputs[0]].name) != 0);
    teg_buf_printf(out, "%s%s\n", says_name ? " # " : "", says_name ? op->name : "");
    for (size_t i = 0; i < op->n_blocks; i++)
        print_block(p, &op->blocks[i], indent + INDENT, out);
}

/* Blocks nest TEG_MIL_MAX_BLOCK_DEPTH deep at most. */
static void print_block(const struct teg_mil_program *p, const struct teg_mil_block *block, int indent,
                        struct teg_buf *out)
{
    teg_buf_printf(out, "%*s(", indent, "");
    print_typed(p, block->inputs, block->n_inputs, out);
    teg_buf_puts(out, ") {\n");
    for (size_t i = 0; i < block->n_ops; i++)
        print_op(p, &block->ops[i], indent + INDENT, out);
    teg_buf_printf(out, "%*s} -> (", indent, "");
    print_vars(p, block->outputs, block->n_outputs, out);
    teg_buf_puts(out, ")\n");
}

void teg_mil_dump(const struct teg_mil_program *program, const struct teg_mil_function *function, struct teg_buf *out)
{
    teg_buf_printf(out, "func %s<%s>\n", function->name, function->opset_name);
    print_block(program, &function->block, 0, out);
}
