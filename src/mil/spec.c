/* mil/spec.c: a serialized Core ML model (protobuf) into a program.
 *
 *   Model      1 specificationVersion   2 description   502 mlProgram   (other numbers: other model types)
 *   Program    1 version   2 functions {1 key, 2 Function}   3 docString   4 attributes
 *   Function   1 inputs   2 opset   3 block_specializations {1 key, 2 Block}   4 attributes
 *   Block      1 inputs   2 outputs   3 operations   4 attributes
 *   Operation  1 type   2 inputs {1 key, 2 Argument}   3 outputs   4 blocks   5 attributes {1 key, 2 Value}
 *   Argument   1 arguments {1 name | 2 value}           NamedValueType  1 name, 2 type
 *
 * Opsets up to CoreML7 give the parameters of constexpr ops as attributes, later ones as inputs; both become args.
 * Protobuf maps have no order: functions are sorted by name, so that a model reads the same every time. */
#include "mil/impl.h"

#include <stdio.h>

struct msg_pair {
    struct teg_span first, second;
};
static const struct teg_wire_row pair_rows[] = {
    {1, TEG_WIRE_SPAN, offsetof(struct msg_pair, first)},
    {2, TEG_WIRE_SPAN, offsetof(struct msg_pair, second)},
};

static bool span_is(struct teg_span span, const char *text)
{
    return span.n_bytes == strlen(text) && memcmp(span.bytes, text, span.n_bytes) == 0;
}

/* ---- operations ---- */

struct msg_operation {
    struct teg_span type;
    size_t n_inputs, n_outputs, n_blocks, n_attributes;
};
static const struct teg_wire_row operation_rows[] = {
    {1, TEG_WIRE_SPAN, offsetof(struct msg_operation, type)},
    {2, TEG_WIRE_COUNT, offsetof(struct msg_operation, n_inputs)},
    {3, TEG_WIRE_COUNT, offsetof(struct msg_operation, n_outputs)},
    {4, TEG_WIRE_COUNT, offsetof(struct msg_operation, n_blocks)},
    {5, TEG_WIRE_COUNT, offsetof(struct msg_operation, n_attributes)},
};
struct msg_count {
    size_t n;
};
static const struct teg_wire_row argument_rows[] = {{1, TEG_WIRE_COUNT, offsetof(struct msg_count, n)}};

static enum teg_status inline_value(struct teg_mil_reader *r, struct teg_span message, teg_mil_var_id *id)
{
    struct teg_mil_const *const value = teg_arena_array(r->arena, 1, sizeof *value);
    if (!value)
        return teg_mil_no_memory(r, sizeof *value);
    TRY(teg_mil_spec_value(r, message, 1, value));
    return teg_mil_inline(r, value, id);
}

static enum teg_status read_binding(struct teg_mil_reader *r, struct teg_span message, teg_mil_var_id *id)
{
    struct msg_pair m = {0};
    MIL_READ(r, message, pair_rows, &m, "a Binding");
    if (!m.first.bytes == !m.second.bytes)
        MIL_FAIL(r, TEG_ERR_FORMAT, message.bytes,
                 "expected an argument to be a name or a value, found %s; export the model again",
                 m.first.bytes ? "both" : "neither");
    return m.first.bytes ? teg_mil_use(r, m.first, id) : inline_value(r, m.second, id);
}

static enum teg_status read_argument(struct teg_mil_reader *r, struct teg_span message, struct teg_mil_arg *arg)
{
    struct msg_count m = {0};
    MIL_READ(r, message, argument_rows, &m, "an Argument");
    teg_mil_var_id *const vars = teg_arena_array(r->arena, m.n, sizeof *vars);
    if (!vars)
        return teg_mil_no_memory(r, m.n * sizeof *vars);
    struct teg_wire_iter iter = teg_wire_iter_of(message, 1);
    struct teg_wire_field f;
    for (size_t i = 0; i < m.n && teg_wire_each(&iter, &f); i++)
        TRY(read_binding(r, f.bytes, &vars[i]));
    arg->vars = vars;
    arg->n_vars = m.n;
    return TEG_OK;
}

static enum teg_status read_attribute(struct teg_mil_reader *r, struct teg_span message, struct teg_mil_arg *arg)
{
    teg_mil_var_id *const var = teg_arena_array(r->arena, 1, sizeof *var);
    if (!var)
        return teg_mil_no_memory(r, sizeof *var);
    arg->vars = var;
    arg->n_vars = 1;
    return inline_value(r, message, var);
}

