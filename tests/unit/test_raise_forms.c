/* Raise, idiom by idiom: a small model in each form of each part becomes the ops that it is; one wrong word in it, and
 * it is refused with the op and the condition. */
#include "unit/lm_text.h"

#include "base/text.h"
#include "pass/raise.h"

static const struct teg_string theta[1][2] = {{{"rope_theta", 10}, {"100", 3}}};

static struct teg_mil_program *parse(const struct bytes *text, const struct lm_form *form)
{
    struct teg_mil_program *p = NULL;
    struct teg_error err = {0};
    if (teg_mil_parse_text((const char *)text->at, text->n, NULL, 0, "toy", NULL, &p, &err) != TEG_OK)
        fail_msg("%s", err.message);
    if (form->rope == LM_ROPE_INPUTS) {
        p->user_metadata = theta;
        p->n_user_metadata = 1;
    }
    return p;
}

static uint32_t count(const struct teg_graph *g, enum teg_op_kind kind)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->n_ops; i++)
        n += g->ops[i].kind == kind;
    return n;
}

static const struct teg_op *first(const struct teg_graph *g, enum teg_op_kind kind)
{
    for (uint32_t i = 0; i < g->n_ops; i++)
        if (g->ops[i].kind == kind)
            return &g->ops[i];
    fail_msg("no %s", teg_op_name(kind));
    return NULL;
}

/* Everything is raised, and nothing is left over. */
static void check_graph(const struct lm_form *f, const struct teg_graph *g)
{
    const uint32_t n = f->n_layers, n_ropes = f->rope == LM_ROPE_NONE ? 0 : 2 * n;
    assert_int_equal(count(g, TEG_OP_EMBEDDING), 1);
    const enum teg_op_kind norm =
        f->norm == LM_NORM_LAYER || f->norm == LM_NORM_LAYER_SPELLED ? TEG_OP_LAYER_NORM : TEG_OP_RMS_NORM;
    assert_int_equal(count(g, norm), 2 * n + 1 + (f->head_norms ? 2 * n : 0));
    assert_int_equal(first(g, norm)->n_inputs, norm == TEG_OP_LAYER_NORM ? 3 : 2);
    assert_int_equal(count(g, TEG_OP_POSITION), f->learned);
    assert_int_equal(count(g, TEG_OP_LINEAR), (f->no_gate ? 6 : 7) * n);
    assert_int_equal(count(g, TEG_OP_ROPE), n_ropes);
    assert_int_equal(count(g, TEG_OP_KV_APPEND), n);
    assert_int_equal(count(g, TEG_OP_ATTENTION), n);
    assert_int_equal(count(g, f->no_gate ? TEG_OP_ACTIVATION : TEG_OP_GLU), n);
    assert_int_equal(count(g, TEG_OP_ADD), 2 * n + f->learned);
    assert_int_equal(count(g, TEG_OP_LM_HEAD), 1);
    const uint32_t n_norms = 2 * n + 1 + (f->head_norms ? 2 * n : 0);
    assert_int_equal(count(g, TEG_OP_SCALE), f->norm == LM_NORM_L2 ? n_norms : 0);
    assert_int_equal(g->n_ops - count(g, TEG_OP_SCALE),
                     1 + n_norms + (f->no_gate ? 6 : 7) * n + n_ropes + 5 * n + 1 + f->softcap + 2 * f->learned);
    if (n_ropes) {
        const struct teg_op *const rope = first(g, TEG_OP_ROPE);
        assert_int_equal(rope->attr.rope.head_width, f->head_width);
        assert_int_equal(rope->attr.rope.interleaved, f->rope == LM_ROPE_PAIRS || f->rope == LM_ROPE_EVERY_TWO);
        assert_int_equal(rope->n_inputs, lm_has_tables(f) ? 3 : 2);
        assert_int_equal(teg_value_width(&g->values[rope->inputs[1]]), f->head_width / 2);
    }
    const struct teg_op *const a = first(g, TEG_OP_ATTENTION);
    assert_int_equal(a->attr.attention.n_heads, f->n_heads);
    assert_int_equal(a->attr.attention.n_kv_heads, f->n_kv_heads);
    assert_int_equal(a->attr.attention.window, f->window);
    assert_float_equal(a->attr.attention.scale, 1 / sqrtf((float)f->head_width), 1e-6);
    assert_int_equal(first(g, norm)->attr.norm.by_max, f->norm == LM_NORM_BY_MAX);
    assert_float_equal(first(g, norm)->attr.norm.least_max, f->norm == LM_NORM_BY_MAX ? 0.5 : 0, 0);
    static const enum teg_activation acts[LM_ACTS] = {[LM_SILU] = TEG_ACT_SILU,
                                                      [LM_SIGMOID] = TEG_ACT_SILU,
                                                      [LM_GELU_TANH] = TEG_ACT_GELU_TANH,
                                                      [LM_GELU_EXACT] = TEG_ACT_GELU_ERF,
                                                      [LM_ERF] = TEG_ACT_GELU_ERF,
                                                      [LM_ERF_LAST] = TEG_ACT_GELU_ERF,
                                                      [LM_RELU] = TEG_ACT_RELU};
    assert_int_equal(first(g, f->no_gate ? TEG_OP_ACTIVATION : TEG_OP_GLU)->attr.activation, acts[f->act]);
    if (f->learned)
        assert_int_equal(first(g, TEG_OP_POSITION)->attr.first, 2);
}

