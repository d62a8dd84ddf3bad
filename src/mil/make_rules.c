/* mil/make_rules.c: which ops can be made by name, their parameters, and the rules that need no shapes computed.
 *
 * One table: a row is what a reader of Apple's op reference would write down, with the defaults that are written out.
 * A dimension that is unknown stays unknown unless the other operand decides it, as in numpy's broadcasting. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "mil/make_int.h"

/* ---- helpers of all rules ---- */

bool teg_mil_op_fail(struct teg_mil_making *o, const char *format, ...)
{
    char text[240];
    va_list args;
    va_start(args, format);
    if (vsnprintf(text, sizeof text, format, args) < 0)
        text[0] = '\0';
    va_end(args);
    teg_mil_make_fail(o->m, TEG_ERR_ARGUMENT, "op '%.60s' (%.40s): %s", o->name, o->type, text);
    return false;
}

const struct teg_mil_arg *teg_mil_making_arg(const struct teg_mil_making *o, const char *name)
{
    for (size_t i = 0; i < o->n_args; i++)
        if (strcmp(o->args[i].name, name) == 0)
            return &o->args[i];
    return NULL;
}

const struct teg_mil_type *teg_mil_making_type(const struct teg_mil_making *o, const char *name)
{
    const struct teg_mil_arg *const arg = teg_mil_making_arg(o, name);
    return arg ? &o->m->program->vars[arg->vars[0]].type : NULL;
}

bool teg_mil_making_int(struct teg_mil_making *o, const char *name, int64_t absent, int64_t *value)
{
    struct teg_mil_known known;
    *value = absent;
    if (!teg_mil_making_arg(o, name))
        return true;
    if (!teg_mil_known_arg(o, name, &known) || known.n != 1 || known.at[0] == TEG_MIL_ANY)
        return teg_mil_op_fail(o, "expected '%s' to be a constant whole number, found another value", name);
    *value = known.at[0];
    return true;
}

bool teg_mil_making_axis(struct teg_mil_making *o, const char *name, int64_t absent, int32_t rank, int32_t *axis)
{
    int64_t v;
    if (!teg_mil_making_int(o, name, absent, &v))
        return false;
    if (v < -rank || v >= rank)
        return teg_mil_op_fail(o, "expected '%s' from %d to %d, found %lld", name, -rank, rank - 1, (long long)v);
    *axis = (int32_t)(v < 0 ? v + rank : v);
    return true;
}

bool teg_mil_making_bool(struct teg_mil_making *o, const char *name, bool *value)
{
    int64_t v;
    if (!teg_mil_making_int(o, name, 0, &v))
        return false;
    *value = v != 0;
    return true;
}

bool teg_mil_making_string(const struct teg_mil_making *o, const char *name, struct teg_string *value)
{
    const struct teg_mil_arg *const arg = teg_mil_making_arg(o, name);
    const struct teg_mil_const *const c = arg ? o->m->program->vars[arg->vars[0]].constant : NULL;
    if (!c || c->type.kind != TEG_MIL_TENSOR || c->type.dtype != TEG_MIL_STRING || c->type.rank)
        return false;
    *value = *c->strings;
    return true;
}

bool teg_mil_making_rank(struct teg_mil_making *o, const char *name, int32_t rank)
{
    const struct teg_mil_type *const t = teg_mil_making_type(o, name);
    if (t && t->rank != rank)
        return teg_mil_op_fail(o, "expected '%s' to have rank %d, found %d", name, rank, t->rank);
    return true;
}

bool teg_mil_broadcast_dim(int64_t a, int64_t b, int64_t *out)
{
    if (a == TEG_MIL_UNKNOWN || b == TEG_MIL_UNKNOWN) {
        const int64_t known = a == TEG_MIL_UNKNOWN ? b : a;
        *out = known > 1 ? known : TEG_MIL_UNKNOWN;
        return true;
    }
    *out = a == 1 ? b : a;
    return a == b || a == 1 || b == 1;
}

