/* Graphs: what each op accepts and refuses, what verify finds in a graph that was broken by hand, the exact dump of a
 * small graph, and every failing allocation. */
#include "unit/format_test.h"

#include "graph/graph.h"

/* One graph with a value of every sort that ops take: widths 8 (two heads of 4) and 12. */
struct kit {
    struct teg_arena arena;
    struct teg_graph *g;
    teg_value_id table, x8, y8, x12; /* [10, 8]; [T, 8], [T, 8], [T, 12] */
    teg_value_id w12, v2, v4, v8, v12, f2, q8, long2, state, state_odd;
};

static float zeros[256];
static const uint8_t blocks[10 * 18];

static teg_value_id constant(struct kit *k, const char *name, uint64_t rows, uint64_t columns)
{
    teg_value_id id = TEG_NO_VALUE;
    const uint64_t dims[2] = {rows ? rows : columns, columns};
    const size_t n = (size_t)(rows ? rows * columns : columns);
    assert_int_equal(
        teg_graph_const(k->g, name, TEG_DTYPE_F32, rows ? 2 : 1, dims, zeros, n * sizeof *zeros, &id, NULL), TEG_OK);
    return id;
}

static teg_value_id append(struct kit *k, const struct teg_op *op)
{
    teg_value_id id = TEG_NO_VALUE;
    struct teg_error err = {0};
    if (teg_graph_op(k->g, op, &id, &err) != TEG_OK)
        fail_msg("%s", err.message);
    return id;
}

static struct teg_op op_of(enum teg_op_kind kind, uint32_t n, teg_value_id a, teg_value_id b, teg_value_id c)
{
    struct teg_op op = {.kind = kind, .n_inputs = n, .inputs = {a, b, c}};
    if (kind == TEG_OP_ATTENTION || kind == TEG_OP_KV_APPEND) {
        op.attr.attention.n_heads = 2;
        op.attr.attention.n_kv_heads = 2;
        op.attr.attention.head_width = 4;
        op.attr.attention.scale = 0.5f;
    }
    if (kind == TEG_OP_ROPE) {
        op.attr.rope.head_width = 4;
        op.attr.rope.magnitude = 1;
    }
    if (kind == TEG_OP_SLICE)
        op.attr.slice.width = 4;
    return op;
}

static void kit_init(struct kit *k)
{
    *k = (struct kit){0};
    teg_arena_init(&k->arena, NULL);
    assert_int_equal(teg_graph_new(&k->arena, &k->g, NULL), TEG_OK);
    k->table = constant(k, "table", 10, 8);
    k->w12 = constant(k, "w12", 12, 8);
    k->v2 = constant(k, "v2", 0, 2);
    k->v4 = constant(k, "v4", 0, 4);
    k->v8 = constant(k, "v8", 0, 8);
    k->v12 = constant(k, "v12", 0, 12);
    k->f2 = constant(k, "f2", 0, 2);
    k->long2 = constant(k, "long2", 0, 2);
    assert_int_equal(
        teg_graph_const(k->g, "q8", TEG_DTYPE_Q4_0, 2, (uint64_t[]){10, 32}, blocks, sizeof blocks, &k->q8, NULL),
        TEG_OK);
    assert_int_equal(teg_graph_state(k->g, "kv", 2, 4, &k->state, NULL), TEG_OK);
    assert_int_equal(teg_graph_state(k->g, "kv.odd", 3, 4, &k->state_odd, NULL), TEG_OK);
    struct teg_op op = op_of(TEG_OP_EMBEDDING, 2, k->g->tokens, k->table, 0);
    op.attr.scale.scale = 1;
    k->x8 = append(k, &op);
    k->y8 = append(k, &op);
    op = op_of(TEG_OP_LINEAR, 2, k->x8, k->w12, 0);
    k->x12 = append(k, &op);
}

static void kit_free(struct kit *k)
{
    teg_arena_free(&k->arena);
}

