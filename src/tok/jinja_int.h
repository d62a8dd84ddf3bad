/* tok/jinja_int.h: what the files of the template interpreter share.
 *
 *     source ──lex──► tokens ──parse──► nodes ──eval──► text
 *
 * Values are small structs passed by copy. Everything they point at is immutable once built (the sandbox forbids
 * mutation), so a slice shares its list's memory and no reference counts are needed; namespaces, loops, cyclers and
 * half-consumed iterators are the exceptions, and only they can be changed through a pointer. Memory is one arena per
 * template and one per rendering, both bounded. All recursion is counted in jctx.depth.
 *
 * A walk over the tree was preferred to compiling to byte code: a chat template is rendered once per turn, in less
 * time than tokenizing its result. */
#ifndef TEG_TOK_JINJA_INT_H
#define TEG_TOK_JINJA_INT_H

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "tok/jinja.h"

enum {
    TEG_J_MAX_NESTING = 200,        /* of a template's expressions and blocks */
    TEG_J_MAX_DEPTH = 1000,         /* of evaluation, macros included; what CPython allows too */
    TEG_J_MAX_VALUE_DEPTH = 400,    /* of lists and dicts inside each other */
    TEG_J_MAX_RANGE = 100000,       /* as jinja2's sandbox */
    TEG_J_MAX_TEXT = 64 << 20,      /* bytes of one string or of the output */
    TEG_J_MAX_MEMORY = 512 << 20,   /* bytes of the arena */
    TEG_J_MAX_STEPS = 20 * 1000000, /* about a second */
    TEG_J_MAX_ARGS = 64,            /* of one call of a built-in */
    TEG_J_FLOAT_BYTES = 64,         /* for teg_j_float_repr */
};

/* Where a failure is reported, what it costs, and where memory comes from. One per parse and one per rendering. */
struct jctx {
    struct teg_arena arena;
    struct teg_error *err;
    unsigned line;             /* of what is being parsed or evaluated */
    unsigned depth, max_depth; /* of recursion */
    size_t steps;
    bool too_large; /* the last failed allocation was refused by the bound, not by the allocator */
    int64_t now_unix;
    struct jscope *root;
};

struct jstr {
    const char *p;
    size_t n;
};

/* ---- values ---- */

enum jkind {
    J_MISSING, /* no value at all: an argument that was not given */
    J_UNDEFINED,
    J_NONE,
    J_BOOL,
    J_INT,
    J_FLOAT,
    J_STR,
    J_LIST,
    J_TUPLE,
    J_DICT,
    J_RANGE,
    J_ITER, /* a generator: can be iterated once */
    J_VIEW, /* dict.keys(), .values(), .items() */
    J_NAMESPACE,
    J_LOOP,
    J_MACRO,
    J_FUNCTION,
    J_METHOD,
    J_CYCLER,
    J_JOINER,
    J_N_KINDS,
};

enum { J_VIEW_KEYS, J_VIEW_VALUES, J_VIEW_ITEMS };
enum { J_UNDEF_NAME, J_UNDEF_HINT, J_UNDEF_UNSAFE, J_UNDEF_ATTR }; /* J_UNDEF_ATTR + kind of the object */

struct jpair;
struct jv {
    uint8_t kind;
    uint8_t aux; /* J_STR: 1 = Markup; J_VIEW: J_VIEW_*; J_UNDEFINED: J_UNDEF_* */
    size_t n;    /* J_STR: bytes; J_LIST, J_TUPLE, J_VIEW: items; J_DICT: pairs; J_UNDEFINED: bytes of s */
    union {
        bool b;
        int64_t i;
        double f;
        const char *s;             /* J_STR; J_UNDEFINED: the name or the message */
        const struct jv *items;    /* J_LIST, J_TUPLE, J_VIEW */
        const struct jpair *pairs; /* J_DICT */
        struct jrange *range;
        struct jiter *iter;
        struct jnamespace *ns;
        struct jloop *loop;
        struct jmacro *macro;
        const struct jbuiltin *function;
        struct jmethod *method;
        struct jcycler *cycler; /* J_CYCLER, J_JOINER */
    } u;
};

struct jpair {
    struct jv key, value;
};
struct jrange {
    int64_t start, stop, step;
    size_t n;
};
struct jiter {
    const struct jv *items;
    size_t n, at;
};
struct jnamespace {
    struct jpair *pairs;
    size_t n, capacity;
};
struct jmethod {
    struct jv self;
    const struct jbuiltin *builtin;
};
struct jcycler {
    const struct jv *items; /* a joiner has one: the separator */
    size_t n, at;
};
struct jmacro {
    const struct jnode *node;
    struct jscope *scope; /* where it was defined */
};

