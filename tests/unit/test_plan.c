/* Plans: buffers that live together lie apart, steps of a stage do not disturb each other, and running a plan gives
 * bit for bit what evaluating its graph op by op gives (naive.h), for every tiny model and for random graphs that
 * slice, overwrite, fuse and name values in ways no builder does. */
#include <dirent.h>

#include "unit/format_test.h"
#include "unit/naive.h"

#include "base/pool.h"
#include "build/build.h"
#include "plan/plan.h"
#include "run/executor.h"

static uint64_t random_state = 88172645463325252u;

static uint32_t random_below(uint32_t n)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)(random_state >> 33) % n;
}

static float random_float(void)
{
    return (float)random_below(1u << 24) * 0x1p-23f - 1;
}

/* ---- places ---- */

static void test_places(void **state)
{
    (void)state;
    for (int round = 0; round < 300; round++) {
        struct teg_lifetime buffers[60];
        const size_t n = random_below(60);
        size_t floats = 0, widest = 0;
        struct teg_arena arena;
        teg_arena_init(&arena, NULL);
        for (size_t i = 0; i < n; i++) {
            buffers[i] =
                (struct teg_lifetime){.width = 1 + random_below(round % 2 ? 40 : 400), .first = random_below(50)};
            buffers[i].last = buffers[i].first + random_below(8);
        }
        assert_int_equal(teg_plan_place(buffers, n, &arena, &floats, NULL), TEG_OK);
        for (size_t i = 0; i < n; i++) {
            assert_int_equal(buffers[i].offset % 16, 0);
            assert_int_equal(buffers[i].width % 16, 0);
            assert_true(buffers[i].offset + buffers[i].width <= floats);
            for (size_t k = 0; k < i; k++)
                if (buffers[i].first <= buffers[k].last && buffers[k].first <= buffers[i].last)
                    assert_true(buffers[i].offset + buffers[i].width <= buffers[k].offset ||
                                buffers[k].offset + buffers[k].width <= buffers[i].offset);
        }
        /* Never less than what lives at one time, and not absurdly more. */
        for (uint32_t at = 0; at < 60; at++) {
            size_t alive = 0;
            for (size_t i = 0; i < n; i++)
                alive += buffers[i].first <= at && at <= buffers[i].last ? buffers[i].width : 0;
            widest = alive > widest ? alive : widest;
        }
        assert_true(floats >= widest && floats <= 2 * widest + 64);
        teg_arena_free(&arena);
    }
}

/* ---- stages ---- */

#define MAP_TOKENS 3

/* Marks what a step writes or touches in row `row` of an arena for MAP_TOKENS tokens. */
static void mark(uint8_t *map, const struct teg_plan *plan, const struct teg_operand *x, size_t row, uint8_t bit)
{
    if (!x->used)
        return;
    uint8_t *const at = x->logits ? map + plan->row_floats * MAP_TOKENS + row * x->stride + x->column
                                  : map + x->offset * MAP_TOKENS + row * x->stride + x->column;
    for (uint32_t i = 0; i < x->width; i++)
        at[i] |= bit;
}

/* Does step `a`, on row `row_a`, write what `b` touches on row `row_b`? */
static bool disturbs(const struct teg_plan *plan, uint8_t *map, const struct teg_step *a, size_t row_a,
                     const struct teg_step *b, size_t row_b)
{
    const size_t n = (plan->row_floats + plan->vocab) * MAP_TOKENS;
    memset(map, 0, n);
    mark(map, plan, &a->out, row_a, 1);
    mark(map, plan, &b->a, row_b, 2);
    mark(map, plan, &b->b, row_b, 2);
    mark(map, plan, &b->residual, row_b, 2);
    mark(map, plan, &b->out, row_b, 2);
    for (size_t i = 0; i < n; i++)
        if (map[i] == 3)
            return true;
    return false;
}