static void accepts(struct kit *k, struct teg_op op, int64_t width)
{
    const teg_value_id id = append(k, &op);
    if (width == 0) {
        assert_int_equal(id, TEG_NO_VALUE);
        return;
    }
    const struct teg_value *const v = &k->g->values[id];
    assert_int_equal(v->kind, TEG_VALUE_RESULT);
    assert_int_equal(v->dtype, TEG_DTYPE_F32);
    assert_int_equal(v->shape.rank, 2);
    assert_int_equal(v->shape.dims[0], TEG_DIM_T);
    assert_int_equal(v->shape.dims[1], width);
    assert_int_equal(v->op, k->g->n_ops - 1);
    assert_null(v->name);
}

/* Refused with the whole message, and nothing added. */
static void refuses(struct kit *k, struct teg_op op, const char *message)
{
    struct teg_error err = {0};
    const uint32_t n_values = k->g->n_values, n_ops = k->g->n_ops;
    teg_value_id id = 12345;
    const enum teg_status status = teg_graph_op(k->g, &op, &id, &err);
    assert_string_equal(err.message, message);
    assert_int_equal(status, err.status);
    assert_int_not_equal(status, TEG_OK);
    assert_int_equal(id, 12345);
    assert_int_equal(k->g->n_values, n_values);
    assert_int_equal(k->g->n_ops, n_ops);
}

#define MISFIT(name, found)                                                                                            \
    "bad model: " name ": expected operands whose shapes fit, found " found                                            \
    "; the file is damaged or is not of the architecture it names"

static void test_accepts(void **state)
{
    (void)state;
    struct kit k;
    kit_init(&k);
    accepts(&k, op_of(TEG_OP_EMBEDDING, 2, k.g->tokens, k.q8, 0), 32);
    accepts(&k, op_of(TEG_OP_RMS_NORM, 2, k.x8, k.v8, 0), 8);
    accepts(&k, op_of(TEG_OP_RMS_NORM, 2, k.x8, k.v4, 0), 8); /* over each head */
    accepts(&k, op_of(TEG_OP_RMS_NORM, 2, k.x12, k.v4, 0), 12);
    accepts(&k, op_of(TEG_OP_LINEAR, 2, k.x8, k.w12, 0), 12);
    accepts(&k, op_of(TEG_OP_LINEAR, 3, k.x8, k.w12, k.v12), 12);
    accepts(&k, op_of(TEG_OP_LM_HEAD, 2, k.x8, k.table, 0), 10);
    accepts(&k, op_of(TEG_OP_ROPE, 2, k.x8, k.f2, 0), 8);
    accepts(&k, op_of(TEG_OP_ROPE, 3, k.x12, k.f2, k.long2), 12);
    const teg_value_id cosines = constant(&k, "cos", 20, 2), sines = constant(&k, "sin", 20, 2);
    accepts(&k, op_of(TEG_OP_ROPE, 3, k.x12, cosines, sines), 12);
    struct teg_op op = op_of(TEG_OP_ROPE, 2, k.x8, k.f2, 0);
    op.attr.rope.head_width = 8; /* half of a head turns */
    accepts(&k, op, 8);
    accepts(&k, op_of(TEG_OP_KV_APPEND, 3, k.x8, k.y8, k.state), 0);
    accepts(&k, op_of(TEG_OP_ATTENTION, 2, k.x8, k.state, 0), 8);
    accepts(&k, op_of(TEG_OP_ATTENTION, 3, k.x8, k.state, k.v2), 8); /* sinks */
    accepts(&k, op_of(TEG_OP_GLU, 2, k.x8, k.y8, 0), 8);
    accepts(&k, op_of(TEG_OP_GLU, 2, k.x8, k.x8, 0), 8);
    accepts(&k, op_of(TEG_OP_ADD, 2, k.x8, k.y8, 0), 8);
    accepts(&k, op_of(TEG_OP_SCALE, 1, k.x12, 0, 0), 12);
    accepts(&k, op_of(TEG_OP_SOFTCAP, 1, k.x12, 0, 0), 12);
    op = op_of(TEG_OP_SLICE, 1, k.x12, 0, 0);
    op.attr.slice.begin = 8;
    accepts(&k, op, 4); /* the last columns */
    op.attr.slice.begin = 0;
    op.attr.slice.width = 12;
    accepts(&k, op, 12);
    kit_free(&k);
}