static void expect_raised(const struct lm_form *form)
{
    struct bytes text = lm_program(form);
    struct teg_mil_program *const p = parse(&text, form);
    struct teg_arena arena;
    struct teg_raised raised = {0};
    struct teg_raise_survey survey;
    struct teg_error err = {0};
    struct teg_buf lines = {0};
    teg_arena_init(&arena, NULL);
    if (teg_raise(p, NULL, &arena, &raised, &err) != TEG_OK)
        fail_msg("%s", err.message);
    check_graph(form, raised.graph);
    assert_int_equal(raised.context, form->context);
    assert_int_equal(teg_raise_look(p, NULL, &survey, &err), TEG_OK);
    assert_true(survey.is_model && survey.n_ops > 0 && survey.n_understood == survey.n_ops);
    assert_string_equal(survey.contract.bytes, raised.contract);
    assert_int_equal(strstr(raised.contract, "positions  tables of cos and sin, 16 rows\n") != NULL,
                     lm_has_tables(form) && !form->learned);
    assert_int_equal(strstr(raised.contract, "positions  tables of learned rows, 16 rows\n") != NULL, form->learned);
    assert_int_equal(strstr(raised.contract, "positions  cos and sin are inputs, of base 100\n") != NULL,
                     form->rope == LM_ROPE_INPUTS);
    assert_non_null(strstr(raised.contract, form->last_only ? "logits of the last token" : "logits of every token"));
    assert_non_null(strstr(raised.contract, form->mask == LM_MASK_INPUT ? "P is the last dimension of mask, less T"
                                                                        : "P is the first of pos"));
    assert_int_equal(survey.reason.n_bytes, 0);
    teg_raise_survey_free(&survey);
    assert_int_equal(teg_raise_why_not(p, NULL, "mul", &lines, &err), TEG_OK);
    assert_int_equal(lines.n_bytes, 0);
    teg_arena_free(&arena);
    teg_mil_free(p);
    bytes_free(&text);
}

#define EACH(type, field, end)                                                                                         \
    for (int i = 0; i < (int)(end); i++) {                                                                             \
        struct lm_form f = lm_plain;                                                                                   \
        f.field = (type)i;                                                                                             \
        expect_raised(&f);                                                                                             \
    }

static void test_forms(void **state)
{
    (void)state;
    EACH(enum lm_embedding, embedding, LM_EMBEDDINGS)
    EACH(enum lm_norm, norm, LM_NORMS)
    EACH(enum lm_rope, rope, LM_ROPES)
    EACH(enum lm_group, group, LM_GROUPS)
    EACH(enum lm_attend, attend, LM_ATTENDS)
    EACH(enum lm_mask, mask, LM_MASKS)
    EACH(enum lm_act, act, LM_ACTS)
    EACH(enum lm_product, product, LM_PRODUCTS)
    for (int act = 0; act < LM_ACTS; act++) {
        struct lm_form bare = lm_plain;
        bare.act = (enum lm_act)act;
        bare.no_gate = true;
        expect_raised(&bare);
    }
    EACH(bool, learned, 2)
    EACH(bool, two_states, 2)
    EACH(bool, head_norms, 2)
    EACH(bool, biases, 2)
    EACH(bool, last_only, 2)
    EACH(bool, softcap, 2)
    struct lm_form f = lm_plain;
    f.mask = LM_MASK_COMPUTED;
    f.window = 5;
    expect_raised(&f);
    f.n_layers = 3;
    f.head_norms = true;
    expect_raised(&f);
}

/* ---- refusals ---- */

struct refusal {
    struct lm_form form;
    const char *from[2], *to[2]; /* each in its first place; the second may be NULL */
    const char *message;
};

#define SAME .n_layers = 1, .n_heads = 4, .n_kv_heads = 2, .head_width = 4, .ffn = 12, .vocab = 11, .context = 16
#define PLAIN                                                                                                          \
    {                                                                                                                  \
        SAME, .rope = LM_ROPE_TABLES                                                                                   \
    }
#define WITH(...)                                                                                                      \
    {                                                                                                                  \
        SAME, __VA_ARGS__                                                                                              \
    }
#define SMALL(rows, columns, values)                                                                                   \
    "tensor<fp32, [" rows ", " columns "]> small = const()[val = tensor<fp32, [" rows ", " columns "]>(" values ")];"  \
    "\n"