bool teg_mil_broadcast(const struct teg_mil_type *a, const struct teg_mil_type *b, struct teg_mil_type *out)
{
    const int32_t rank = a->rank > b->rank ? a->rank : b->rank;
    struct teg_mil_type t = {.kind = TEG_MIL_TENSOR, .dtype = a->dtype, .rank = rank};
    for (int32_t i = 0; i < rank; i++) {
        const int32_t ia = i - (rank - a->rank), ib = i - (rank - b->rank);
        if (!teg_mil_broadcast_dim(ia < 0 ? 1 : a->dims[ia], ib < 0 ? 1 : b->dims[ib], &t.dims[i]))
            return false;
    }
    *out = t;
    return true;
}

/* ---- elementwise ---- */

static bool is_tensor(struct teg_mil_making *o, const char *name)
{
    const struct teg_mil_type *const t = teg_mil_making_type(o, name);
    if (t && (t->kind != TEG_MIL_TENSOR || t->rank < 0))
        return teg_mil_op_fail(o, "expected '%s' to be a tensor of known rank, found another", name);
    return true;
}

static const char *name_of(enum teg_mil_dtype dtype)
{
    return teg_mil_dtype_info(dtype)->name;
}

static bool broadcast_xy(struct teg_mil_making *o, const char *x_name, const char *y_name)
{
    const struct teg_mil_type *const x = teg_mil_making_type(o, x_name), *const y = teg_mil_making_type(o, y_name);
    if (!is_tensor(o, x_name) || !is_tensor(o, y_name))
        return false;
    if (x->dtype != y->dtype)
        return teg_mil_op_fail(o, "expected '%s' and '%s' of one type, found %s and %s", x_name, y_name,
                               name_of(x->dtype), name_of(y->dtype));
    if (!teg_mil_broadcast(x, y, &o->out[0]))
        return teg_mil_op_fail(o, "expected shapes that broadcast, found others in '%s' and '%s'", x_name, y_name);
    return true;
}

static bool rule_binary(struct teg_mil_making *o)
{
    return broadcast_xy(o, "x", "y");
}

static bool rule_compare(struct teg_mil_making *o)
{
    if (!broadcast_xy(o, "x", "y"))
        return false;
    o->out[0].dtype = TEG_MIL_BOOL;
    return true;
}

static bool rule_select(struct teg_mil_making *o)
{
    const struct teg_mil_type *const cond = teg_mil_making_type(o, "cond");
    if (cond->dtype != TEG_MIL_BOOL || !is_tensor(o, "cond"))
        return teg_mil_op_fail(o, "expected 'cond' of type bool, found %s", name_of(cond->dtype));
    if (!broadcast_xy(o, "a", "b"))
        return false;
    const struct teg_mil_type both = o->out[0];
    if (!teg_mil_broadcast(&both, cond, &o->out[0]))
        return teg_mil_op_fail(o, "expected shapes that broadcast, found others in 'cond' and the values");
    return true;
}

static bool rule_same(struct teg_mil_making *o)
{
    o->out[0] = *teg_mil_making_type(o, "x");
    return is_tensor(o, "x");
}

static bool rule_along_axis(struct teg_mil_making *o)
{
    int32_t axis;
    return rule_same(o) && teg_mil_making_axis(o, "axis", -1, o->out[0].rank, &axis);
}

static bool rule_cast(struct teg_mil_making *o)
{
    struct teg_string text;
    if (!rule_same(o))
        return false;
    if (!teg_mil_making_string(o, "dtype", &text) ||
        !teg_mil_dtype_by_name((struct teg_span){(const uint8_t *)text.bytes, text.n_bytes}, &o->out[0].dtype))
        return teg_mil_op_fail(o, "expected 'dtype' to name a type, found none");
    return true;
}