/* A call's arguments, and the built-ins that take them. */
struct jcall {
    const struct jv *pos;
    size_t n_pos;
    const struct jpair *kw; /* keys are J_STR */
    size_t n_kw;
};
typedef enum teg_status (*jbuiltin_fn)(struct jctx *c, const struct jv *self, const struct jcall *call,
                                       const struct jv *a, struct jv *out);
struct jbuiltin {
    const char *name;
    jbuiltin_fn fn;     /* NULL: Python has it, we do not */
    const char *params; /* "a b c"; "/ a b": by position only; NULL: fn reads `call` itself */
    size_t n_required;
};

/* ---- names ---- */

struct jbinding {
    struct jstr name;
    struct jv value;
};
struct jscope {
    struct jscope *parent;
    struct jbinding *bindings;
    size_t n, capacity;
};

/* ---- tokens ---- */

enum jtok {
    T_EOF,
    T_DATA,
    T_BLOCK_BEGIN,
    T_BLOCK_END,
    T_VAR_BEGIN,
    T_VAR_END,
    T_NAME,
    T_STRING,
    T_INTEGER,
    T_FLOAT,
    T_OPERATOR, /* `op` says which */
};

/* Operators in the order in which the lexer tries them: the long ones first. */
enum jop {
    OP_NONE,
    OP_FLOORDIV,
    OP_POW,
    OP_EQ,
    OP_NE,
    OP_GE,
    OP_LE,
    OP_ADD,
    OP_SUB,
    OP_DIV,
    OP_MUL,
    OP_MOD,
    OP_TILDE,
    OP_LBRACKET,
    OP_RBRACKET,
    OP_LPAREN,
    OP_RPAREN,
    OP_LBRACE,
    OP_RBRACE,
    OP_GT,
    OP_LT,
    OP_ASSIGN,
    OP_DOT,
    OP_COLON,
    OP_PIPE,
    OP_COMMA,
    OP_SEMICOLON,
    OP_IN, /* made by the parser */
    OP_NOT_IN,
    OP_N,
};

struct jtoken {
    uint8_t type, op;
    unsigned line;
    struct jstr text; /* data, names, unescaped strings */
    struct jv value;  /* numbers */
};

/* ---- nodes ---- */

enum jnode_kind {
    /* expressions */
    N_CONST,
    N_NAME,
    N_TUPLE,
    N_LIST,
    N_DICT, /* list: key, value, key, value, … */
    N_UNARY,
    N_BINARY,
    N_CONCAT,
    N_COMPARE, /* a, then list with ops */
    N_AND,
    N_OR,
    N_NOT,
    N_COND, /* b if a else c */
    N_ATTR, /* a.name */
    N_ITEM, /* a[b] */
    N_SLICE,
    N_CALL,
    N_FILTER,
    N_TEST,
    N_NSREF, /* name.name2, a target of set */
    /* statements */
    N_DATA,
    N_OUTPUT,
    N_FOR,   /* for a in b if c: list; else: list2 */
    N_IF,    /* list: (test, body) pairs; list2: else */
    N_BLOCK, /* a list of statements; aux: with a scope of its own */
    N_SET,
    N_SET_BLOCK,
    N_MACRO,
    N_CALL_BLOCK,
    N_FILTER_BLOCK,
    N_WITH, /* list: (target, value) pairs; a: body */
    N_BREAK,
    N_CONTINUE,
};

struct jnodes {
    struct jnode **items;
    size_t n;
};
struct jkeyword {
    struct jstr name;
    struct jnode *value;
};
struct jargs {
    struct jnodes pos;
    struct jkeyword *kw;
    size_t n_kw;
    struct jnode *star, *star_star;
};
enum { J_USES_CALLER = 1, J_USES_KWARGS = 2, J_USES_VARARGS = 4 };

struct jnode {
    uint8_t kind, op;
    uint8_t uses; /* N_MACRO: J_USES_* */
    uint8_t scoped;
    uint16_t depth; /* 1 + that of the deepest child */
    unsigned line;
    struct jstr name, name2;
    struct jv value;
    struct jnode *a, *b, *c;
    struct jnodes list, list2;
    uint8_t *ops; /* N_COMPARE */
    struct jargs args;
    const struct jbuiltin *builtin; /* N_FILTER, N_TEST; NULL: unknown */
};

struct teg_jinja {
    struct jctx ctx; /* its arena holds everything below */
    const struct jnode *root;
};