static const struct refusal refusals[] = {
    /* inputs */
    {PLAIN,
     {"[1, ?]> ids, "},
     {"[1, ?]> ids, tensor<int32, [1, ?]> other, "},
     "inputs: expected one integer input for token ids (positions have \"pos\" in their names), found two"},
    {PLAIN,
     {"tensor<int32, [1, ?]> ids, "},
     {"tensor<int32, [?, ?]> ids, "},
     "inputs: expected token ids of shape [1, T], found another shape"},
    {PLAIN,
     {"tensor<int32, [1, ?]> ids, "},
     {"tensor<fp32, [1, ?]> ids, "},
     "inputs: expected an integer input for token ids, found none"},
    {WITH(.mask = LM_MASK_COMPUTED),
     {"tensor<int32, [1, ?]> pos"},
     {"tensor<int32, [1, 3]> pos"},
     "expected ids and positions of shape [1, T], found another shape"},
    {PLAIN,
     {"tensor<fp32, [1, 1, ?, ?]> mask"},
     {"tensor<fp32, [2, 1, ?, ?]> mask"},
     "expected a mask [1, 1, T, slots], found another shape"},
    {PLAIN,
     {"tensor<fp32, [1, 1, ?, ?]> mask, ", "seen = identity(x = mask)"},
     {"tensor<fp32, [1, 1, ?, ?]> mask, tensor<fp32, [1, 1, ?, ?]> extra, ", "seen = identity(x = extra)"},
     "input extra: expected ids, positions or a mask, found another input"},
    /* outputs and states */
    {PLAIN,
     {"} -> (logits);"},
     {"} -> (x0);"},
     "outputs: expected logits from a product with the head, found hidden states"},
    {PLAIN, {"} -> (logits);"}, {"} -> (ids_shape);"}, "outputs: expected logits [1, T, V], found another value"},
    {PLAIN,
     {"} -> (logits);"},
     {"} -> (ids_shape, x0);"},
     "outputs: expected the parts of one head's logits, found another value"},
    {PLAIN,
     {"a0 = matmul(x = a0_p, y = a0_v)"},
     {"a0 = identity(x = q0_r)"},
     "expected attention over a state, found none"},
    {PLAIN,
     {"write_state(data = K0_new"},
     {"write_state(data = K0_old"},
     "expected the state with this call's rows written into it, found another value"},
    {PLAIN,
     {"V0_new = slice_update(x = V0_old"},
     {"V0_new = slice_update(x = K0_old"},
     "op V0_new (slice_update): expected the newest content of a state as x, found another value"},
    {PLAIN,
     {"K0_to = concat(values = (tensor<int32, [1]>([1]), tensor<int32, [1]>([2]), end1"},
     {"K0_to = concat(values = (tensor<int32, [1]>([1]), tensor<int32, [1]>([2]), begin1"},
     "op K0_new (slice_update): expected one layer's slots P … P + T - 1 with all heads to be written, found other "
     "bounds"},
    {PLAIN,
     {"end = tensor<int32, [4]>([1, 2, 16, 4])"},
     {"end = tensor<int32, [4]>([2, 2, 9, 4])"},
     "op K0_whole (slice_by_index): expected all slots of one layer in the newest state, or tiles of them"},
    /* layout */
    {PLAIN,
     {"a0_p = softmax(x = a0_2, axis = int32(-1))"},
     {"a0_p = transpose(x = a0_2, perm = tensor<int32, [4]>([0, 1, 2, 3]))"},
     "op a0_p (transpose): expected rows, positions or a mask, found another value"},
    {PLAIN,
     {"a0_p = softmax(x = a0_2, axis = int32(-1))"},
     {"a0_p = slice_by_index(x = a0_2, begin = tensor<int32, [4]>([0, 0, 0, 0]), end = tensor<int32, [4]>([1, 4, 1, "
      "1]))"},
     "op a0_p (slice_by_index): expected rows, positions or a state, found another value"},
    {PLAIN,
     {"q0 = transpose(x = q0_4, perm = tensor<int32, [4]>([0, 2, 1, 3])"},
     {"q0 = transpose(x = q0_4, perm = tensor<int32, [3]>([0, 2, 1])"},
     "op q0 (transpose): expected a constant order of the dimensions, found another"},
    {PLAIN,
     {"cos = expand_dims(x = cos3, axes = tensor<int32, [1]>([1]))"},
     {"cos = expand_dims(x = cos3, axes = tensor<int32, [1]>([9]))"},
     "op cos (expand_dims): expected constant axes, found others"},
    {WITH(.product = LM_CONV),
     {"qrows0_q = squeeze(x = qrows0_c, axes = tensor<int32, [1]>([2]))"},
     {"qrows0_q = squeeze(x = qrows0_c, axes = tensor<int32, [1]>([7]))"},
     "op qrows0_q (squeeze): expected constant axes, found others"},
    {WITH(.product = LM_CONV),
     {"qrows0_q = squeeze(x = qrows0_c, axes = tensor<int32, [1]>([2]))"},
     {"qrows0_q = squeeze(x = qrows0_c, axes = tensor<int32, [1]>([1]))"},
     "op qrows0_q (squeeze): expected dimensions of one, found more"},
    {PLAIN,
     {"x0 = gather(x = table, indices = ids, axis = int32(0)"},
     {"x0 = gather(x = table, indices = ids, axis = int32(1)"},
     "op x0 (gather): expected an embedding table [V, D], found another shape"},
    {PLAIN,
     {"x0 = gather(x = table, indices = ids"},
     {"x0 = gather(x = ids, indices = ids"},
     "op x0 (gather): expected a constant table, found a computed one"},
    {PLAIN,
     {"cos3 = gather(x = cos_table, indices = positions, axis = int32(0)"},
     {"cos3 = gather(x = cos_table, indices = positions, axis = int32(1)"},
     "op cos3 (gather): expected a table [positions, width], found another shape"},
    {PLAIN,
     {"cos3 = gather(x = cos_table, indices = positions"},
     {"cos3 = gather(x = cos_table, indices = mask"},
     "op cos3 (gather): expected token ids or positions as indices, found others"},
    {PLAIN,
     {"q0_turned = concat(values = (q0_minus, q0_first), axis = int32(-1), interleave = bool(false))"},
     {"q0_turned = concat(values = (q0_minus, q0_first), axis = int32(-1), interleave = bool(true))"},
     "op q0_turned (concat): expected values side by side along a constant axis, found others"},
    {PLAIN,
     {"q0_turned = concat(values = (q0_minus, q0_first)"},
     {"q0_turned = concat(values = (q0_minus, q0_minus)"},
     "op q0_turned (concat): expected [x, -x], halves of a head, or twice the same angles, found other parts"},
    {PLAIN,
     {"reps = tensor<int32, [5]>([1, 1, 2, 1, 1])"},
     {"reps = tensor<int32, [4]>([1, 1, 2, 1])"},
     "op a0_k_t (tile): expected repeats known from shapes, found others"},
    {PLAIN,
     {"reps = tensor<int32, [5]>([1, 1, 2, 1, 1])"},
     {"reps = tensor<int32, [5]>([1, 1, 0, 1, 1])"},
     "op a0_k_t (tile): expected a fixed number of repeats, found another"},
    {PLAIN,
     {"begin = sub(x = end, y = n)"},
     {"begin = real_div(x = end, y = n)"},
     "op begin (real_div): expected shape arithmetic with a known result, found another"},
    {PLAIN,
     {"step = int32(1)"},
     {"step = int32(2)"},
     "op range (range_1d): expected bounds known from T and P, and steps of 1, found others"},
    {PLAIN,
     {"range_1d(start = begin"},
     {"range_1d(start = n"},
     "op range (range_1d): expected positions P … P + T - 1 or slots from 0 on, found another range"},
    /* products */
    {PLAIN,
     {"weight = qrows0_w"},
     {"weight = h0_g"},
     "op qrows0 (linear): expected a constant weight [N, K], found another shape"},
    {PLAIN,
     {"o0 = linear(x = a0_f"},
     {"o0 = linear(x = a0_t"},
     "op o0 (linear): expected all columns in the dimension that is summed over, found others outside"},
    {PLAIN,
     {"a0_0 = matmul(x = q0_r, y = a0_k"},
     {"a0_0 = matmul(x = q0_r, y = x0"},
     "op a0_0 (matmul): expected a product with a weight, scores, or positions times frequencies, found another"},
    {WITH(.rope = LM_ROPE_EVERY_TWO),
     {"q0_minus = mul(x = q0_second, y = fp32(-1))"},
     {"q0_minus = add(x = q0_second, y = q0_second)"},
     "op q0_minus (add): expected columns that lie together, found a view with gaps or repeats"},
    /* weights */
    {PLAIN,
     {"int32 n = gather(", "weight = logits0_w"},
     {"tensor<fp32, [16, 16]> bad = constexpr_blockwise_shift_scale(data = tensor<int8, [2, 16]>([[1, 1, 1, 1, 1, 1, "
      "1, 1, 1, 1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]]), scale = tensor<fp32, [2, "
      "1]>([[1], [2]]));\nint32 n = gather(",
      "weight = bad"},
     "expected constant data with scales and offsets by blocks, found another form"},
    {PLAIN,
     {"int32 n = gather(", "weight = logits0_w"},
     {"tensor<fp32, [16, 16]> bad = constexpr_affine_dequantize(quantized_data = tensor<int8, [2, 16]>([[1, 1, 1, 1, "
      "1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]]), scale = fp32(1), "
      "zero_point = int8(0), axis = int32(0));\nint32 n = gather(",
      "weight = bad"},
     "expected constant data, scale, zero point and axis, found another form"},
    {PLAIN,
     {"int32 n = gather(", "weight = logits0_w"},
     {"tensor<fp32, [2, 16]> bad = constexpr_affine_dequantize(quantized_data = tensor<int8, [2, 16]>([[1, 1, 1, 1, 1, "
      "1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]]), scale = tensor<fp32, "
      "[2]>([1, 2]), zero_point = int8(0), axis = int32(5));\nint32 n = gather(",
      "weight = bad"},
     "expected an axis of the data, found another number"},
    {PLAIN,
     {"int32 n = gather(", "weight = logits0_w"},
     {"tensor<fp32, [2, 16]> bad = constexpr_affine_dequantize(quantized_data = tensor<int8, [2, 16]>([[1, 1, 1, 1, 1, "
      "1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]]), scale = tensor<fp32, "
      "[3]>([1, 2, 3]), zero_point = int8(0), axis = int32(0));\nint32 n = gather(",
      "weight = bad"},
     "expected one scale, or one for each index of the axis, found another number"},
    {PLAIN,
     {"int32 n = gather(", "weight = logits0_w"},
     {"tensor<fp32, [16, 16]> bad = constexpr_lut_to_dense(indices = tensor<uint8, [2, 2]>([[0, 1], [0, 1]]), lut = "
      "tensor<fp32, [1, 1, 2, 1]>([[[[1], [2]]]]));\nint32 n = gather(",
      "weight = bad"},
     "expected tables by blocks, of one value an entry, found another form"},
    {PLAIN,
     {"int32 n = gather(", "weight = logits0_w"},
     {"tensor<fp32, [2, 16]> bad = constexpr_lut_to_dense(indices = tensor<uint8, [2, 16]>([[1, 1, 1, 1, 1, 1, 1, 1, "
      "1, 1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 9]]), lut = tensor<fp32, [1, 1, 2, "
      "1]>([[[[1], [2]]]]));\nint32 n = gather(",
      "weight = bad"},
     "expected indices into the table, found a larger one"},
    {PLAIN,
     {"int32 n = gather(", "weight = logits0_w"},
     {"tensor<fp32, [16, 16]> bad = constexpr_cast(source_val = tensor<fp16, [2]>([1, 2]), output_dtype = "
      "string(\"fp32\"));\nint32 n = gather(",
      "weight = bad"},
     "expected a constant, found another form"},
    {PLAIN,
     {"int32 n = gather(", "weight = logits0_w"},
     {"tensor<fp32, [16, 16]> bad = constexpr_sparse_to_dense(nonzero_data = tensor<fp32, [2]>([1, 2]), mask = "
      "tensor<uint1, [2]>([1, 1]));\nint32 n = gather(",
      "weight = bad"},
     "expected a constant mask and as many values as it has ones, found another form"},
    /* rotary positions */
    {WITH(.rope = LM_ROPE_ANGLES),
     {"[1, 2, 1]> freqs = const()[val = tensor<fp32, [1, 2, 1]>([[[1], [0.100000001]]])]"},
     {"[1, 2, 2]> freqs = const()[val = tensor<fp32, [1, 2, 2]>([[[1, 2], [3, 4]]])]"},
     "op angles0 (matmul): expected positions times a vector of frequencies, found another constant"},
    {WITH(.rope = LM_ROPE_ANGLES),
     {"fpos3 = expand_dims(x = fpos, axes = tensor<int32, [1]>([1]))", "matmul(x = freqs"},
     {"fpos3 = expand_dims(x = fpos, axes = tensor<int32, [1]>([2]))", "mul(x = freqs"},
     "op angles0 (mul): expected frequencies and positions along different dimensions, found one"},
    {WITH(.rope = LM_ROPE_ANGLES),
     {"cos3 = cos(x = angles)"},
     {"cos3 = cos(x = fpos)"},
     "op cos3 (cos): expected positions times frequencies, found another value"},
    {PLAIN,
     {"sin_table = const()[val = tensor<fp32, [16, 4]>([[0, 0, 0, 0],"},
     {"sin_table = const()[val = tensor<fp32, [16, 4]>([[0, 0.5, 0, 0],"},
     "expected a table that turns both components of a pair by one angle, found other values"},
    {WITH(.rope = LM_ROPE_ANGLES),
     {"[1, 2, 1]> freqs = const()[val = tensor<fp32, [1, 2, 1]>([[[1], [0.100000001]]])]",
      "concat(values = (angles1, angles1), axis = int32(-1), interleave = bool(false))"},
     {"[1, 4, 1]> freqs = const()[val = tensor<fp32, [1, 4, 1]>([[[1], [2], [3], [4]]])]", "identity(x = angles1)"},
     "expected both components of a pair to turn by one angle, found different frequencies"},
    {WITH(.rope = LM_ROPE_ANGLES),
     {"sin3 = sin("},
     {"sin3 = cos("},
     "(add): expected a cosine and a sine of the same angles, found others"},
    {WITH(.rope = LM_ROPE_ANGLES),
     {"sin = expand_dims(x = sin3, axes = tensor<int32, [1]>([1]))"},
     {"sin4 = expand_dims(x = sin3, axes = tensor<int32, [1]>([1]));\n"
      "tensor<fp32, [1, 1, ?, 4]> sin = mul(x = sin4, y = fp32(2))"},
     "(add): expected a cosine and a sine of the same angles, found others"},
    {PLAIN,
     {"int32 n = gather(", "x = sin_table"},
     {SMALL("2", "4", "[[0, 0, 0, 0], [1, 1, 1, 1]]") "int32 n = gather(", "x = small"},
     "(add): expected tables of cosines and sines of one size, found others"},
    {PLAIN,
     {"k0_r = add(x = k0_c, y = k0_s)"},
     {"k0_r = add(x = k0_c, y = q0_s)"},
     "op k0_r (add): expected x · cos + turned(x) · sin of one x, found two"},
    {WITH(.rope = LM_ROPE_SPLIT),
     {"k0_x = sub(x = k0_ac, y = k0_bs)"},
     {"k0_x = sub(x = k0_ac, y = q0_bs)"},
     "op k0_x (sub): expected two halves of the same heads, each times cos or sin, found others"},
    {WITH(.rope = LM_ROPE_SPLIT),
     {"concat(values = (k0_x, k0_y)"},
     {"concat(values = (k0_x, q0_y)"},
     "op k0_r (concat): expected both halves of one rotation side by side, found others"},
    {PLAIN,
     {"q0_c = mul(x = q0, y = cos)"},
     {"q0_c = mul(x = q0_4, y = cos)"},
     "op q0_c (mul): expected rows seen as heads times cos or sin along each head, found another layout"},
    {WITH(.rope = LM_ROPE_INPUTS),
     {"tensor<fp32, [1, ?, 4]> cos_in"},
     {"tensor<fp32, [?, ?, 4]> cos_in"},
     "expected cos and sin of shape [1, T, columns], found another shape"},
    /* parts */
    {PLAIN,
     {"q0_first = slice_by_index(x = q0, begin = tensor<int32, [4]>([0, 0, 0, 0])"},
     {"q0_first = slice_by_index(x = q0, begin = tensor<int32, [3]>([0, 0, 0])"},
     "op q0_first (slice_by_index): expected bounds known from T and P, found others"},
    {PLAIN,
     {"K0_whole = slice_by_index(x = K0_all,"},
     {"K0_whole = slice_by_index(stride = tensor<int32, [4]>([1, 1, 2, 1]), x = K0_all,"},
     "op K0_whole (slice_by_index): expected strides of 1, found others"},
    {PLAIN,
     {"stride = tensor<int32, [4]>([1, 1, 1, 1])"},
     {"stride = tensor<int32, [4]>([1, 1, 1, 0])"},
     "op q0_first (slice_by_index): expected constant strides of at least 1, found others"},
    {PLAIN,
     {"int32 n = gather(x = ids_shape, indices = int32(1), axis = int32(0))"},
     {"int32 n = slice_by_index(x = ids_shape, begin = tensor<int32, [1]>([1]), end = tensor<int32, [1]>([5]))"},
     "op n (slice_by_index): expected constant bounds of a shape, found others"},
    {WITH(.norm = LM_NORM_DOUBLED),
     {"h0 = mul(x = h0_n,"},
     {"h0 = mul(x = h0_rest,"},
     "op h0_n (split): expected the first half of a norm over [x, -x], found another part"},
    {WITH(.norm = LM_NORM_DOUBLED),
     {"h0_n, tensor<fp32, [1, ?, 16]> h0_rest = split(x = h0_ln, num_splits = int32(2), axis = int32(-1))"},
     {"h0_n = slice_by_index(x = h0_ln, begin = tensor<int32, [3]>([0, 0, 1]), end = tensor<int32, [3]>([1, 0, 17]), "
      "begin_mask = tensor<bool, [3]>([true, true, false]), end_mask = tensor<bool, [3]>([true, true, false]))"},
     "op h0_n (slice_by_index): expected the first half of a norm over [x, -x], found other columns"},
    {WITH(.last_only = true),
     {"begin = tensor<int32, [3]>([0, -1, 0])"},
     {"begin = tensor<int32, [3]>([0, -2, 0])"},
     "op x_last (slice_by_index): expected columns, the last token, or the slots in use, in dimension 1"},
    {PLAIN,
     {"x0 = gather(x = table, indices = ids, axis = int32(0), batch_dims = int32(0), validate_indices = bool(false))"},
     {"x0 = slice_by_index(x = table, begin = tensor<int32, [2]>([0, 0]), end = tensor<int32, [2]>([1, 16]))"},
     "op x0 (slice_by_index): expected this call's rows of a table or of a causal mask, found another part"},
    {WITH(.rope = LM_ROPE_SPLIT),
     {"q0_b = split(x = q0,"},
     {"q0_b = split(x = table,"},
     "op q0_a (split): expected rows, positions or a mask and a constant axis, found other operands"},
    {WITH(.rope = LM_ROPE_SPLIT),
     {"split_sizes = tensor<int32, [2]>([2, 2])"},
     {"split_sizes = tensor<int32, [1]>([4])"},
     "op q0_a (split): expected parts of constant sizes, one for each output, found others"},
    {WITH(.rope = LM_ROPE_SPLIT),
     {"split_sizes = tensor<int32, [2]>([2, 2])"},
     {"split_sizes = tensor<int32, [2]>([0, 4])"},
     "op q0_a (split): expected columns to be split, found another dimension"},
    {WITH(.rope = LM_ROPE_PAIRS),
     {"k0_xy = stack(values = (k0_x, k0_y)"},
     {"k0_xy = stack(values = (k0_y, k0_y)"},
     "op k0_xy (stack): expected halves of a head, or twice the same angles, found other parts"},
    /* embeddings */
    {WITH(.embedding = LM_GATHER_CLAMPED),
     {"y = int32(10)"},
     {"y = int32(5)"},
     "op x0 (gather): expected ids clamped to the rows of the table, found a lower bound"},
    {WITH(.embedding = LM_GATHER_CLAMPED),
     {"low = maximum(x = ids, y = int32(0))"},
     {"low = maximum(x = ids, y = int32(1))"},
     "op low (maximum): expected ids or positions, not below 0, or the largest of |x|, found another clamp"},
    {WITH(.embedding = LM_GATHER_ND),
     {"gather_nd(x = table, indices = ids3"},
     {"gather_nd(x = table, indices = ids"},
     "op x0 (gather_nd): expected token ids [..., 1] into a constant table, found other operands"},
    {PLAIN,
     {"int32 n = gather(", "x0 = gather(x = table"},
     {SMALL("2", "16",
            "[[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, "
            "1, 1]]") "int32 n = gather(",
      "x0 = gather(x = small"},
     "outputs: expected an embedding for each logit, found fewer rows"},
    /* norms */
    {PLAIN,
     {"h0_mean = reduce_mean(x = h0_sq"},
     {"h0_mean = reduce_mean(x = ids"},
     "op h0_mean (reduce_mean): expected the mean of rows or of their squares, found another"},
    {PLAIN,
     {"h0_inv = rsqrt(x = h0_me"},
     {"h0_inv = rsqrt(x = x0"},
     "op h0_inv (rsqrt): expected the mean of squares, found another value"},
    {WITH(.norm = LM_NORM_DOUBLED),
     {"h0_ln = layer_norm(x = h0_two"},
     {"h0_ln = layer_norm(x = ids"},
     "op h0_ln (layer_norm): expected the norm of a row or a head, or of [x, -x] over it without gamma and beta"},
    {WITH(.norm = LM_NORM_LAYER),
     {"gamma = h0_g"},
     {"gamma = x0"},
     "op h0 (layer_norm): expected the norm over the columns of a row or a head, with constant gamma and beta"},
    {WITH(.norm = LM_NORM_LAYER_SPELLED),
     {"h0_less = sub(x = x0, y = h0_mean)"},
     {"h0_less = sub(x = table, y = h0_mean)"},
     "op h0_less (sub): expected positions, a mask, or rows and their mean, found other terms"},
    {WITH(.norm = LM_NORM_LAYER_SPELLED),
     {"h0 = add(x = h0_w, y = h0_g)"},
     {"h0 = add(x = h0_w, y = table)"},
     "op h0 (add): expected two rows, scores and a mask, or the parts of a rotation, found other terms"},
    {WITH(.learned = true),
     {"y = int32(2)", "x0 = add(x = token, y = place)"},
     {"y = int32(0)", "twice = mul(x = place, y = fp32(2));\ntensor<fp32, [1, ?, 16]> x0 = add(x = token, y = twice)"},
     "expected whole rows of a table [positions, D], found a part"},
    {PLAIN,
     {"h0 = mul(x = h0_g"},
     {"h0 = mul(x = table"},
     "op h0 (mul): expected a weight of 16 values along what is normed, found another shape"},
    {WITH(.norm = LM_NORM_BY_MAX),
     {"h0_abs = abs(x = x0)"},
     {"h0_abs = abs(x = ids)"},
     "op h0_abs (abs): expected rows, found another value"},
    {WITH(.norm = LM_NORM_BY_MAX),
     {"h0_max = reduce_max(x = h0_abs, axes = tensor<int32, [1]>([-1])"},
     {"h0_max = reduce_max(x = h0_abs, axes = tensor<int32, [1]>([1])"},
     "op h0_max (reduce_max): expected the largest of |x| in a row or a head, as a dimension that is kept"},
    {WITH(.norm = LM_NORM_BY_MAX),
     {"h0_by = real_div(x = x0, y = h0_most)"},
     {"h0_by = real_div(x = x0, y = x0)"},
     "op h0_by (real_div): expected rows or scores divided by a number, found another quotient"},
    {PLAIN, {"h0_sq = pow(x = x0"}, {"h0_sq = pow(x = ids"}, "op h0_sq (pow): expected rows to square"},
    /* gates */
    {PLAIN, {"silu(x = gate0)"}, {"silu(x = ids)"}, "op act0 (silu): expected rows, found another value"},
    {WITH(.act = LM_GELU_EXACT),
     {"string(\"EXACT\")"},
     {"string(\"SIGMOID_APPROXIMATION\")"},
     "op act0 (gelu): expected mode EXACT or TANH_APPROXIMATION, found another"},
    {WITH(.act = LM_SIGMOID),
     {"act0 = mul(x = gate0,"},
     {"act0 = mul(x = f0,"},
     "op act0 (mul): expected x · sigmoid(x), found another gate"},
    {WITH(.act = LM_ERF),
     {"act0_h = mul(x = gate0, y = fp32(0.5))"},
     {"act0_h = mul(x = gate0, y = fp32(0.25))"},
     "op act0 (mul): expected a norm, a gate, a rotation or a scale, found another product"},
    {PLAIN,
     {"y0 = add(x = x0, y = o0)"},
     {"y0 = add(x = x0, y = a0_t)"},
     "op y0 (add): expected two rows seen alike, found different layouts"},
    {PLAIN,
     {"y0 = add(x = x0, y = o0)"},
     {"y0 = add(x = x0, y = ids)"},
     "op y0 (add): expected two rows, scores and a mask, or the parts of a rotation, found other terms"},
    {WITH(.product = LM_CONV),
     {"pad_type = string(\"valid\")"},
     {"strides = tensor<int32, [2]>([2, 2])"},
     "op qrows0_c (conv): expected a 1x1 convolution (strides and groups 1, no padding), found another"},
    /* masks */
    {WITH(.mask = LM_MASK_COMPUTED),
     {"causal = less_equal(x = slots, y = rows)"},
     {"causal = less_equal(x = slots, y = slots)"},
     "op causal (less_equal): expected slots compared with positions, found other values"},
    {WITH(.mask = LM_MASK_COMPUTED),
     {"causal = less_equal("},
     {"causal = less("},
     "op causal (less): expected slot <= position or slot > position - window, found another comparison"},
    {WITH(.mask = LM_MASK_COMPUTED, .window = 3),
     {"logical_and(x = causal, y = late)"},
     {"logical_and(x = causal, y = rows)"},
     "op visible (logical_and): expected two masks, found other values"},
    {WITH(.mask = LM_MASK_COMPUTED),
     {"y = fp32(-65504)"},
     {"y = fp32(-1)"},
     "op far (mul): expected what is hidden times a large negative number, found another factor"},
    {WITH(.mask = LM_MASK_SELECT),
     {"a = fp32(0)"},
     {"a = fp32(1)"},
     "op far (select): expected 0 or another mask where a key is seen, found another value"},
    {WITH(.mask = LM_MASK_SELECT),
     {"select(cond = visible"},
     {"select(cond = rows"},
     "op far (select): expected a mask or a guard against negative indices, found another condition"},
    /* attention */
    {PLAIN,
     {"a0_2 = add(x = a0_1, y = seen)"},
     {"a0_2 = identity(x = a0_1)"},
     "op a0 (matmul): expected a causal mask on the scores, found none"},
    {PLAIN,
     {"a0_k_5 = expand_dims(x = K0, axes = tensor<int32, [1]>([2]))", "reps = tensor<int32, [5]>([1, 1, 2, 1, 1])"},
     {"a0_k_5 = expand_dims(x = K0, axes = tensor<int32, [1]>([1]))", "reps = tensor<int32, [5]>([1, 2, 1, 1, 1])"},
     "op a0 (matmul): expected query head h to meet key head h / (H / G), found another order of heads"},
    {WITH(.group = LM_GROUP_EACH),
     {"values = (a0_h0, a0_h1, a0_h2, a0_h3)"},
     {"values = (a0_h1, a0_h0, a0_h2, a0_h3)"},
     "op a0 (concat): expected all heads of one attention side by side, found others"},
    {WITH(.attend = LM_SDPA),
     {"attn_mask = seen"},
     {"attn_mask = x0"},
     "op a0 (scaled_dot_product_attention): expected a query, a cache of keys and values, and a causal mask"},
};