/* The string of a name attribute. */
static enum teg_status read_name(struct teg_mil_reader *r, struct teg_span message, const char **name)
{
    struct teg_mil_const value = {0};
    TRY(teg_mil_spec_value(r, message, 1, &value));
    if (value.type.kind != TEG_MIL_TENSOR || value.type.dtype != TEG_MIL_STRING || value.type.rank)
        MIL_FAIL(r, TEG_ERR_FORMAT, message.bytes,
                 "expected the name of an op to be a string, found another type; export the model again");
    const struct teg_span text = {(const uint8_t *)value.strings->bytes, value.strings->n_bytes};
    if (!text.n_bytes)
        return TEG_OK;
    return teg_mil_intern(r, text, "the name of an op", name);
}

/* Inputs, then the attributes but the name: all are args. */
static enum teg_status read_args(struct teg_mil_reader *r, struct teg_span message, struct teg_mil_arg *args,
                                 struct teg_mil_op *op)
{
    struct teg_wire_iter iter = teg_wire_iter_of(message, 2);
    struct teg_wire_field f;
    while (teg_wire_each(&iter, &f)) {
        struct msg_pair m = {0};
        MIL_READ(r, f.bytes, pair_rows, &m, "an input of an op");
        TRY(teg_mil_intern(r, m.first, "the name of a parameter", &args[op->n_args].name));
        TRY(read_argument(r, m.second, &args[op->n_args++]));
    }
    iter = teg_wire_iter_of(message, 5);
    while (teg_wire_each(&iter, &f)) {
        struct msg_pair m = {0};
        MIL_READ(r, f.bytes, pair_rows, &m, "an attribute of an op");
        if (span_is(m.first, "name")) {
            TRY(read_name(r, m.second, &op->name));
            continue;
        }
        TRY(teg_mil_intern(r, m.first, "the name of an attribute", &args[op->n_args].name));
        TRY(read_attribute(r, m.second, &args[op->n_args++]));
    }
    return TEG_OK;
}

/* NamedValueType messages, field `number` of `message`, become variables. */
static enum teg_status read_definitions(struct teg_mil_reader *r, struct teg_span message, uint32_t number, size_t n,
                                        uint32_t op, const teg_mil_var_id **out)
{
    teg_mil_var_id *const ids = teg_arena_array(r->arena, n, sizeof *ids);
    if (!ids)
        return teg_mil_no_memory(r, n * sizeof *ids);
    struct teg_wire_iter iter = teg_wire_iter_of(message, number);
    struct teg_wire_field f;
    for (size_t i = 0; i < n && teg_wire_each(&iter, &f); i++) {
        struct msg_pair m = {0};
        struct teg_mil_type type;
        MIL_READ(r, f.bytes, pair_rows, &m, "a NamedValueType");
        TRY(teg_mil_spec_type(r, m.second, 1, &type));
        TRY(teg_mil_define(r, m.first, &type, op, &ids[i]));
    }
    *out = ids;
    return TEG_OK;
}

static enum teg_status read_const(struct teg_mil_reader *r, struct teg_span message, size_t n_outputs)
{
    struct teg_mil_const *const value = teg_arena_array(r->arena, 1, sizeof *value);
    struct teg_span val = {0};
    struct msg_pair m = {0};
    struct teg_mil_type type;
    struct teg_wire_field f;
    if (!value)
        return teg_mil_no_memory(r, sizeof *value);
    for (struct teg_wire_iter iter = teg_wire_iter_of(message, 5); teg_wire_each(&iter, &f);) {
        m = (struct msg_pair){0};
        MIL_READ(r, f.bytes, pair_rows, &m, "an attribute of an op");
        if (span_is(m.first, "val"))
            val = m.second;
    }
    if (!val.bytes || n_outputs != 1)
        MIL_FAIL(r, TEG_ERR_FORMAT, message.bytes,
                 "expected a const to have a val and one output, found %s and %zu; export the model again",
                 val.bytes ? "one" : "none", n_outputs);
    TRY(teg_mil_spec_value(r, val, 1, value));
    struct teg_wire_iter iter = teg_wire_iter_of(message, 3);
    (void)teg_wire_each(&iter, &f);
    m = (struct msg_pair){0};
    MIL_READ(r, f.bytes, pair_rows, &m, "a NamedValueType");
    TRY(teg_mil_spec_type(r, m.second, 1, &type));
    return teg_mil_define_const(r, m.first, &type, value);
}