/* ---- errors, memory, text (jinja.c) ---- */

/* "chat template: line N: …" */
enum teg_status teg_j_fail(struct jctx *c, enum teg_status status, const char *format, ...) TEG_PRINTF(3, 4);
enum teg_status teg_j_fail_memory(struct jctx *c);
void *teg_j_take(struct jctx *c, size_t n, size_t item_bytes);
enum teg_status teg_j_step(struct jctx *c, size_t n_bytes);
enum teg_status teg_j_enter(struct jctx *c);

#define JFAIL(c, ...) return teg_j_fail((c), TEG_ERR_ARGUMENT, __VA_ARGS__)
#define JUNSUPPORTED(c, ...) return teg_j_fail((c), TEG_ERR_UNSUPPORTED, __VA_ARGS__)
#define JSTR(x) (int)((x).n > 60 ? 60 : (x).n), (x).p ? (x).p : "" /* for %.*s */
#define JVSTR(x) (int)((x).n > 60 ? 60 : (x).n), (x).u.s ? (x).u.s : ""
#define JNEW(c, ptr, count)                                                                                            \
    do {                                                                                                               \
        (ptr) = teg_j_take((c), (count), sizeof *(ptr));                                                               \
        if (!(ptr))                                                                                                    \
            return teg_j_fail_memory(c);                                                                               \
    } while (0)

struct jbuf {
    char *p;
    size_t n, capacity;
};
enum teg_status teg_j_put(struct jctx *c, struct jbuf *b, const char *p, size_t n);
enum teg_status teg_j_puts(struct jctx *c, struct jbuf *b, const char *s);
enum teg_status teg_j_put_code_point(struct jctx *c, struct jbuf *b, uint32_t code_point);

/* ---- lexer, parser ---- */

enum teg_status teg_j_lex(struct jctx *c, const char *source, size_t n_bytes, struct jtoken **tokens);
extern const char *const teg_j_op_text[OP_N];

struct jparser {
    struct jctx *c;
    const struct jtoken *at;
    unsigned uses; /* J_USES_* seen since the innermost macro began */
    unsigned for_depth, loop_depth;
    unsigned soft; /* > 0: inside a condition, where jinja2 reports unknown filters only when they run */
};
enum { J_NO_COND = 1, J_PARENTHESES = 2, J_TARGET = 4, J_WITH_NS = 8 }; /* for teg_j_parse_tuple */

enum teg_status teg_j_parse(struct jctx *c, const struct jtoken *tokens, const struct jnode **root);
enum teg_status teg_j_parse_expr(struct jparser *p, struct jnode **out);
enum teg_status teg_j_parse_tuple(struct jparser *p, unsigned flags, const char *end_name, struct jnode **out);
enum teg_status teg_j_parse_filters(struct jparser *p, struct jnode *node, bool start_inline, struct jnode **out);
enum teg_status teg_j_node(struct jparser *p, enum jnode_kind kind, unsigned line, struct jnode **out);
enum teg_status teg_j_push(struct jparser *p, struct jnodes *list, size_t *capacity, struct jnode *node);
/* Takes the children's depth into the parent; fails past TEG_J_MAX_NESTING. */
enum teg_status teg_j_adopt(struct jparser *p, struct jnode *parent, const struct jnode *child);
enum teg_status teg_j_expect_op(struct jparser *p, enum jop op);
enum teg_status teg_j_expect_name(struct jparser *p, struct jstr *name);
enum teg_status teg_j_unexpected(struct jparser *p, const char *expected);
bool teg_j_at_name(const struct jparser *p, const char *name);
bool teg_j_skip_name(struct jparser *p, const char *name);
bool teg_j_at_op(const struct jparser *p, enum jop op);
bool teg_j_skip_op(struct jparser *p, enum jop op);

/* ---- values (jinja_value.c) ---- */

static inline struct jv teg_jv_bool(bool b)
{
    return (struct jv){.kind = J_BOOL, .u.b = b};
}
static inline struct jv teg_jv_int(int64_t i)
{
    return (struct jv){.kind = J_INT, .u.i = i};
}
static inline struct jv teg_jv_float(double f)
{
    return (struct jv){.kind = J_FLOAT, .u.f = f};
}
static inline struct jv teg_jv_str(const char *p, size_t n)
{
    return (struct jv){.kind = J_STR, .n = n, .u.s = p};
}
static inline struct jv teg_jv_none(void)
{
    return (struct jv){.kind = J_NONE};
}
static inline struct jv teg_jv_items(enum jkind kind, const struct jv *items, size_t n)
{
    return (struct jv){.kind = (uint8_t)kind, .n = n, .u.items = items};
}
static inline struct jstr teg_jv_text(const struct jv *v)
{
    return (struct jstr){v->u.s, v->n};
}