/* The text with its first `from` replaced. */
static void change(struct bytes *text, const char *from, const char *to)
{
    put(text, "", 1);
    char *const at = strstr((char *)text->at, from);
    if (!at)
        fail_msg("the program has no %s", from);
    struct bytes out = {0};
    put(&out, text->at, (size_t)(at - (char *)text->at));
    put(&out, to, strlen(to));
    put(&out, at + strlen(from), strlen(at + strlen(from)));
    bytes_free(text);
    *text = out;
}

/* The message of the refusal; and why-not has a line about it. */
static void expect_refused(const struct bytes *text, const struct lm_form *form, const char *message)
{
    struct teg_mil_program *const p = parse(text, form);
    struct teg_arena arena;
    struct teg_raised raised = {0};
    struct teg_raise_survey survey;
    struct teg_error err = {0};
    struct teg_buf lines = {0};
    teg_arena_init(&arena, NULL);
    const enum teg_status status = teg_raise(p, NULL, &arena, &raised, &err);
    if (status != TEG_ERR_UNSUPPORTED || !strstr(err.message, message))
        fail_msg("expected: %s\nfound: status %d: %s", message, status, err.message);
    assert_int_equal(teg_raise_why_not(p, NULL, NULL, &lines, &err), TEG_OK);
    if (!lines.bytes || !strstr(lines.bytes, message))
        fail_msg("why not: expected: %s\nfound: %s", message, lines.bytes ? lines.bytes : "(nothing)");
    assert_int_equal(teg_raise_look(p, NULL, &survey, &err), TEG_OK);
    assert_true(!survey.is_model && strstr(survey.reason.bytes, message) && survey.contract.n_bytes == 0);
    teg_raise_survey_free(&survey);
    teg_buf_free(&lines);
    teg_arena_free(&arena);
    teg_mil_free(p);
}

