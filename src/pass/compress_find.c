/* pass/compress_find.c: which constants are weights, and along which axis their channels lie.
 *
 * One walk over a function's blocks looks at every use of every constant. All uses must agree; one that is no weight's
 * makes the constant no weight. The table below is the whole knowledge of ops. */
#include "pass/compress_int.h"

#include <string.h>

#include "mil/type.h"

enum where { FIRST, SECOND, MATMUL_X, MATMUL_Y, TABLE };

static const struct {
    const char *op, *arg;
    enum where where;
} weight_args[] = {
    {"linear", "weight", FIRST},       {"conv", "weight", FIRST},    {"conv_transpose", "weight", SECOND},
    {"matmul", "x", MATMUL_X},         {"matmul", "y", MATMUL_Y},    {"gather", "x", TABLE},
    {"lstm", "weight_ih", FIRST},      {"lstm", "weight_hh", FIRST}, {"lstm", "weight_ih_back", FIRST},
    {"lstm", "weight_hh_back", FIRST}, {"gru", "weight_ih", FIRST},  {"gru", "weight_hh", FIRST},
    {"rnn", "weight_ih", FIRST},       {"rnn", "weight_hh", FIRST},
};

struct finder {
    const struct teg_mil_program *p;
    struct usage *usage;
    const struct teg_mil_block *block; /* the function's */
    bool again;
};

static const struct teg_mil_var *arg_var(const struct finder *f, const struct teg_mil_op *op, const char *name)
{
    for (size_t i = 0; i < op->n_args; i++)
        if (strcmp(op->args[i].name, name) == 0 && op->args[i].n_vars == 1)
            return &f->p->vars[op->args[i].vars[0]];
    return NULL;
}

static bool flag(const struct finder *f, const struct teg_mil_op *op, const char *name)
{
    const struct teg_mil_var *const v = arg_var(f, op, name);
    return v && v->constant && v->constant->n_bytes && v->constant->bytes && v->constant->bytes[0];
}

/* Axes of a weight in that place; false: none that is known. */
static bool find_axes(const struct finder *f, const struct teg_mil_op *op, enum where where, uint32_t rank,
                      struct usage *u)
{
    uint32_t last = rank - 1, before = rank - 2;
    u->axis = where == SECOND ? 1 : 0;
    u->along = where == SECOND ? 0 : 1;
    if (where == MATMUL_Y || where == MATMUL_X) {
        const bool transposed = flag(f, op, where == MATMUL_Y ? "transpose_y" : "transpose_x");
        u->axis = (where == MATMUL_Y) != transposed ? last : before;
        u->along = u->axis == last ? before : last;
    }
    if (where == TABLE) {
        const struct teg_mil_var *const axis = arg_var(f, op, "axis");
        int32_t a = 0;
        if (axis && axis->constant && axis->constant->bytes && axis->constant->n_bytes == 4)
            memcpy(&a, axis->constant->bytes, 4);
        u->embedding = true;
        return rank == 2 && a == 0;
    }
    return true;
}

static bool is_encoded(const struct finder *f, teg_mil_var_id id)
{
    const struct source s = {f->p, f->block, id};
    return teg_source_maker(&s) != NULL;
}

/* Constants of floats, dense or encoded. */
static bool is_float(const struct finder *f, teg_mil_var_id id)
{
    const struct teg_mil_var *const v = &f->p->vars[id];
    const bool is_known = v->constant ? v->constant->bytes != NULL : is_encoded(f, id);
    return is_known && v->type.kind == TEG_MIL_TENSOR &&
           (v->type.dtype == TEG_MIL_FP16 || v->type.dtype == TEG_MIL_FP32);
}

static struct usage use_of(const struct finder *f, const struct teg_mil_op *op, const char *arg, uint32_t rank)
{
    struct usage u = {.role = ROLE_OTHER, .op = op, .why = "not used as a weight"};
    for (size_t i = 0; i < sizeof weight_args / sizeof *weight_args; i++)
        if (strcmp(op->type, weight_args[i].op) == 0 && strcmp(arg, weight_args[i].arg) == 0 &&
            find_axes(f, op, weight_args[i].where, rank, &u)) {
            u.role = ROLE_WEIGHT;
            u.why = NULL;
        }
    return u;
}