static void test_refuses_rows(void **state)
{
    (void)state;
    struct kit k;
    kit_init(&k);
    refuses(&k, op_of(TEG_OP_EMBEDDING, 2, k.x8, k.table, 0), MISFIT("embedding", "value F32[T, 8], table F32[10, 8]"));
    refuses(&k, op_of(TEG_OP_EMBEDDING, 2, k.g->tokens, k.v8, 0), MISFIT("embedding", "tokens I32[T], v8 F32[8]"));
    refuses(&k, op_of(TEG_OP_EMBEDDING, 2, k.g->tokens, k.x8, 0),
            MISFIT("embedding", "tokens I32[T], value F32[T, 8]"));
    refuses(&k, op_of(TEG_OP_RMS_NORM, 2, k.x8, k.v12, 0), MISFIT("rms_norm", "value F32[T, 8], v12 F32[12]"));
    refuses(&k, op_of(TEG_OP_RMS_NORM, 2, k.g->tokens, k.v4, 0), MISFIT("rms_norm", "tokens I32[T], v4 F32[4]"));
    refuses(&k, op_of(TEG_OP_RMS_NORM, 2, k.table, k.v8, 0), MISFIT("rms_norm", "table F32[10, 8], v8 F32[8]"));
    refuses(&k, op_of(TEG_OP_RMS_NORM, 2, k.x8, k.y8, 0), MISFIT("rms_norm", "value F32[T, 8], value F32[T, 8]"));
    refuses(&k, op_of(TEG_OP_RMS_NORM, 2, k.x8, k.g->tokens, 0), MISFIT("rms_norm", "value F32[T, 8], tokens I32[T]"));
    refuses(&k, op_of(TEG_OP_LINEAR, 2, k.x12, k.w12, 0), MISFIT("linear", "value F32[T, 12], w12 F32[12, 8]"));
    refuses(&k, op_of(TEG_OP_LINEAR, 2, k.x8, k.v8, 0), MISFIT("linear", "value F32[T, 8], v8 F32[8]"));
    refuses(&k, op_of(TEG_OP_LINEAR, 3, k.x8, k.w12, k.v8),
            MISFIT("linear", "value F32[T, 8], w12 F32[12, 8], v8 F32[8]"));
    refuses(&k, op_of(TEG_OP_LM_HEAD, 2, k.x12, k.table, 0), MISFIT("lm_head", "value F32[T, 12], table F32[10, 8]"));
    refuses(&k, op_of(TEG_OP_GLU, 2, k.x8, k.x12, 0), MISFIT("glu", "value F32[T, 8], value F32[T, 12]"));
    refuses(&k, op_of(TEG_OP_ADD, 2, k.x8, k.v8, 0), MISFIT("add", "value F32[T, 8], v8 F32[8]"));
    refuses(&k, op_of(TEG_OP_SCALE, 1, k.state, 0, 0), MISFIT("scale", "kv F32[2, 4]"));
    refuses(&k, op_of(TEG_OP_SOFTCAP, 1, k.v8, 0, 0), MISFIT("softcap", "v8 F32[8]"));
    kit_free(&k);
}