static bool rule_layer_norm(struct teg_mil_making *o)
{
    struct teg_mil_known axes;
    if (!rule_same(o))
        return false;
    if (!teg_mil_making_arg(o, "axes"))
        return true;
    if (!teg_mil_known_arg(o, "axes", &axes))
        return teg_mil_op_fail(o, "expected constant 'axes', found another value");
    for (uint32_t i = 0; i < axes.n; i++)
        if (axes.at[i] < -o->out[0].rank || axes.at[i] >= o->out[0].rank)
            return teg_mil_op_fail(o, "expected 'axes' of rank %d, found %lld", o->out[0].rank, (long long)axes.at[i]);
    return true;
}

/* ---- reductions ---- */

static void drop_axes(struct teg_mil_type *t, uint32_t axes, bool keep)
{
    int32_t rank = 0;
    for (int32_t i = 0; i < t->rank; i++)
        if (!(axes >> i & 1))
            t->dims[rank++] = t->dims[i];
        else if (keep)
            t->dims[rank++] = 1;
    for (int32_t i = rank; i < TEG_MIL_MAX_RANK; i++)
        t->dims[i] = 0;
    t->rank = rank;
}

static bool rule_reduce(struct teg_mil_making *o)
{
    struct teg_mil_known axes;
    bool keep;
    uint32_t set = 0;
    if (!rule_same(o) || !teg_mil_making_bool(o, "keep_dims", &keep))
        return false;
    if (!teg_mil_making_arg(o, "axes"))
        set = (1u << o->out[0].rank) - 1;
    else if (!teg_mil_known_arg(o, "axes", &axes))
        return teg_mil_op_fail(o, "expected constant 'axes', found another value");
    else
        for (uint32_t i = 0; i < axes.n; i++) {
            const int64_t a = axes.at[i] < 0 ? axes.at[i] + o->out[0].rank : axes.at[i];
            if (a < 0 || a >= o->out[0].rank)
                return teg_mil_op_fail(o, "expected 'axes' of rank %d, found %lld", o->out[0].rank,
                                       (long long)axes.at[i]);
            set |= 1u << a;
        }
    drop_axes(&o->out[0], set, keep);
    return true;
}

static bool rule_arg(struct teg_mil_making *o)
{
    int32_t axis;
    bool keep;
    struct teg_string text;
    if (!rule_same(o) || !teg_mil_making_axis(o, "axis", -1, o->out[0].rank, &axis) ||
        !teg_mil_making_bool(o, "keep_dims", &keep))
        return false;
    drop_axes(&o->out[0], 1u << axis, keep);
    o->out[0].dtype = TEG_MIL_INT32;
    if (teg_mil_making_string(o, "output_dtype", &text) && text.n_bytes == 6 && memcmp(text.bytes, "uint16", 6) == 0)
        o->out[0].dtype = TEG_MIL_UINT16;
    return true;
}

/* values, indices */
static bool rule_topk(struct teg_mil_making *o)
{
    int32_t axis;
    int64_t k;
    if (!rule_same(o) || !teg_mil_making_axis(o, "axis", -1, o->out[0].rank, &axis) ||
        !teg_mil_making_int(o, "k", 1, &k))
        return false;
    if (k >= 0)
        o->out[0].dims[axis] = k;
    o->out[1] = o->out[0];
    o->out[1].dtype = TEG_MIL_INT32;
    return true;
}

/* ---- linear algebra ---- */

static bool fits(int64_t a, int64_t b)
{
    return a == b || a == TEG_MIL_UNKNOWN || b == TEG_MIL_UNKNOWN;
}