static void add_use(struct usage *to, const struct usage *u)
{
    if (to->role == ROLE_NONE) {
        *to = *u;
    } else if (to->role == ROLE_WEIGHT && u->role == ROLE_WEIGHT) {
        to->embedding |= u->embedding;
        if (to->axis != u->axis || to->along != u->along)
            *to = (struct usage){.role = ROLE_SEVERAL, .op = to->op, .why = "its uses want different channels"};
    } else if (u->role == ROLE_OTHER) {
        *to = *u;
    }
}

static struct usage use_of_arg(const struct finder *f, const struct teg_mil_op *op, const char *arg, teg_mil_var_id id)
{
    struct usage u = use_of(f, op, arg, (uint32_t)f->p->vars[id].type.rank);
    if (u.role == ROLE_WEIGHT && !f->again && !f->p->vars[id].constant)
        u = (struct usage){.role = ROLE_OTHER, .op = op, .why = "encoded already (--again encodes it anew)"};
    return u;
}

/* Blocks nest TEG_MIL_MAX_BLOCK_DEPTH deep at most. */
static void walk(struct finder *f, const struct teg_mil_block *block)
{
    for (size_t i = 0; i < block->n_ops; i++) {
        const struct teg_mil_op *const op = &block->ops[i];
        const bool is_form = strncmp(op->type, "constexpr_", 10) == 0; /* parts of a weight, not weights */
        for (size_t a = 0; a < op->n_args && !is_form; a++)
            for (size_t k = 0; k < op->args[a].n_vars; k++) {
                const teg_mil_var_id id = op->args[a].vars[k];
                if (!is_float(f, id) || f->p->vars[id].type.rank < 2)
                    continue;
                const struct usage u = use_of_arg(f, op, op->args[a].name, id);
                add_use(&f->usage[id], &u);
            }
        for (size_t b = 0; b < op->n_blocks; b++)
            walk(f, &op->blocks[b]);
    }
    for (size_t i = 0; i < block->n_outputs; i++)
        if (is_float(f, block->outputs[i]))
            f->usage[block->outputs[i]] = (struct usage){.role = ROLE_OTHER, .why = "an output"};
}

/* ---- the head ---- */

/* The weight that an op multiplies by, or NO_VAR. */
static teg_mil_var_id weight_of(const struct finder *f, const struct teg_mil_op *op)
{
    for (size_t a = 0; a < op->n_args; a++)
        for (size_t i = 0; i < sizeof weight_args / sizeof *weight_args; i++)
            if (strcmp(op->type, weight_args[i].op) == 0 && strcmp(op->args[a].name, weight_args[i].arg) == 0) {
                const teg_mil_var_id id = op->args[a].vars[0];
                if (is_float(f, id) && f->p->vars[id].type.rank >= 2)
                    return id;
            }
    return TEG_MIL_NO_VAR;
}

/* From the outputs back to the first weights; a head has more rows than columns, which tells it from the last product
 * of a layer whose stream is an output. Ops are in order, so one pass backwards sees all. */
static enum teg_status find_heads(const struct finder *f, const struct teg_mil_function *function,
                                  struct teg_error *err)
{
    struct teg_arena scratch;
    teg_arena_init(&scratch, f->p->arena.allocator);
    bool *const wanted = teg_arena_array(&scratch, f->p->n_vars, sizeof *wanted);
    if (!wanted)
        return teg_base_fail_memory(err, "a program", f->p->n_vars);
    for (size_t i = 0; i < function->block.n_outputs; i++)
        wanted[function->block.outputs[i]] = true;
    for (size_t i = function->block.n_ops; i-- > 0;) {
        const struct teg_mil_op *const op = &function->block.ops[i];
        bool is_wanted = false;
        for (size_t k = 0; k < op->n_outputs; k++)
            is_wanted |= wanted[op->outputs[k]];
        if (!is_wanted)
            continue;
        const teg_mil_var_id weight = weight_of(f, op);
        if (weight != TEG_MIL_NO_VAR) {
            const struct teg_mil_type *const t = &f->p->vars[weight].type;
            struct usage *const u = &f->usage[weight];
            u->head |=
                u->role == ROLE_WEIGHT && strcmp(op->type, "gather") != 0 && t->dims[u->axis] > t->dims[u->along];
            continue;
        }
        for (size_t a = 0; a < op->n_args; a++)
            for (size_t k = 0; k < op->args[a].n_vars; k++)
                wanted[op->args[a].vars[k]] = true;
    }
    teg_arena_free(&scratch);
    return TEG_OK;
}

/* ---- tables ---- */