static void test_refuses_attributes(void **state)
{
    (void)state;
    struct kit k;
    kit_init(&k);
    struct teg_op op = op_of(TEG_OP_ROPE, 2, k.x8, k.v4, 0); /* 4 pairs in a head of 4 */
    refuses(&k, op, MISFIT("rope", "value F32[T, 8], v4 F32[4]"));
    op = op_of(TEG_OP_ROPE, 3, k.x8, k.f2, k.v4);
    refuses(&k, op, MISFIT("rope", "value F32[T, 8], f2 F32[2], v4 F32[4]"));
    const teg_value_id cosines = constant(&k, "cos", 20, 2), sines = constant(&k, "sin", 20, 2);
    const teg_value_id other = constant(&k, "other", 19, 2);
    refuses(&k, op_of(TEG_OP_ROPE, 2, k.x8, cosines, 0), MISFIT("rope", "value F32[T, 8], cos F32[20, 2]"));
    refuses(&k, op_of(TEG_OP_ROPE, 3, k.x8, cosines, other),
            MISFIT("rope", "value F32[T, 8], cos F32[20, 2], other F32[19, 2]"));
    op = op_of(TEG_OP_ROPE, 3, k.x8, cosines, sines);
    op.attr.rope.magnitude = 2; /* tables have theirs */
    refuses(&k, op, MISFIT("rope", "value F32[T, 8], cos F32[20, 2], sin F32[20, 2]"));
    op = op_of(TEG_OP_ROPE, 2, k.x8, k.f2, 0);
    op.attr.rope.head_width = 0;
    refuses(&k, op, MISFIT("rope", "value F32[T, 8], f2 F32[2]"));
    op.attr.rope.head_width = 5;
    refuses(&k, op, MISFIT("rope", "value F32[T, 8], f2 F32[2]"));
    refuses(&k, op_of(TEG_OP_KV_APPEND, 3, k.x8, k.x12, k.state),
            MISFIT("kv_append", "value F32[T, 8], value F32[T, 12], kv F32[2, 4]"));
    refuses(&k, op_of(TEG_OP_KV_APPEND, 3, k.x12, k.x12, k.state),
            MISFIT("kv_append", "value F32[T, 12], value F32[T, 12], kv F32[2, 4]"));
    refuses(&k, op_of(TEG_OP_KV_APPEND, 3, k.x8, k.y8, k.state_odd),
            MISFIT("kv_append", "value F32[T, 8], value F32[T, 8], kv.odd F32[3, 4]"));
    refuses(&k, op_of(TEG_OP_ATTENTION, 2, k.x12, k.state, 0), MISFIT("attention", "value F32[T, 12], kv F32[2, 4]"));
    refuses(&k, op_of(TEG_OP_ATTENTION, 2, k.x8, k.y8, 0), MISFIT("attention", "value F32[T, 8], value F32[T, 8]"));
    refuses(&k, op_of(TEG_OP_ATTENTION, 3, k.x8, k.state, k.v4),
            MISFIT("attention", "value F32[T, 8], kv F32[2, 4], v4 F32[4]"));
    op = op_of(TEG_OP_ATTENTION, 2, k.x12, k.state, 0);
    op.attr.attention.n_heads = 3; /* not a multiple of two KV heads */
    refuses(&k, op, MISFIT("attention", "value F32[T, 12], kv F32[2, 4]"));
    op = op_of(TEG_OP_SLICE, 1, k.x8, 0, 0);
    op.attr.slice.begin = 5;
    refuses(&k, op, MISFIT("slice", "value F32[T, 8]"));
    op.attr.slice.begin = UINT32_MAX;
    refuses(&k, op, MISFIT("slice", "value F32[T, 8]"));
    op.attr.slice.begin = 0;
    op.attr.slice.width = 0;
    refuses(&k, op, MISFIT("slice", "value F32[T, 8]"));
    op.attr.slice.width = 9;
    refuses(&k, op, MISFIT("slice", "value F32[T, 8]"));
    kit_free(&k);
}

static void test_refuses_operands(void **state)
{
    (void)state;
    struct kit k;
    kit_init(&k);
    refuses(&k, op_of(TEG_OP_ADD, 1, k.x8, 0, 0),
            "bad graph: add: expected 2 to 2 operands, found 1; report this as a fault");
    refuses(&k, op_of(TEG_OP_LINEAR, 4, k.x8, k.w12, k.v12),
            "bad graph: linear: expected 2 to 3 operands, found 4; report this as a fault");
    char message[200];
    (void)snprintf(message, sizeof message,
                   "bad graph: add: expected operand 1 to be defined before, found %%%u; report this as a fault",
                   k.g->n_values);
    refuses(&k, op_of(TEG_OP_ADD, 2, k.x8, k.g->n_values, 0), message);
    refuses(&k, op_of(TEG_OP_ADD, 2, TEG_NO_VALUE, k.x8, 0),
            "bad graph: add: expected operand 0 to be defined before, found %4294967295; report this as a fault");
    kit_free(&k);
}