/* Row stages run a slice of rows through all steps; free stages run everything at once. */
static void check_stages(const struct teg_plan *plan)
{
    uint8_t *const map = malloc((plan->row_floats + plan->vocab) * MAP_TOKENS);
    uint32_t at = 0;
    for (uint32_t s = 0; s < plan->n_stages; s++) {
        const struct teg_stage *const stage = &plan->stages[s];
        assert_int_equal(stage->first_step, at);
        assert_true(stage->n_steps > 0);
        at += stage->n_steps;
        for (uint32_t i = 0; i < stage->n_steps; i++) {
            const struct teg_step *const a = &plan->steps[stage->first_step + i];
            assert_int_equal(stage->rows, a->kind != TEG_STEP_LINEAR && a->kind != TEG_STEP_ATTENTION);
            assert_true(a->kind != TEG_STEP_ATTENTION || stage->n_steps == 1);
            for (uint32_t k = 0; k < stage->n_steps; k++)
                for (size_t row_a = 0; row_a < MAP_TOKENS; row_a++)
                    for (size_t row_b = 0; row_b < MAP_TOKENS; row_b++) {
                        const bool apart = stage->rows ? row_a != row_b : i != k;
                        const struct teg_step *const b = &plan->steps[stage->first_step + k];
                        if (apart)
                            assert_false(disturbs(plan, map, a, row_a, b, row_b));
                    }
        }
    }
    assert_int_equal(at, plan->n_steps);
    assert_int_equal(plan->stages[plan->first_head_stage].first_step, plan->first_head_step);
    free(map);
}

/* ---- running ---- */

struct run {
    const struct teg_graph *graph;
    const struct naive *naive;
    size_t n_values, n_wrong;
    char wrong[64];
};

static void compare_value(void *ctx, const char *name, size_t first_row, size_t n_rows, size_t width, const float *data)
{
    struct run *const r = ctx;
    teg_value_id id = 0;
    while (id < r->graph->n_values && !(r->graph->values[id].kind == TEG_VALUE_RESULT && r->graph->values[id].name &&
                                        strcmp(r->graph->values[id].name, name) == 0))
        id++;
    assert_true(id < r->graph->n_values);
    assert_int_equal(teg_value_width(&r->graph->values[id]), width);
    r->n_values++;
    if (memcmp(data, r->naive->values[id] + first_row * width, n_rows * width * sizeof *data) != 0 && !r->n_wrong++)
        (void)snprintf(r->wrong, sizeof r->wrong, "%s, rows from %zu", name, first_row);
}

static float *poisoned(size_t n_floats)
{
    float *const p = naive_alloc(n_floats * sizeof *p);
    memset(p, 0xff, n_floats * sizeof *p); /* NaN */
    return p;
}

/* Logits of the chunk, `step` rows at a time, against the naive ones. */
static void compare_logits(struct teg_pass *p, const struct naive *n, size_t first, size_t step, struct run *run)
{
    const size_t V = p->plan->vocab;
    const float *const expected = n->values[n->graph->logits];
    for (size_t row = 0; row < p->n_tokens; row += step) {
        const size_t rows = step < p->n_tokens - row ? step : p->n_tokens - row;
        memset(p->logits, 0xff, p->plan->head_rows * V * sizeof(float));
        assert_true(teg_pass_head(p, row, rows));
        if (memcmp(p->logits, expected + (first + row) * V, rows * V * sizeof(float)) != 0 && !run->n_wrong++)
            (void)snprintf(run->wrong, sizeof run->wrong, "logits, rows from %zu", first + row);
    }
}

/* Runs the plan over the ids in chunks and compares all logits and all named values, or, where the first chunk is to be
 * cut into lanes, logits only, for who looks at values gets no lanes. Returns what differed first. */