/* The first, the middle and the last row hold two numbers at most. */
static bool looks_like_mask(const struct teg_mil_const *c)
{
    if (!c) /* encoded: who did that took it for a weight */
        return false;
    const size_t rows = (size_t)c->type.dims[0], columns = (size_t)c->type.dims[1];
    const size_t sample[] = {0, rows / 2, rows - 1};
    for (size_t s = 0; s < 3; s++) {
        const size_t at = sample[s] * columns;
        const float first = teg_dense_element(c->type.dtype, c->bytes, at);
        float second = first;
        for (size_t i = 1; i < columns; i++) {
            const float x = teg_dense_element(c->type.dtype, c->bytes, at + i);
            if (x != first && second == first)
                second = x;
            if (x != first && x != second)
                return false;
        }
    }
    return true;
}

static bool is_view(const char *type)
{
    static const char *const views[] = {"reshape",        "expand_dims",   "squeeze", "transpose", "cast",
                                        "slice_by_index", "slice_by_size", "tile",    "identity",  "split"};
    for (size_t i = 0; i < sizeof views / sizeof *views; i++)
        if (strcmp(type, views[i]) == 0)
            return true;
    return false;
}

enum { FROM_TABLE = 1, IS_ROWS = 2 }; /* computed from it; nothing but its rows, moved about */

static int marks_of(const struct teg_mil_op *op, const uint8_t *marks)
{
    int m = 0;
    for (size_t a = 0; a < op->n_args; a++)
        for (size_t k = 0; k < op->args[a].n_vars; k++)
            m |= marks[op->args[a].vars[k]];
    return m;
}

/* Whether a product has rows of the table on one side and on the other what is computed without it. */
static bool multiplies_others(const struct finder *f, const struct teg_mil_op *op, const uint8_t *marks)
{
    bool rows = false, other = false;
    if (strcmp(op->type, "mul") != 0)
        return false;
    for (size_t a = 0; a < op->n_args; a++) {
        const teg_mil_var_id id = op->args[a].vars[0];
        rows |= (marks[id] & IS_ROWS) != 0;
        other |= !marks[id] && !f->p->vars[id].constant;
    }
    return rows && other;
}

static bool turns_others(const struct finder *f, const struct teg_mil_block *block, const struct teg_mil_op *gather,
                         uint8_t *marks)
{
    memset(marks, 0, f->p->n_vars);
    for (size_t i = 0; i < block->n_ops; i++) {
        const struct teg_mil_op *const op = &block->ops[i];
        int m = op == gather ? FROM_TABLE | IS_ROWS : marks_of(op, marks);
        if (op != gather && multiplies_others(f, op, marks))
            return true;
        if (op != gather && !is_view(op->type))
            m &= ~IS_ROWS;
        for (size_t k = 0; k < op->n_outputs; k++)
            marks[op->outputs[k]] = (uint8_t)m;
    }
    return false;
}

static enum teg_status rule_out_tables(struct finder *f, const struct teg_mil_function *function, struct teg_error *err)
{
    struct teg_arena scratch;
    teg_arena_init(&scratch, f->p->arena.allocator);
    uint8_t *const marks = teg_arena_alloc(&scratch, f->p->n_vars);
    if (!marks)
        return teg_base_fail_memory(err, "a program", f->p->n_vars);
    for (size_t i = 0; i < f->p->n_vars; i++) {
        struct usage *const u = &f->usage[i];
        if (u->role != ROLE_WEIGHT || !u->embedding)
            continue;
        if (f->p->vars[i].type.dims[0] < 1 || f->p->vars[i].type.dims[1] < 1 || looks_like_mask(f->p->vars[i].constant))
            *u = (struct usage){.role = ROLE_OTHER, .op = u->op, .why = "a table of two numbers: a mask"};
        else if (strcmp(u->op->type, "gather") == 0 && turns_others(f, &function->block, u->op, marks))
            *u = (struct usage){.role = ROLE_OTHER, .op = u->op, .why = "a table that turns other values: RoPE"};
    }
    teg_arena_free(&scratch);
    return TEG_OK;
}

enum teg_status teg_compress_find(const struct teg_mil_program *program, const struct teg_mil_function *function,
                                  bool again, struct usage *usage, struct teg_error *err)
{
    struct finder f = {program, usage, &function->block, again};
    walk(&f, &function->block);
    TRY(find_heads(&f, function, err));
    return rule_out_tables(&f, function, err);
}