static void const_fails(uint32_t rank, const uint64_t *dims, enum teg_dtype dtype, size_t n_bytes, const char *message)
{
    struct kit k;
    struct teg_error err = {0};
    teg_value_id id = 7;
    kit_init(&k);
    assert_int_equal(teg_graph_const(k.g, "t", dtype, rank, dims, zeros, n_bytes, &id, &err), TEG_ERR_FORMAT);
    assert_string_equal(err.message, message);
    assert_int_equal(id, 7);
    kit_free(&k);
}

static void test_constants(void **state)
{
    (void)state;
    const char *const rank = "cannot use tensor: t: expected rank 1 to 4, found %u; the file is damaged";
    char message[200];
    (void)snprintf(message, sizeof message, rank, 0u);
    const_fails(0, (uint64_t[]){1}, TEG_DTYPE_F32, 4, message);
    (void)snprintf(message, sizeof message, rank, 5u);
    const_fails(5, (uint64_t[]){1, 1, 1, 1, 1}, TEG_DTYPE_F32, 4, message);
    const_fails(2, (uint64_t[]){0, 8}, TEG_DTYPE_F32, 0,
                "cannot use tensor: t: expected dimensions from 1 to 2147483647, found 0; the file is damaged");
    const_fails(
        1, (uint64_t[]){1ull << 31}, TEG_DTYPE_F32, 0,
        "cannot use tensor: t: expected dimensions from 1 to 2147483647, found 2147483648; the file is damaged");
    const_fails(2, (uint64_t[]){2, 8}, TEG_DTYPE_F32, 60,
                "cannot use tensor: t: expected the bytes of its shape and type F32, found 60; the file is damaged");
    const_fails(2, (uint64_t[]){2, 33}, TEG_DTYPE_Q4_0, 36,
                "cannot use tensor: t: expected the bytes of its shape and type Q4_0, found 36; the file is damaged");
    const_fails(
        4, (uint64_t[]){INT32_MAX, INT32_MAX, INT32_MAX, INT32_MAX}, TEG_DTYPE_F32, 4,
        "cannot use tensor: t: expected dimensions from 1 to 2147483647, found 2147483647; the file is damaged");
}

static void state_fails(struct kit *k, uint32_t heads, uint32_t width)
{
    struct teg_error err = {0};
    teg_value_id id = 7;
    assert_int_equal(teg_graph_state(k->g, "kv.bad", heads, width, &id, &err), TEG_ERR_ARGUMENT);
    assert_string_equal(err.message,
                        "bad graph: kv.bad: expected a state of at least one head and column, found none; report this "
                        "as a fault");
    assert_int_equal(id, 7);
}

static void test_states(void **state)
{
    (void)state;
    struct kit k;
    kit_init(&k);
    state_fails(&k, 0, 4);
    state_fails(&k, 4, 0);
    kit_free(&k);
}

/* ---- a small whole graph ---- */