bool teg_jstr_eq(struct jstr a, struct jstr b);
bool teg_jstr_is(struct jstr a, const char *b);
const char *teg_jv_type(const struct jv *v); /* Python's name of the type */
struct jv teg_jv_hint(const char *message);  /* an undefined value that says this when used */
/* Fails with jinja2's message when v is undefined. */
enum teg_status teg_jv_defined(struct jctx *c, const struct jv *v);
bool teg_jv_truth(const struct jv *v);
bool teg_jv_is_number(const struct jv *v);   /* bool, int, float */
bool teg_jv_is_sequence(const struct jv *v); /* list, tuple */
/* A bool or an int as int64. */
bool teg_jv_as_int(const struct jv *v, int64_t *out);
double teg_jv_as_float(const struct jv *v);
enum teg_status teg_jv_int_arg(struct jctx *c, const struct jv *v, const char *what, int64_t *out);
enum teg_status teg_jv_str_arg(struct jctx *c, const struct jv *v, const char *what);
enum teg_status teg_jv_eq(struct jctx *c, const struct jv *a, const struct jv *b, bool *out);
/* op: OP_LT, OP_LE, OP_GT, OP_GE */
enum teg_status teg_jv_order(struct jctx *c, enum jop op, const struct jv *a, const struct jv *b, bool *out);
enum teg_status teg_jv_hashable(struct jctx *c, const struct jv *v);
enum teg_status teg_jv_find(struct jctx *c, const struct jpair *pairs, size_t n, const struct jv *key,
                            const struct jv **out);
const struct jv *teg_jv_find_str(const struct jpair *pairs, size_t n, struct jstr key);
/* Everything that v iterates over. An iterator is used up by it. */
enum teg_status teg_jv_iterate(struct jctx *c, const struct jv *v, const struct jv **items, size_t *n);
bool teg_jv_iterable(const struct jv *v);
enum teg_status teg_jv_length(struct jctx *c, const struct jv *v, size_t *n);
enum teg_status teg_jv_range_make(struct jctx *c, int64_t start, int64_t stop, int64_t step, struct jv *out);
enum teg_status teg_jv_iter_make(struct jctx *c, const struct jv *items, size_t n, struct jv *out);
enum teg_status teg_jv_sort(struct jctx *c, const struct jv *keys, size_t n, bool reverse, size_t *order);
/* Pairs in a growing dict: replaces an equal key. */
enum teg_status teg_jv_dict_put(struct jctx *c, struct jnamespace *d, const struct jv *key, const struct jv *value);

/* ---- text of values (jinja_text.c) ---- */

enum teg_status teg_jv_str_of(struct jctx *c, const struct jv *v, struct jv *out); /* str(v), never Markup */
enum teg_status teg_jv_put_str(struct jctx *c, struct jbuf *b, const struct jv *v);
enum teg_status teg_jv_put_repr(struct jctx *c, struct jbuf *b, const struct jv *v);
void teg_j_float_repr(double f, char out[TEG_J_FLOAT_BYTES]);
size_t teg_j_utf8_count(struct jstr s);
/* Byte position of character `index` (at most the end). */
size_t teg_j_utf8_at(struct jstr s, size_t index);
bool teg_j_is_space(uint32_t code_point);
bool teg_j_is_line_end(uint32_t code_point);
uint32_t teg_j_next(struct jstr s, size_t at, size_t *n_bytes);
double teg_j_strtod(const char *text, char **end); /* with a point, whatever the locale */
struct jstr teg_j_strip(struct jstr s, const struct jstr *chars, bool left, bool right);
struct jv teg_jv_of_buf(const struct jbuf *b);

/* ---- JSON (jinja_json.c) ---- */

enum teg_status teg_j_from_json(struct jctx *c, const void *json, struct jv *out); /* json_t */
enum teg_status teg_j_tojson(struct jctx *c, const struct jv *self, const struct jcall *call, const struct jv *a,
                             struct jv *out);

/* ---- operators (jinja_ops.c) ---- */