static bool rule_matmul(struct teg_mil_making *o)
{
    const struct teg_mil_type *const x = teg_mil_making_type(o, "x"), *const y = teg_mil_making_type(o, "y");
    struct teg_mil_type batch_x = *x, batch_y = *y;
    bool tx, ty;
    if (!is_tensor(o, "x") || !is_tensor(o, "y") || !teg_mil_making_bool(o, "transpose_x", &tx) ||
        !teg_mil_making_bool(o, "transpose_y", &ty))
        return false;
    if (x->rank < 2 || y->rank < 2)
        return teg_mil_op_fail(o, "expected operands of rank 2 or more, found %d and %d", x->rank, y->rank);
    if (x->dtype != y->dtype)
        return teg_mil_op_fail(o, "expected operands of one type, found %s and %s", name_of(x->dtype),
                               name_of(y->dtype));
    const int64_t rows = x->dims[x->rank - (tx ? 1 : 2)], inner_x = x->dims[x->rank - (tx ? 2 : 1)];
    const int64_t columns = y->dims[y->rank - (ty ? 2 : 1)], inner_y = y->dims[y->rank - (ty ? 1 : 2)];
    if (!fits(inner_x, inner_y))
        return teg_mil_op_fail(o, "expected inner dimensions that agree, found %lld and %lld", (long long)inner_x,
                               (long long)inner_y);
    batch_x.rank -= 2;
    batch_y.rank -= 2;
    if (!teg_mil_broadcast(&batch_x, &batch_y, &o->out[0]))
        return teg_mil_op_fail(o, "expected batch dimensions that broadcast, found others");
    o->out[0].dims[o->out[0].rank++] = rows;
    o->out[0].dims[o->out[0].rank++] = columns;
    return true;
}

/* x [B, C, H, K] and y [B, K, H, U]: [B, C, H, U]. */
static bool rule_einsum(struct teg_mil_making *o)
{
    const struct teg_mil_arg *const values = teg_mil_making_arg(o, "values");
    struct teg_string equation = {0};
    if (!values || values->n_vars != 2)
        return teg_mil_op_fail(o, "expected two values, found %zu", values ? values->n_vars : 0);
    const struct teg_mil_type *const x = &o->m->program->vars[values->vars[0]].type;
    const struct teg_mil_type *const y = &o->m->program->vars[values->vars[1]].type;
    const char *const known = "nchw,nwhu->nchu";
    if (!teg_mil_making_string(o, "equation", &equation) || equation.n_bytes != strlen(known) ||
        memcmp(equation.bytes, known, equation.n_bytes) != 0)
        return teg_mil_op_fail(o, "expected the equation %s, found another", known);
    if (x->kind != TEG_MIL_TENSOR || y->kind != TEG_MIL_TENSOR || x->rank != 4 || y->rank != 4 || x->dtype != y->dtype)
        return teg_mil_op_fail(o, "expected two tensors of rank 4 and one type, found others");
    o->out[0] = *x;
    o->out[0].dims[3] = y->dims[3];
    if (!fits(x->dims[3], y->dims[1]) || !teg_mil_broadcast_dim(x->dims[0], y->dims[0], &o->out[0].dims[0]) ||
        !teg_mil_broadcast_dim(x->dims[2], y->dims[2], &o->out[0].dims[2]))
        return teg_mil_op_fail(o, "expected x [B, C, H, K] and y [B, K, H, U], found other shapes");
    return true;
}

static bool rule_linear(struct teg_mil_making *o)
{
    const struct teg_mil_type *const x = teg_mil_making_type(o, "x"), *const w = teg_mil_making_type(o, "weight");
    const struct teg_mil_type *const bias = teg_mil_making_type(o, "bias");
    if (!rule_same(o) || !teg_mil_making_rank(o, "weight", 2) || !teg_mil_making_rank(o, "bias", 1))
        return false;
    if (x->rank < 1 || !fits(x->dims[x->rank - 1], w->dims[1]))
        return teg_mil_op_fail(o, "expected 'x' with %lld columns, found %lld", (long long)w->dims[1],
                               (long long)(x->rank < 1 ? 0 : x->dims[x->rank - 1]));
    if (bias && !fits(bias->dims[0], w->dims[0]))
        return teg_mil_op_fail(o, "expected 'bias' of %lld, found %lld", (long long)w->dims[0],
                               (long long)bias->dims[0]);
    o->out[0].dims[x->rank - 1] = w->dims[0];
    return true;
}