static enum teg_status read_block(struct teg_mil_reader *r, struct teg_span message, int depth,
                                  struct teg_mil_block *block);

static enum teg_status read_blocks(struct teg_mil_reader *r, struct teg_span message, size_t n, int depth,
                                   struct teg_mil_op *op)
{
    struct teg_mil_block *const blocks = teg_arena_array(r->arena, n, sizeof *blocks);
    if (!blocks)
        return teg_mil_no_memory(r, n * sizeof *blocks);
    struct teg_wire_iter iter = teg_wire_iter_of(message, 4);
    struct teg_wire_field f;
    for (size_t i = 0; i < n && teg_wire_each(&iter, &f); i++) {
        const size_t mark = teg_mil_names_enter(&r->names);
        TRY(read_block(r, f.bytes, depth + 1, &blocks[i]));
        teg_mil_names_leave(&r->names, mark);
    }
    op->blocks = blocks;
    op->n_blocks = n;
    return TEG_OK;
}

/* Appends to the block, unless the op is a const. */
static enum teg_status read_operation(struct teg_mil_reader *r, struct teg_span message, int depth,
                                      struct teg_mil_op *ops, size_t *n_ops)
{
    struct msg_operation m = {0};
    MIL_READ(r, message, operation_rows, &m, "an Operation");
    if (span_is(m.type, "const"))
        return read_const(r, message, m.n_outputs);
    struct teg_mil_op *const op = &ops[*n_ops];
    struct teg_mil_arg *const args = teg_arena_array(r->arena, m.n_inputs + m.n_attributes, sizeof *args);
    if (!args)
        return teg_mil_no_memory(r, (m.n_inputs + m.n_attributes) * sizeof *args);
    op->name = "";
    TRY(teg_mil_intern(r, m.type, "an op type", &op->type));
    TRY(read_args(r, message, args, op));
    TRY(teg_mil_seal_op(r, op, args, message.bytes));
    if (m.n_blocks)
        TRY(read_blocks(r, message, m.n_blocks, depth, op));
    TRY(read_definitions(r, message, 3, m.n_outputs, (uint32_t)*n_ops, &op->outputs));
    op->n_outputs = m.n_outputs;
    ++*n_ops;
    return TEG_OK;
}

/* ---- blocks and functions ---- */

struct msg_block {
    size_t n_inputs, n_outputs, n_operations;
};
static const struct teg_wire_row block_rows[] = {
    {1, TEG_WIRE_COUNT, offsetof(struct msg_block, n_inputs)},
    {2, TEG_WIRE_COUNT, offsetof(struct msg_block, n_outputs)},
    {3, TEG_WIRE_COUNT, offsetof(struct msg_block, n_operations)},
};

static enum teg_status read_outputs(struct teg_mil_reader *r, struct teg_span message, size_t n,
                                    struct teg_mil_block *block)
{
    teg_mil_var_id *const ids = teg_arena_array(r->arena, n, sizeof *ids);
    if (!ids)
        return teg_mil_no_memory(r, n * sizeof *ids);
    struct teg_wire_iter iter = teg_wire_iter_of(message, 2);
    struct teg_wire_field f;
    for (size_t i = 0; i < n && teg_wire_each(&iter, &f); i++)
        TRY(teg_mil_use(r, f.bytes, &ids[i]));
    block->outputs = ids;
    block->n_outputs = n;
    return TEG_OK;
}

/* In a scope that the caller opened. A function's block has its inputs from the function. */
static enum teg_status read_block(struct teg_mil_reader *r, struct teg_span message, int depth,
                                  struct teg_mil_block *block)
{
    struct msg_block m = {0};
    if (depth > TEG_MIL_MAX_BLOCK_DEPTH)
        MIL_FAIL(r, TEG_ERR_FORMAT, message.bytes,
                 "expected blocks at most %d deep, found deeper ones; export the model "
                 "again",
                 TEG_MIL_MAX_BLOCK_DEPTH);
    MIL_READ(r, message, block_rows, &m, "a Block");
    if (m.n_operations >= UINT32_MAX)
        return teg_mil_no_memory(r, SIZE_MAX);
    if (depth > 0) {
        TRY(read_definitions(r, message, 1, m.n_inputs, UINT32_MAX, &block->inputs));
        block->n_inputs = m.n_inputs;
    }
    struct teg_mil_op *const ops = teg_arena_array(r->arena, m.n_operations, sizeof *ops);
    if (!ops)
        return teg_mil_no_memory(r, m.n_operations * sizeof *ops);
    struct teg_wire_iter iter = teg_wire_iter_of(message, 3);
    struct teg_wire_field f;
    while (teg_wire_each(&iter, &f))
        TRY(read_operation(r, f.bytes, depth, ops, &block->n_ops));
    block->ops = ops;
    return read_outputs(r, message, m.n_outputs, block);
}