static void test_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        const struct refusal *const r = &refusals[i];
        struct bytes text = lm_program(&r->form);
        for (int k = 0; k < 2 && r->from[k]; k++)
            change(&text, r->from[k], r->to[k]);
        expect_refused(&text, &r->form, r->message);
        bytes_free(&text);
    }
}

/* Without the entry nobody knows which cosines a caller will give. */
static void test_no_base(void **state)
{
    (void)state;
    static const char *const bases[] = {NULL, "ten", "0.5", "1000000000000000"};
    const struct lm_form form = {SAME, .rope = LM_ROPE_INPUTS}, other = lm_plain;
    for (size_t i = 0; i < sizeof bases / sizeof *bases; i++) {
        struct bytes text = lm_program(&form);
        struct teg_mil_program *const p = parse(&text, &other);
        const struct teg_string entry[1][2] = {{{"rope_theta", 10}, {bases[i], bases[i] ? strlen(bases[i]) : 0}}};
        struct teg_arena arena;
        struct teg_raised raised = {0};
        struct teg_error err = {0};
        p->user_metadata = entry;
        p->n_user_metadata = bases[i] != NULL;
        teg_arena_init(&arena, NULL);
        assert_int_equal(teg_raise(p, NULL, &arena, &raised, &err), TEG_ERR_UNSUPPORTED);
        assert_non_null(strstr(err.message, "expected a metadata entry rope_theta, from which the caller makes cos and "
                                            "sin, found none"));
        teg_arena_free(&arena);
        teg_mil_free(p);
        bytes_free(&text);
    }
}