/* One spatial dimension of a convolution. */
static bool conv_dim(struct teg_mil_making *o, int32_t d, int64_t in, int64_t kernel, int64_t *out)
{
    struct teg_mil_known strides = {0}, pad = {0}, dilations = {0};
    struct teg_string type = {"valid", 5};
    const bool is_there = teg_mil_known_arg(o, "strides", &strides) && teg_mil_known_arg(o, "pad", &pad) &&
                          teg_mil_known_arg(o, "dilations", &dilations);
    (void)teg_mil_making_string(o, "pad_type", &type);
    const uint32_t i = (uint32_t)d;
    if (!is_there || i >= strides.n || 2 * i + 1 >= pad.n || i >= dilations.n || strides.at[i] < 1)
        return teg_mil_op_fail(o, "expected strides, pads and dilations of each spatial dimension, found others");
    if (in == TEG_MIL_UNKNOWN || kernel == TEG_MIL_UNKNOWN) {
        *out = TEG_MIL_UNKNOWN;
        return true;
    }
    const bool is_same = type.n_bytes >= 4 && memcmp(type.bytes, "same", 4) == 0;
    const bool is_custom = type.n_bytes == 6 && memcmp(type.bytes, "custom", 6) == 0;
    const int64_t padded = in + (is_custom ? pad.at[2 * i] + pad.at[2 * i + 1] : 0);
    *out = is_same ? (in + strides.at[i] - 1) / strides.at[i]
                   : (padded - (kernel - 1) * dilations.at[i] - 1) / strides.at[i] + 1;
    return *out > 0 || teg_mil_op_fail(o, "expected a window inside 'x', found a larger one");
}

static bool rule_conv(struct teg_mil_making *o)
{
    const struct teg_mil_type *const x = teg_mil_making_type(o, "x"), *const w = teg_mil_making_type(o, "weight");
    int64_t groups;
    if (!rule_same(o) || !teg_mil_making_int(o, "groups", 1, &groups))
        return false;
    if (x->rank < 3 || x->rank > 5 || w->rank != x->rank || groups < 1 ||
        (x->dims[1] >= 0 && x->dims[1] != w->dims[1] * groups))
        return teg_mil_op_fail(
            o, "expected 'x' [n, %lld, …] and a weight of its rank, found %lld channels and ranks %d and %d",
            (long long)(w->rank > 1 ? w->dims[1] * groups : 0), (long long)(x->rank > 1 ? x->dims[1] : 0), x->rank,
            w->rank);
    o->out[0].dims[1] = w->dims[0];
    for (int32_t d = 0; d < x->rank - 2; d++)
        if (!conv_dim(o, d, x->dims[d + 2], w->dims[d + 2], &o->out[0].dims[d + 2]))
            return false;
    return true;
}

static bool rule_attention(struct teg_mil_making *o)
{
    const struct teg_mil_type *const q = teg_mil_making_type(o, "query"), *const k = teg_mil_making_type(o, "key");
    const struct teg_mil_type *const v = teg_mil_making_type(o, "value");
    if (!is_tensor(o, "query") || q->rank < 3 || k->rank != q->rank || v->rank != q->rank || k->dtype != q->dtype ||
        v->dtype != q->dtype)
        return teg_mil_op_fail(o, "expected query, key and value of one type and rank 3 or more, found others");
    bool ok = fits(q->dims[q->rank - 1], k->dims[q->rank - 1]) && fits(k->dims[q->rank - 2], v->dims[q->rank - 2]);
    for (int32_t i = 0; i < q->rank - 2; i++)
        ok = ok && fits(q->dims[i], k->dims[i]) && fits(q->dims[i], v->dims[i]);
    if (!ok)
        return teg_mil_op_fail(o, "expected query, key and value with equal heads, width and keys, found others");
    o->out[0] = *q;
    o->out[0].dims[q->rank - 1] = v->dims[q->rank - 1];
    return true;
}

/* ---- states ---- */

static bool rule_read_state(struct teg_mil_making *o)
{
    o->out[0] = *teg_mil_making_type(o, "input");
    if (o->out[0].kind != TEG_MIL_STATE)
        return teg_mil_op_fail(o, "expected 'input' to be a state, found another");
    o->out[0].kind = TEG_MIL_TENSOR;
    return true;
}