static const char *run_plan(const struct teg_graph *g, const struct teg_plan *plan, const struct naive *n, size_t chunk,
                            size_t n_threads, size_t head_step, bool lanes)
{
    static struct run run;
    atomic_bool stop = false;
    struct teg_pool *pool = NULL;
    const size_t n_blocks = (n->n_tokens + TEG_TILE_TOKENS - 1) / TEG_TILE_TOKENS;
    void **const blocks = calloc(n_blocks, sizeof *blocks);
    for (size_t i = 0; i < n_blocks; i++)
        blocks[i] = poisoned(plan->kv_block_elements);
    run = (struct run){.graph = g, .naive = n};
    assert_int_equal(teg_pool_new(n_threads, NULL, &pool, NULL), TEG_OK);
    struct teg_pass p = {.plan = plan,
                         .pool = pool,
                         .activations = poisoned(plan->row_floats * chunk),
                         .max_tokens = chunk,
                         .logits = poisoned((size_t)plan->head_rows * plan->vocab),
                         .scratch_stride = (plan->worker_floats + 15) / 16 * 16,
                         .kv_type = TEG_KV_F32,
                         .long_context = n->long_context,
                         .blocks = blocks,
                         .stop = &stop,
                         .on_value = lanes ? NULL : compare_value,
                         .on_value_ctx = &run};
    p.scratch = poisoned(p.scratch_stride * n_threads);
    for (size_t at = 0; at < n->n_tokens; at += chunk) {
        p.ids = n->ids + at;
        p.n_tokens = chunk < n->n_tokens - at ? chunk : n->n_tokens - at;
        p.first_position = p.chunk_row = at;
        memset(p.activations, 0xff, plan->row_floats * chunk * sizeof(float));
        assert_true(teg_pass_body(&p));
        if (at == 0)
            assert_int_equal(p.lane_rows < p.n_tokens, lanes);
        compare_logits(&p, n, at, head_step < plan->head_rows ? head_step : plan->head_rows, &run);
    }
    for (size_t i = 0; i < n_blocks; i++)
        free(blocks[i]);
    free(blocks);
    free(p.activations);
    free(p.logits);
    free(p.scratch);
    teg_pool_free(pool);
    return run.n_wrong ? run.wrong : NULL;
}

static void no_difference(const char *difference, const struct teg_graph *g, const struct teg_plan *plan)
{
    struct teg_buf out = {0};
    if (!difference)
        return;
    teg_graph_dump(g, &out);
    teg_plan_dump(plan, g, &out);
    print_error("%.*s", (int)out.n_bytes, out.bytes);
    teg_buf_free(&out);
    fail_msg("plan and graph differ: %s", difference);
}

/* ---- tiny models ---- */

#define LANES_TOKENS 193 /* the least that two threads share */
#define MODEL_TOKENS 240

static void check_model(const char *path, const struct teg_cpu *cpu)
{
    struct teg_error err = {0};
    struct teg_source *source = NULL;
    struct teg_graph *g = NULL;
    struct teg_plan *plan = NULL;
    struct teg_hparams hp;
    struct teg_arena arena;
    int32_t ids[MODEL_TOKENS];
    teg_arena_init(&arena, NULL);
    if (teg_source_open(path, true, NULL, &source, &err) != TEG_OK ||
        teg_build(source, &arena, &g, &hp, &err) != TEG_OK || teg_plan_new(g, cpu, NULL, &arena, &plan, &err) != TEG_OK)
        fail_msg("%s", err.message);
    check_stages(plan);
    for (size_t i = 0; i < MODEL_TOKENS; i++)
        ids[i] = (int32_t)random_below(plan->vocab);
    struct naive n = naive_run(g, &plan->kernels, ids, MODEL_TOKENS, false);
    const float *const logits = n.values[g->logits];
    for (size_t i = 0; i < (size_t)MODEL_TOKENS * plan->vocab; i++)
        assert_true(isfinite(logits[i]));
    no_difference(run_plan(g, plan, &n, MODEL_TOKENS, 1, 32, false), g, plan);
    no_difference(run_plan(g, plan, &n, 27, 2, 5, false), g, plan);
    no_difference(run_plan(g, plan, &n, 1, 1, 1, false), g, plan);
    no_difference(run_plan(g, plan, &n, LANES_TOKENS, 2, 7, true), g, plan);
    naive_free(&n);
    teg_source_free(source);
    teg_arena_free(&arena);
}

static void test_models(void **state)
{
    (void)state;
    static const char directory[] = TEST_DATA "/tiny";
    struct teg_cpu cpu, base = {.has = {[TEG_ISA_BASE] = true}};
    DIR *const d = opendir(directory);
    size_t n_models = 0;
    teg_cpu_detect(&cpu);
    assert_non_null(d);
    for (const struct dirent *e; (e = readdir(d));) {
        char path[512];
        const size_t n = strlen(e->d_name);
        if (n < 5 || strcmp(e->d_name + n - 5, ".gguf") != 0)
            continue;
        (void)snprintf(path, sizeof path, "%s/%s", directory, e->d_name);
        check_model(path, &cpu);
        check_model(path, &base);
        n_models++;
    }
    (void)closedir(d);
    assert_true(n_models >= 7);
}