/* embedding -> norm -> q with bias, k = v = slice, rope -> append -> attention -> add -> norm -> lm_head -> softcap. */
static enum teg_status small(struct teg_arena *arena, struct teg_graph **out, struct teg_error *err)
{
    struct teg_graph *g;
    teg_value_id table, norm, w, bias, f, kv, sinks, x, h, q, k, r;
    TRY(teg_graph_new(arena, &g, err));
    TRY(teg_graph_const(g, "embd", TEG_DTYPE_F32, 2, (uint64_t[]){10, 8}, zeros, 320, &table, err));
    TRY(teg_graph_const(g, "norm", TEG_DTYPE_F32, 1, (uint64_t[]){8}, zeros, 32, &norm, err));
    TRY(teg_graph_const(g, "wq", TEG_DTYPE_F16, 2, (uint64_t[]){16, 8}, zeros, 256, &w, err));
    TRY(teg_graph_const(g, "bq", TEG_DTYPE_F32, 1, (uint64_t[]){16}, zeros, 64, &bias, err));
    TRY(teg_graph_const(g, "f", TEG_DTYPE_F32, 1, (uint64_t[]){2}, zeros, 8, &f, err));
    TRY(teg_graph_const(g, "sinks", TEG_DTYPE_F32, 1, (uint64_t[]){2}, zeros, 8, &sinks, err));
    TRY(teg_graph_state(g, "kv.0", 1, 4, &kv, err));
    struct teg_op op = op_of(TEG_OP_EMBEDDING, 2, g->tokens, table, 0);
    op.attr.scale.scale = 2.5f;
    TRY(teg_graph_op(g, &op, &x, err));
    g->values[x].name = "embed";
    op = op_of(TEG_OP_RMS_NORM, 2, x, norm, 0);
    op.attr.norm.eps = 0.25f;
    op.attr.norm.weight_offset = 1;
    TRY(teg_graph_op(g, &op, &h, err));
    op = op_of(TEG_OP_LINEAR, 3, h, w, bias);
    TRY(teg_graph_op(g, &op, &h, err));
    op = op_of(TEG_OP_SLICE, 1, h, 0, 0);
    op.attr.slice.width = 8;
    TRY(teg_graph_op(g, &op, &q, err));
    op.attr.slice.begin = 8;
    op.attr.slice.width = 4;
    TRY(teg_graph_op(g, &op, &k, err));
    op = op_of(TEG_OP_ROPE, 2, q, f, 0);
    op.attr.rope.interleaved = true;
    op.attr.rope.magnitude = 1.5f;
    TRY(teg_graph_op(g, &op, &q, err));
    op = op_of(TEG_OP_ROPE, 2, k, f, 0);
    TRY(teg_graph_op(g, &op, &r, err));
    op = op_of(TEG_OP_KV_APPEND, 3, r, k, kv);
    op.attr.attention.n_kv_heads = 1;
    TRY(teg_graph_op(g, &op, NULL, err));
    op = op_of(TEG_OP_ATTENTION, 3, q, kv, sinks);
    op.attr.attention.n_kv_heads = 1;
    op.attr.attention.window = 7;
    op.attr.attention.softcap = 50;
    TRY(teg_graph_op(g, &op, &h, err));
    op = op_of(TEG_OP_SCALE, 1, h, 0, 0);
    op.attr.scale.scale = -2;
    TRY(teg_graph_op(g, &op, &h, err));
    op = op_of(TEG_OP_GLU, 2, h, q, 0);
    op.attr.activation = TEG_ACT_GELU_TANH;
    TRY(teg_graph_op(g, &op, &h, err));
    op.attr.activation = TEG_ACT_SILU;
    TRY(teg_graph_op(g, &op, &h, err));
    op = op_of(TEG_OP_ADD, 2, x, h, 0);
    TRY(teg_graph_op(g, &op, &x, err));
    g->values[x].name = "layer00";
    op = op_of(TEG_OP_LM_HEAD, 2, x, table, 0);
    TRY(teg_graph_op(g, &op, &x, err));
    op = op_of(TEG_OP_SOFTCAP, 1, x, 0, 0);
    op.attr.cap = 30;
    TRY(teg_graph_op(g, &op, &g->logits, err));
    TRY(teg_graph_verify(g, err));
    *out = g;
    return TEG_OK;
}