struct msg_function {
    struct teg_span opset;
    size_t n_inputs;
};
static const struct teg_wire_row function_rows[] = {
    {1, TEG_WIRE_COUNT, offsetof(struct msg_function, n_inputs)},
    {2, TEG_WIRE_SPAN, offsetof(struct msg_function, opset)},
};

static enum teg_status find_specialization(struct teg_mil_reader *r, struct teg_span message, struct teg_span opset,
                                           struct teg_span *block)
{
    struct teg_wire_iter iter = teg_wire_iter_of(message, 3);
    struct teg_wire_field f;
    while (teg_wire_each(&iter, &f)) {
        struct msg_pair m = {0};
        MIL_READ(r, f.bytes, pair_rows, &m, "a block specialization");
        if (m.first.n_bytes == opset.n_bytes && memcmp(m.first.bytes, opset.bytes, opset.n_bytes) == 0) {
            *block = m.second;
            return TEG_OK;
        }
    }
    MIL_FAIL(r, TEG_ERR_FORMAT, message.bytes,
             "expected a block for the function's opset '%.*s', found none; export the model again", MIL_NAME(opset));
}

static enum teg_status read_function(struct teg_mil_reader *r, struct teg_span name, struct teg_span message,
                                     struct teg_mil_function *function)
{
    struct msg_function m = {0};
    struct teg_span block = {0};
    MIL_READ(r, message, function_rows, &m, "a Function");
    TRY(teg_mil_intern(r, name, "the name of a function", &function->name));
    if (!m.opset.bytes)
        m.opset = (struct teg_span){message.bytes, 0};
    TRY(teg_mil_opset(r, m.opset, false, &function->opset, &function->opset_name));
    TRY(find_specialization(r, message, m.opset, &block));
    const size_t mark = teg_mil_names_enter(&r->names);
    TRY(read_definitions(r, message, 1, m.n_inputs, UINT32_MAX, &function->block.inputs));
    function->block.n_inputs = m.n_inputs;
    TRY(read_block(r, block, 0, &function->block));
    teg_mil_names_leave(&r->names, mark);
    return TEG_OK;
}

/* ---- program and model ---- */

struct msg_program {
    uint64_t version;
    size_t n_functions;
};
static const struct teg_wire_row program_rows[] = {
    {1, TEG_WIRE_UINT, offsetof(struct msg_program, version)},
    {2, TEG_WIRE_COUNT, offsetof(struct msg_program, n_functions)},
};

static enum teg_status read_program(struct teg_mil_reader *r, struct teg_span message)
{
    struct teg_mil_program *const p = r->program;
    struct msg_program m = {0};
    MIL_READ(r, message, program_rows, &m, "a Program");
    if (m.version != 1)
        MIL_FAIL(r, TEG_ERR_UNSUPPORTED, message.bytes, "expected program version 1, found %llu; update tegula",
                 (unsigned long long)m.version);
    p->functions = teg_arena_array(r->arena, m.n_functions, sizeof *p->functions);
    if (!p->functions)
        return teg_mil_no_memory(r, m.n_functions * sizeof *p->functions);
    struct teg_wire_iter iter = teg_wire_iter_of(message, 2);
    struct teg_wire_field f;
    while (teg_wire_each(&iter, &f)) {
        struct msg_pair entry = {0};
        MIL_READ(r, f.bytes, pair_rows, &entry, "a function of a program");
        TRY(read_function(r, entry.first, entry.second, &p->functions[p->n_functions]));
        p->n_functions++;
    }
    return teg_mil_seal_functions(r, message.bytes);
}