/* ---- random graphs ---- */

/* A graph in the making: the values it may use next, and how to make more. Widths are multiples of 8. */
struct maker {
    struct teg_arena *arena;
    struct teg_graph *g;
    teg_value_id rows[200];
    uint32_t n_rows;
    teg_value_id frequencies[4], second[4]; /* none, none, long ones, tables of cos and sin */
    uint32_t n_states;
    char *names;
};

static teg_value_id random_constant(struct maker *m, const char *name, uint64_t rows, uint64_t columns)
{
    const size_t n = (size_t)(rows ? rows * columns : columns);
    float *const data = teg_arena_alloc(m->arena, n * sizeof *data);
    teg_value_id id = TEG_NO_VALUE;
    for (size_t i = 0; i < n; i++)
        data[i] = random_float() * (rows ? 0.3f : 1);
    assert_int_equal(teg_graph_const(m->g, name, TEG_DTYPE_F32, rows ? 2 : 1,
                                     (const uint64_t[]){rows ? rows : columns, columns}, data, n * sizeof *data, &id,
                                     NULL),
                     TEG_OK);
    return id;
}

static uint32_t width_of(const struct maker *m, teg_value_id id)
{
    return (uint32_t)teg_value_width(&m->g->values[id]);
}

/* Recent values are likelier, so chains grow; old ones come back, so lifetimes do. */
static teg_value_id pick(const struct maker *m)
{
    const uint32_t recent = m->n_rows < 4 ? m->n_rows : 4;
    return random_below(3) ? m->rows[m->n_rows - 1 - random_below(recent)] : m->rows[random_below(m->n_rows)];
}

/* A value of that width, made if there is none. */
static teg_value_id pick_width(struct maker *m, uint32_t width);

static void add(struct maker *m, struct teg_op *op)
{
    teg_value_id id = TEG_NO_VALUE;
    struct teg_error err = {0};
    if (teg_graph_op(m->g, op, &id, &err) != TEG_OK)
        fail_msg("%s", err.message);
    if (id == TEG_NO_VALUE)
        return;
    m->rows[m->n_rows++] = id;
    if (random_below(4) == 0)
        m->g->values[id].name = teg_arena_printf(m->arena, "v%u", id);
}

static void add_linear(struct maker *m, teg_value_id x, uint32_t width)
{
    struct teg_op op = {.kind = TEG_OP_LINEAR, .n_inputs = 2, .inputs = {x, 0, 0}};
    op.inputs[1] = random_constant(m, "w", width, width_of(m, x));
    if (random_below(2)) {
        op.inputs[2] = random_constant(m, "bias", 0, width);
        op.n_inputs = 3;
    }
    add(m, &op);
}

static teg_value_id pick_width(struct maker *m, uint32_t width)
{
    for (uint32_t tries = 0; tries < 20; tries++) {
        const teg_value_id id = pick(m);
        if (width_of(m, id) == width)
            return id;
        if (width_of(m, id) > width && random_below(4) == 0) {
            struct teg_op op = {.kind = TEG_OP_SLICE, .n_inputs = 1, .inputs = {id, 0, 0}};
            op.attr.slice.begin = random_below(width_of(m, id) - width + 1);
            op.attr.slice.width = width;
            add(m, &op);
            return m->rows[m->n_rows - 1];
        }
    }
    add_linear(m, pick(m), width);
    return m->rows[m->n_rows - 1];
}

static uint32_t random_width(void)
{
    return 8 * (1 + random_below(6));
}