static void test_dump(void **state)
{
    (void)state;
    struct teg_arena arena;
    struct teg_graph *g = NULL;
    struct teg_buf out = {0};
    struct teg_text text = {0};
    teg_arena_init(&arena, NULL);
    assert_int_equal(small(&arena, &g, NULL), TEG_OK);
    teg_graph_dump(g, &out);
    assert_int_equal(teg_buf_take(&out, &text, "dump", NULL), TEG_OK);
    assert_string_equal(
        text.bytes,
        "%8 = embedding(tokens, embd F32[10, 8]) scale=2.5 : F32[T, 8] \"embed\"\n"
        "%9 = rms_norm(%8, norm F32[8]) eps=0.25 weight_offset=1 : F32[T, 8]\n"
        "%10 = linear(%9, wq F16[16, 8], bq F32[16]) : F32[T, 16]\n"
        "%11 = slice(%10) begin=0 width=8 : F32[T, 8]\n"
        "%12 = slice(%10) begin=8 width=4 : F32[T, 4]\n"
        "%13 = rope(%11, f F32[2]) head_width=4 interleaved magnitude=1.5 : F32[T, 8]\n"
        "%14 = rope(%12, f F32[2]) head_width=4 half : F32[T, 4]\n"
        "kv_append(%14, %12, kv.0)\n"
        "%15 = attention(%13, kv.0, sinks F32[2]) heads=2 kv_heads=1 head_width=4 scale=0.5 window=7 softcap=50 : "
        "F32[T, 8]\n"
        "%16 = scale(%15) scale=-2 : F32[T, 8]\n"
        "%17 = glu(%16, %13) gelu_tanh : F32[T, 8]\n"
        "%18 = glu(%16, %13) silu : F32[T, 8]\n"
        "%19 = add(%8, %18) : F32[T, 8] \"layer00\"\n"
        "%20 = lm_head(%19, embd F32[10, 8]) : F32[T, 10]\n"
        "%21 = softcap(%20) cap=30 : F32[T, 10]\n");
    free(text.bytes);
    teg_arena_free(&arena);
}

/* ---- verify ---- */

static void breaks(void (*hurt)(struct teg_graph *g), const char *message)
{
    struct teg_arena arena;
    struct teg_graph *g = NULL;
    struct teg_error err = {0};
    teg_arena_init(&arena, NULL);
    assert_int_equal(small(&arena, &g, NULL), TEG_OK);
    hurt(g);
    const enum teg_status status = teg_graph_verify(g, &err);
    assert_string_equal(err.message, message);
    assert_int_equal(status, err.status);
    teg_arena_free(&arena);
}

enum { OP_NORM = 1, OP_LINEAR, OP_APPEND = 7, OP_ATTENTION, OP_SCALE, OP_GLU, OP_ADD = 12 };

static void hurt_order(struct teg_graph *g)
{
    g->ops[OP_SCALE].inputs[0] = g->ops[OP_ADD].result; /* of a later op */
}
static void hurt_self(struct teg_graph *g)
{
    g->ops[OP_SCALE].inputs[0] = g->ops[OP_SCALE].result;
}
static void hurt_late_append(struct teg_graph *g)
{
    const struct teg_op rope = g->ops[OP_APPEND - 1]; /* makes the key */
    g->ops[OP_APPEND - 1] = g->ops[OP_APPEND];
    g->ops[OP_APPEND] = rope;
    g->values[rope.result].op = OP_APPEND;
}
static void hurt_shape(struct teg_graph *g)
{
    g->ops[OP_NORM].inputs[0] = g->ops[OP_LINEAR].inputs[2];
}
static void hurt_width(struct teg_graph *g)
{
    g->values[g->ops[OP_ADD].result].shape.dims[1] = 4;
}
static void hurt_result(struct teg_graph *g)
{
    g->ops[OP_ADD].result = g->n_values + 100;
}
static void hurt_result_shared(struct teg_graph *g)
{
    g->ops[OP_GLU + 1].result = g->ops[OP_GLU].result;
}
static void hurt_result_lost(struct teg_graph *g)
{
    g->ops[OP_ADD].result = TEG_NO_VALUE;
}
static void hurt_result_extra(struct teg_graph *g)
{
    g->ops[OP_APPEND].result = g->ops[OP_ADD].result;
}
static void hurt_operands(struct teg_graph *g)
{
    g->ops[OP_ADD].n_inputs = 0;
}
static void hurt_logits(struct teg_graph *g)
{
    g->logits = TEG_NO_VALUE;
}
static void hurt_logits_kind(struct teg_graph *g)
{
    g->logits = g->tokens;
}
static void hurt_logits_range(struct teg_graph *g)
{
    g->logits = g->n_values;
}
static void hurt_append(struct teg_graph *g)
{
    const struct teg_op append = g->ops[OP_APPEND];
    g->ops[OP_APPEND] = g->ops[OP_ATTENTION];
    g->ops[OP_ATTENTION] = append;
    g->values[g->ops[OP_APPEND].result].op = OP_APPEND;
}