/* Field numbers of Model's other types, for the message. */
static const struct {
    uint32_t number;
    const char *name;
} model_types[] = {
    {200, "a pipeline classifier"},
    {201, "a pipeline regressor"},
    {202, "a pipeline"},
    {300, "a generalized linear regressor (glmRegressor)"},
    {301, "a support vector regressor"},
    {302, "a tree ensemble regressor"},
    {303, "a neural network regressor"},
    {304, "a Bayesian probit regressor"},
    {400, "a generalized linear classifier (glmClassifier)"},
    {401, "a support vector classifier"},
    {402, "a tree ensemble classifier"},
    {403, "a neural network classifier"},
    {404, "a k-nearest-neighbors classifier"},
    {500, "a neural network"},
    {501, "an item similarity recommender"},
    {555, "a custom model"},
    {556, "a linked model"},
    {560, "a class confidence thresholding model"},
    {600, "a one-hot encoder"},
    {601, "an imputer"},
    {602, "a feature vectorizer"},
    {603, "a dictionary vectorizer"},
    {604, "a scaler"},
    {606, "a categorical mapping"},
    {607, "a normalizer"},
    {609, "an array feature extractor"},
    {610, "a non-maximum suppression model"},
    {900, "an identity model"},
    {2000, "a text classifier"},
    {2001, "a word tagger"},
    {2002, "a vision feature print"},
    {2003, "a sound analysis preprocessing model"},
    {2004, "a gazetteer"},
    {2005, "a word embedding"},
    {2006, "an audio feature print"},
    {3000, "a serialized model"},
};

const char *teg_mil_model_type(struct teg_span model, struct teg_span *content)
{
    struct teg_cursor c = teg_cursor_of(model.bytes, model.n_bytes);
    struct teg_wire_field f;
    while (teg_wire_next(&c, &f))
        for (size_t i = 0; i < sizeof model_types / sizeof *model_types; i++)
            if (model_types[i].number == f.number) {
                *content = f.bytes;
                return model_types[i].name;
            }
    return NULL;
}

static enum teg_status refuse_type(struct teg_mil_reader *r, struct teg_span model)
{
    struct teg_span content = {0};
    const char *const name = teg_mil_model_type(model, &content);
    if (!name)
        MIL_FAIL(r, TEG_ERR_FORMAT, model.bytes, "expected an ML program, found no model; export the model again");
    MIL_FAIL(r, TEG_ERR_UNSUPPORTED, content.bytes ? content.bytes : model.bytes,
             "expected an ML program, found %s; convert the model to an ML program (iOS 15 or later)", name);
}

struct msg_model {
    uint64_t version;
    struct teg_span description, program, classifier, regressor, pipeline;
};
static const struct teg_wire_row model_rows[] = {
    {1, TEG_WIRE_UINT, offsetof(struct msg_model, version)},
    {2, TEG_WIRE_SPAN, offsetof(struct msg_model, description)},
    {200, TEG_WIRE_SPAN, offsetof(struct msg_model, classifier)},
    {201, TEG_WIRE_SPAN, offsetof(struct msg_model, regressor)},
    {202, TEG_WIRE_SPAN, offsetof(struct msg_model, pipeline)},
    {502, TEG_WIRE_SPAN, offsetof(struct msg_model, program)},
};

/* The Pipeline of a model that is one; .bytes NULL: it is none. */
static struct teg_span pipeline_of(const struct msg_model *m)
{
    const struct teg_span wrapped = m->classifier.bytes ? m->classifier : m->regressor; /* {1 pipeline} */
    struct teg_wire_iter iter = teg_wire_iter_of(wrapped, 1);
    struct teg_wire_field f;
    return !wrapped.bytes ? m->pipeline : teg_wire_each(&iter, &f) ? f.bytes : (struct teg_span){wrapped.bytes, 0};
}

enum teg_status teg_mil_read_spec(struct teg_mil_reader *r, struct teg_span model)
{
    struct msg_model m = {0};
    MIL_READ(r, model, model_rows, &m, "the Model");
    const struct teg_span pipeline = pipeline_of(&m);
    if (!m.program.bytes && !pipeline.bytes)
        return refuse_type(r, model);
    if (m.version < TEG_MIL_OLDEST || m.version > TEG_MIL_NEWEST)
        MIL_FAIL(r, TEG_ERR_UNSUPPORTED, model.bytes, "expected specification version %d to %d, found %llu; %s",
                 TEG_MIL_OLDEST, TEG_MIL_NEWEST, (unsigned long long)m.version,
                 m.version > TEG_MIL_NEWEST ? "update tegula" : "export the model again");
    r->program->spec_version = (uint32_t)m.version;
    if (!m.description.bytes)
        m.description = (struct teg_span){model.bytes, 0};
    if (!m.program.bytes)
        return teg_mil_read_pipeline(r, pipeline, m.description);
    TRY(read_program(r, m.program));
    return teg_mil_describe(r, m.description);
}