static bool rule_write_state(struct teg_mil_making *o)
{
    const struct teg_mil_type *const state = teg_mil_making_type(o, "input");
    struct teg_mil_type data = *teg_mil_making_type(o, "data");
    if (state->kind != TEG_MIL_STATE || data.kind != TEG_MIL_TENSOR)
        return teg_mil_op_fail(o, "expected 'input' to be a state and 'data' a tensor, found others");
    data.kind = TEG_MIL_STATE;
    return teg_mil_same_type(state, &data) ||
           teg_mil_op_fail(o, "expected 'data' of the state's type and shape, found another");
}

/* ---- the table ---- */

static const struct teg_mil_rule rules[] = {
#define BINARY(name)                                                                                                   \
    {                                                                                                                  \
        name, rule_binary, "x y", "", 6, 1                                                                             \
    }
    BINARY("add"),
    BINARY("sub"),
    BINARY("mul"),
    BINARY("real_div"),
    BINARY("floor_div"),
    BINARY("mod"),
    BINARY("pow"),
    BINARY("maximum"),
    BINARY("minimum"),
    BINARY("logical_and"),
    BINARY("logical_or"),
    BINARY("logical_xor"),
#undef BINARY
#define COMPARE(name)                                                                                                  \
    {                                                                                                                  \
        name, rule_compare, "x y", "", 6, 1                                                                            \
    }
    COMPARE("equal"),
    COMPARE("not_equal"),
    COMPARE("greater"),
    COMPARE("greater_equal"),
    COMPARE("less"),
    COMPARE("less_equal"),
#undef COMPARE
#define UNARY(name)                                                                                                    \
    {                                                                                                                  \
        name, rule_same, "x", "", 6, 1                                                                                 \
    }
    UNARY("abs"),
    UNARY("exp"),
    UNARY("exp2"),
    UNARY("sqrt"),
    UNARY("square"),
    UNARY("tanh"),
    UNARY("sigmoid"),
    UNARY("relu"),
    UNARY("relu6"),
    UNARY("silu"),
    UNARY("sin"),
    UNARY("cos"),
    UNARY("erf"),
    UNARY("floor"),
    UNARY("ceil"),
    UNARY("round"),
    UNARY("sign"),
    UNARY("softplus"),
    UNARY("softsign"),
    UNARY("identity"),
    UNARY("logical_not"),
#undef UNARY
    {"rsqrt", rule_same, "x", "epsilon=f1e-12", 6, 1},
    {"log", rule_same, "x", "epsilon=f1e-45", 6, 1},
    {"inverse", rule_same, "x", "epsilon=f1e-4", 6, 1},
    {"gelu", rule_same, "x", "mode=sEXACT", 6, 1},
    {"clip", rule_same, "x alpha beta", "", 6, 1},
    {"softmax", rule_along_axis, "x", "axis=i-1", 6, 1},
    {"cumsum", rule_along_axis, "x", "axis=i0 exclusive=b0 reverse=b0", 6, 1},
    {"reverse", rule_same, "x", "axes", 6, 1},
    {"band_part", rule_same, "x", "lower=i-1 upper=i-1", 6, 1},
    {"layer_norm", rule_layer_norm, "x", "axes gamma beta epsilon=f1e-5", 6, 1},
    {"cast", rule_cast, "x dtype", "", 6, 1},
    {"select", rule_select, "cond a b", "", 6, 1},
#define REDUCE(name)                                                                                                   \
    {                                                                                                                  \
        name, rule_reduce, "x", "axes keep_dims=b0", 6, 1                                                              \
    }
    REDUCE("reduce_sum"),
    REDUCE("reduce_mean"),
    REDUCE("reduce_max"),
    REDUCE("reduce_min"),
    REDUCE("reduce_prod"),
    REDUCE("reduce_sum_square"),
    REDUCE("reduce_l1_norm"),
    REDUCE("reduce_l2_norm"),
    REDUCE("reduce_log_sum"),
    REDUCE("reduce_log_sum_exp"),
#undef REDUCE
    {"reduce_argmax", rule_arg, "x", "axis=i-1 keep_dims=b0 output_dtype=sint32@8", 6, 1},
    {"reduce_argmin", rule_arg, "x", "axis=i-1 keep_dims=b0 output_dtype=sint32@8", 6, 1},
    {"topk", rule_topk, "x", "k=i1 axis=i-1 ascending=b0 sort=b1@7 return_indices=b1@7 output_indices_dtype=sint32@8",
     6, 2},
    {"matmul", rule_matmul, "x y", "transpose_x=b0 transpose_y=b0", 6, 1},
    {"einsum", rule_einsum, "values equation", "", 6, 1},
    {"linear", rule_linear, "x weight", "bias=Z", 6, 1},
    {"conv", rule_conv, "x weight", "bias strides=I1 pad_type=svalid pad=P0 dilations=I1 groups=i1", 6, 1},
    {"scaled_dot_product_attention", rule_attention, "query key value", "attn_mask", 9, 1},
    {"reshape", teg_mil_rule_reshape, "x shape", "", 6, 1},
    {"transpose", teg_mil_rule_transpose, "x perm", "", 6, 1},
    {"expand_dims", teg_mil_rule_expand_dims, "x axes", "", 6, 1},
    {"squeeze", teg_mil_rule_squeeze, "x", "axes", 6, 1},
    {"concat", teg_mil_rule_concat, "values axis", "interleave=b0", 6, 1},
    {"stack", teg_mil_rule_stack, "values axis", "", 6, 1},
    {"split", teg_mil_rule_split, "x axis", "num_splits split_sizes", 6, -1},
    {"slice_by_index", teg_mil_rule_slice_by_index, "x begin end", "stride begin_mask end_mask squeeze_mask", 6, 1},
    {"slice_by_size", teg_mil_rule_slice_by_size, "x begin size", "", 6, 1},
    {"slice_update", teg_mil_rule_slice_update, "x update begin end", "stride begin_mask end_mask squeeze_mask", 9, 1},
    {"tile", teg_mil_rule_tile, "x reps", "", 6, 1},
    {"pad", teg_mil_rule_pad, "x pad", "mode=sconstant constant_val=f0", 6, 1},
    {"shape", teg_mil_rule_shape, "x", "", 6, 1},
    {"fill", teg_mil_rule_fill, "shape", "value=f0", 6, 1},
    {"range_1d", teg_mil_rule_range_1d, "start end step", "", 6, 1},
    {"gather", teg_mil_rule_gather, "x indices", "axis=i0 batch_dims=i0@7 validate_indices=b0@8", 6, 1},
    {"gather_along_axis", teg_mil_rule_gather_along_axis, "x indices", "axis=i0 validate_indices=b0@8", 6, 1},
    {"read_state", rule_read_state, "input", "", 9, 1},
    {"write_state", rule_write_state, "input data", "", 9, 0},
    {"constexpr_blockwise_shift_scale", teg_mil_rule_blockwise_shift_scale, "data scale", "offset", 9, 1},
    {"constexpr_lut_to_dense", teg_mil_rule_lut_to_dense, "indices lut", "vector_axis shape", 7, 1},
    {"constexpr_sparse_to_dense", teg_mil_rule_sparse_to_dense, "nonzero_data mask", "shape", 7, 1},
    {"constexpr_lut_to_sparse", teg_mil_rule_lut_to_sparse, "indices_mask indices_nonzero_data lut", "vector_axis", 9,
     2},
    {"constexpr_sparse_blockwise_shift_scale", teg_mil_rule_sparse_blockwise_shift_scale,
     "data_mask nonzero_data scale", "offset", 9, 2},
    {"constexpr_affine_dequantize", teg_mil_rule_affine_dequantize, "quantized_data zero_point scale axis", "", 7, 1},
};

const struct teg_mil_rule *teg_mil_rule_of(const char *type)
{
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (strcmp(rules[i].type, type) == 0)
            return &rules[i];
    return NULL;
}