/* Who asks for an op that waits for another is told so. */
static void test_waiting(void **state)
{
    (void)state;
    struct bytes text = lm_program(&lm_plain);
    struct teg_error err = {0};
    struct teg_buf lines = {0};
    struct teg_raise_survey survey;
    change(&text, "o0 = linear(x = a0_f", "o0 = linear(x = ids");
    struct teg_mil_program *const p = parse(&text, &lm_plain);
    assert_int_equal(teg_raise_why_not(p, NULL, "y0 (add)", &lines, &err), TEG_OK);
    assert_non_null(lines.bytes);
    assert_string_equal(lines.bytes,
                        "op y0 (add): expected operands with a meaning, found one without: op o0 (linear): "
                        "expected rows as x, found another value\n");
    assert_int_equal(teg_raise_look(p, &(struct teg_raise_options){.function = "other"}, &survey, &err),
                     TEG_ERR_ARGUMENT);
    assert_string_equal(err.message, "cannot explain: toy: function: expected one of the package's, found other; see "
                                     "`tegula inspect`");
    assert_int_equal(teg_raise_look(p, NULL, &survey, &err), TEG_OK);
    assert_true(survey.n_understood < survey.n_ops && survey.n_understood > survey.n_ops / 2);
    teg_raise_survey_free(&survey);
    teg_buf_free(&lines);
    teg_mil_free(p);
    bytes_free(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_forms), cmocka_unit_test(test_refused),
                                       cmocka_unit_test(test_no_base), cmocka_unit_test(test_waiting)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