enum teg_status teg_j_binary(struct jctx *c, enum jop op, const struct jv *a, const struct jv *b, struct jv *out);
enum teg_status teg_j_unary(struct jctx *c, enum jop op, const struct jv *a, struct jv *out);
enum teg_status teg_j_contains(struct jctx *c, const struct jv *container, const struct jv *item, bool *out);
enum teg_status teg_j_getitem(struct jctx *c, const struct jv *obj, const struct jv *key, struct jv *out);
enum teg_status teg_j_getattr(struct jctx *c, const struct jv *obj, struct jstr name, struct jv *out);
enum teg_status teg_j_slice(struct jctx *c, const struct jv *obj, const struct jv bounds[3], struct jv *out);
enum teg_status teg_j_percent(struct jctx *c, const struct jv *format, const struct jv *args, struct jv *out);
enum teg_status teg_j_format(struct jctx *c, const struct jv *self, const struct jcall *call, const struct jv *a,
                             struct jv *out);

/* ---- built-ins ---- */

extern const struct jbuiltin teg_j_str_methods[], teg_j_dict_methods[], teg_j_list_methods[], teg_j_tuple_methods[];
extern const struct jbuiltin teg_j_loop_methods[], teg_j_cycler_methods[];
extern const struct jbuiltin teg_j_filters[], teg_j_seq_filters[], teg_j_tests[], teg_j_globals[];
/* NULL when the table has no such name. */
const struct jbuiltin *teg_j_builtin(const struct jbuiltin *table, struct jstr name);
const struct jbuiltin *teg_j_filter(struct jstr name);
enum teg_status teg_j_call_builtin(struct jctx *c, const struct jbuiltin *f, const char *what, const struct jv *self,
                                   const struct jcall *call, struct jv *out);
enum teg_status teg_j_escape(struct jctx *c, const struct jv *v, struct jv *out);
enum teg_status teg_j_lower(struct jctx *c, struct jstr s, struct jv *out);
enum teg_status teg_j_upper(struct jctx *c, struct jstr s, struct jv *out);
enum teg_status teg_j_replace(struct jctx *c, struct jstr s, struct jstr old, struct jstr by, int64_t count,
                              struct jv *out);
/* The capitalised s: first character upper (title) case, the rest lower. */
enum teg_status teg_j_capitalize(struct jctx *c, struct jstr s, struct jv *out);
enum teg_status teg_j_title(struct jctx *c, struct jstr s, struct jv *out);
enum teg_status teg_j_swapcase(struct jctx *c, struct jstr s, struct jv *out);
enum jclass { J_CLASS_ALPHA, J_CLASS_DIGIT, J_CLASS_ALNUM, J_CLASS_SPACE };
enum teg_status teg_j_all_in(struct jctx *c, const struct jv *self, enum jclass k, struct jv *out);
enum teg_status teg_j_splitlines(struct jctx *c, struct jstr s, bool keep_ends, struct jv *out);
bool teg_j_cased(struct jstr s, bool upper); /* str.isupper, str.islower */

/* ---- evaluation (jinja_eval.c, jinja_exec.c) ---- */

/* One loop, as `loop` shows it. Items that the loop's `if` refuses are skipped when they are reached. */
struct jloop {
    const struct jv *items;
    size_t n, at; /* at: the next item that was not looked at */
    int64_t index0;
    int64_t length;                   /* -1: not counted yet */
    struct jv before, current, after; /* J_MISSING: none */
    struct jv changed;
    const struct jnode *target, *test;
    struct jscope *scope; /* around the loop */
};
enum teg_status teg_j_loop_peek(struct jctx *c, struct jloop *loop);
enum teg_status teg_j_loop_attr(struct jctx *c, struct jloop *loop, struct jstr name, struct jv *out);

enum teg_status teg_j_eval(struct jctx *c, struct jscope *scope, const struct jnode *node, struct jv *out);
enum teg_status teg_j_call(struct jctx *c, const struct jv *callee, const struct jcall *call, struct jv *out);
enum teg_status teg_j_eval_args(struct jctx *c, struct jscope *scope, const struct jargs *args, const struct jv *caller,
                                struct jcall *out);
enum teg_status teg_j_bind(struct jctx *c, struct jscope *scope, struct jstr name, const struct jv *value);
enum teg_status teg_j_assign(struct jctx *c, struct jscope *scope, const struct jnode *target, const struct jv *value);
enum teg_status teg_j_call_macro(struct jctx *c, const struct jmacro *macro, const struct jcall *call, struct jv *out);
enum jflow { J_FLOW_ON, J_FLOW_BREAK, J_FLOW_CONTINUE };
enum teg_status teg_j_exec_body(struct jctx *c, struct jscope *scope, const struct jnodes *body, struct jbuf *out,
                                enum jflow *flow);

#endif