static void add_attention(struct maker *m)
{
    const uint32_t groups = 1 + random_below(2), heads = groups * (1 + random_below(3));
    teg_value_id state;
    assert_int_equal(teg_graph_state(m->g, teg_arena_printf(m->arena, "kv.%u", m->n_states++), groups, 8, &state, NULL),
                     TEG_OK);
    struct teg_op op = {.kind = TEG_OP_KV_APPEND, .n_inputs = 3};
    op.attr.attention.n_kv_heads = groups;
    op.attr.attention.head_width = 8;
    op.inputs[0] = pick_width(m, groups * 8);
    op.inputs[1] = pick_width(m, groups * 8);
    op.inputs[2] = state;
    add(m, &op);
    op.kind = TEG_OP_ATTENTION;
    op.n_inputs = 2;
    op.inputs[0] = pick_width(m, heads * 8);
    op.inputs[1] = state;
    if (random_below(3) == 0)
        op.inputs[op.n_inputs++] = random_constant(m, "sinks", 0, heads);
    op.attr.attention.n_heads = heads;
    op.attr.attention.scale = 0.35f;
    op.attr.attention.window = random_below(2) ? 1 + random_below(10) : 0;
    op.attr.attention.softcap = random_below(3) ? 0 : 5;
    add(m, &op);
}

static void add_rope(struct maker *m, teg_value_id x)
{
    const uint32_t form = random_below(4);
    struct teg_op op = {.kind = TEG_OP_ROPE, .n_inputs = 2, .inputs = {x, m->frequencies[form], m->second[form]}};
    op.n_inputs += form >= 2;
    op.attr.rope.head_width = 8;
    op.attr.rope.interleaved = random_below(2);
    op.attr.rope.magnitude = form == 3 || random_below(2) ? 1 : 1.25f;
    add(m, &op);
}

static teg_value_id add_slice(struct maker *m, teg_value_id x)
{
    const uint32_t width = width_of(m, x);
    struct teg_op op = {.kind = TEG_OP_SLICE, .n_inputs = 1, .inputs = {x, 0, 0}};
    op.attr.slice.width = width > 8 ? 8 * (1 + random_below(width / 8)) : width;
    op.attr.slice.begin = random_below(width - op.attr.slice.width + 1);
    add(m, &op);
    return m->rows[m->n_rows - 1];
}

/* A slice of a slice, overwritten, while others may still need columns of the whole. */
static void add_nested_slices(struct maker *m)
{
    const teg_value_id whole = pick(m);
    (void)add_slice(m, whole);
    const teg_value_id inner = add_slice(m, add_slice(m, whole));
    struct teg_op op = {.kind = TEG_OP_SCALE, .n_inputs = 1, .inputs = {inner, 0, 0}};
    op.attr.scale.scale = 1.5f;
    add(m, &op);
    add_linear(m, whole, 16);
}

static void add_random(struct maker *m)
{
    const teg_value_id x = pick(m);
    const uint32_t width = width_of(m, x);
    struct teg_op op = {.n_inputs = 1, .inputs = {x, 0, 0}};
    switch (random_below(10)) {
    case 0:
        op.kind = TEG_OP_RMS_NORM;
        op.n_inputs = 2;
        op.inputs[1] = random_constant(m, "norm", 0, random_below(2) && width % 8 == 0 ? 8 : width);
        op.attr.norm.eps = 1e-5f;
        op.attr.norm.weight_offset = random_below(2) ? 1 : 0;
        op.attr.norm.by_max = random_below(3) == 0;
        add(m, &op);
        break;
    case 1:
        add_linear(m, x, random_width());
        break;
    case 2: /* as a builder writes it: may be fused */
        add_linear(m, pick(m), width);
        op.kind = TEG_OP_ADD;
        op.n_inputs = 2;
        op.inputs[random_below(2)] = m->rows[m->n_rows - 1];
        if (op.inputs[0] != x)
            op.inputs[1] = x;
        add(m, &op);
        break;
    case 3:
        if (width % 8 == 0)
            add_rope(m, x);
        break;
    case 4:
        op.kind = random_below(2) ? TEG_OP_GLU : TEG_OP_ADD;
        op.n_inputs = 2;
        op.inputs[1] = pick_width(m, width);
        if (op.kind == TEG_OP_GLU)
            op.attr.activation = (enum teg_activation)random_below(3);
        add(m, &op);
        break;
    case 5:
        op.kind = TEG_OP_SCALE;
        op.attr.scale.scale = 0.75f;
        add(m, &op);
        break;
    case 6:
        op.kind = TEG_OP_SOFTCAP;
        op.attr.cap = 3;
        add(m, &op);
        break;
    case 7:
        (void)add_slice(m, x);
        break;
    case 8:
        add_nested_slices(m);
        break;
    default:
        add_attention(m);
        break;
    }
}