static void test_verify(void **state)
{
    (void)state;
    breaks(hurt_order, "bad graph: scale: expected operand 0 to be defined before, found %19; report this as a fault");
    breaks(hurt_self, "bad graph: scale: expected operand 0 to be defined before, found %16; report this as a fault");
    breaks(hurt_late_append,
           "bad graph: kv_append: expected operand 0 to be defined before, found %14; report this as a fault");
    breaks(hurt_shape, MISFIT("rms_norm", "bq F32[16], norm F32[8]"));
    breaks(hurt_width, "bad graph: add: expected a result of width 8, found another; report this as a fault");
    breaks(hurt_result, "bad graph: add: expected a result of its own, found %122; report this as a fault");
    breaks(hurt_result_shared, "bad graph: glu: expected a result of its own, found %17; report this as a fault");
    breaks(hurt_result_lost, "bad graph: add: expected a result of width 8, found another; report this as a fault");
    breaks(hurt_result_extra, "bad graph: kv_append: expected a result of its own, found %19; report this as a fault");
    breaks(hurt_operands, "bad graph: add: expected 2 to 2 operands, found 0; report this as a fault");
    breaks(hurt_logits, "bad graph: output: expected logits, found none; report this as a fault");
    breaks(hurt_logits_kind, "bad graph: output: expected logits, found none; report this as a fault");
    breaks(hurt_logits_range, "bad graph: output: expected logits, found none; report this as a fault");
    breaks(hurt_append,
           "bad graph: attention: expected kv.0 to be appended to before it is read, found no such op; report this as "
           "a fault");
}

/* ---- memory ---- */

/* Arenas grow in blocks, so what a graph takes is few allocations; thousands of ops make the tables grow. */
static enum teg_status big(struct teg_arena *arena, struct teg_error *err)
{
    struct teg_graph *g;
    teg_value_id x;
    TRY(small(arena, &g, err));
    x = g->ops[OP_ADD].result;
    for (int i = 0; i < 3000; i++) {
        const struct teg_op op = op_of(TEG_OP_SCALE, 1, x, 0, 0);
        TRY(teg_graph_op(g, &op, &x, err));
    }
    return teg_graph_verify(g, err);
}

static void test_memory(void **state)
{
    (void)state;
    size_t n = 1;
    for (enum teg_status status = TEG_ERR_MEMORY; status != TEG_OK; n++) {
        struct counting c;
        struct teg_arena arena;
        struct teg_error err = {0};
        teg_arena_init(&arena, counting_init(&c, n));
        status = big(&arena, &err);
        if (status != TEG_OK) {
            assert_int_equal(status, TEG_ERR_MEMORY);
            assert_int_equal(err.status, TEG_ERR_MEMORY);
            assert_non_null(strstr(err.message, "out of memory: graph"));
        }
        teg_arena_free(&arena);
        assert_int_equal(c.n_live, 0);
        assert_true(n < 1000);
    }
    assert_true(n > 5);
}

/* A graph has an end, whatever asks for more: about a million values. */
static void test_limit(void **state)
{
    (void)state;
    struct kit k;
    struct teg_error err = {0};
    enum teg_status status = TEG_OK;
    kit_init(&k);
    const struct teg_op op = op_of(TEG_OP_SCALE, 1, k.x8, 0, 0);
    while (status == TEG_OK && k.g->n_values < (1u << 21))
        status = teg_graph_op(k.g, &op, NULL, &err);
    assert_int_equal(status, TEG_ERR_MEMORY);
    assert_true(k.g->n_values <= 1u << 20);
    kit_free(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_accepts),
        cmocka_unit_test(test_refuses_rows),
        cmocka_unit_test(test_refuses_attributes),
        cmocka_unit_test(test_refuses_operands),
        cmocka_unit_test(test_constants),
        cmocka_unit_test(test_states),
        cmocka_unit_test(test_dump),
        cmocka_unit_test(test_verify),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