static struct teg_graph *random_graph(struct teg_arena *arena)
{
    struct maker m = {.arena = arena};
    assert_int_equal(teg_graph_new(arena, &m.g, NULL), TEG_OK);
    for (int i = 0; i < 3; i++)
        m.frequencies[i] = random_constant(&m, "f", 0, i == 1 ? 2 : 4);
    m.second[2] = random_constant(&m, "long", 0, 4);
    m.frequencies[3] = random_constant(&m, "cos", 300, 3);
    m.second[3] = random_constant(&m, "sin", 300, 3);
    struct teg_op op = {.kind = TEG_OP_EMBEDDING, .n_inputs = 2, .inputs = {m.g->tokens, 0, 0}};
    op.inputs[1] = random_constant(&m, "table", 20, random_width());
    op.attr.scale.scale = random_below(2) ? 1 : 2;
    add(&m, &op);
    const uint32_t n_ops = 2 + random_below(28);
    for (uint32_t i = 0; i < n_ops; i++)
        add_random(&m);
    if (random_below(2)) {
        const teg_value_id x = pick(&m);
        op = (struct teg_op){.kind = TEG_OP_RMS_NORM, .n_inputs = 2, .inputs = {x, 0, 0}};
        op.inputs[1] = random_constant(&m, "norm", 0, width_of(&m, x));
        op.attr.norm.eps = 1e-5f;
        add(&m, &op);
    }
    const teg_value_id x = random_below(3) ? m.rows[m.n_rows - 1] : pick(&m);
    op = (struct teg_op){.kind = TEG_OP_LM_HEAD, .n_inputs = 2, .inputs = {x, 0, 0}};
    op.inputs[1] = random_constant(&m, "head", 30, width_of(&m, x));
    assert_int_equal(teg_graph_op(m.g, &op, &m.g->logits, NULL), TEG_OK);
    for (uint32_t n = random_below(3); n > 0; n--) {
        op = (struct teg_op){.kind = n == 1 ? TEG_OP_SOFTCAP : TEG_OP_SCALE, .n_inputs = 1, .inputs = {m.g->logits}};
        op.attr.cap = 2; /* and the scale: one union */
        assert_int_equal(teg_graph_op(m.g, &op, &m.g->logits, NULL), TEG_OK);
    }
    assert_int_equal(teg_graph_verify(m.g, NULL), TEG_OK);
    return m.g;
}

#define GRAPH_TOKENS 23

static void test_random_graphs(void **state)
{
    (void)state;
    struct teg_cpu cpu;
    size_t n_steps = 0;
    teg_cpu_detect(&cpu);
    for (int round = 0; round < 600; round++) {
        struct teg_arena arena;
        struct teg_plan *plan = NULL;
        int32_t ids[GRAPH_TOKENS];
        teg_arena_init(&arena, NULL);
        const struct teg_graph *const g = random_graph(&arena);
        assert_int_equal(teg_plan_new(g, &cpu, NULL, &arena, &plan, NULL), TEG_OK);
        for (size_t i = 0; i < GRAPH_TOKENS; i++)
            ids[i] = (int32_t)random_below(20);
        check_stages(plan);
        struct naive n = naive_run(g, &plan->kernels, ids, GRAPH_TOKENS, round % 2);
        no_difference(run_plan(g, plan, &n, GRAPH_TOKENS, 1, 4, false), g, plan);
        no_difference(run_plan(g, plan, &n, 9, 2, 2, false), g, plan);
        n_steps += plan->n_steps;
        naive_free(&n);
        teg_arena_free(&arena);
    }
    print_message("# %zu steps in 600 random graphs\n", n_steps);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_places), cmocka_unit_test(test_models),
                                       cmocka_unit_test(test_random_graphs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
