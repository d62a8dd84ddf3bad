/* program.h: what the files behind tegula.h's ML programs share: program.c (opening, looking inside), requirements.c
 * (systems), convert.c (values in and out of the evaluator's arrays), predict.c (the rules of a prediction, states).
 *
 * Invariant: everything but `evals` is immutable once the program is open; `evals[i]` is NULL until function i was
 * first needed and is then never changed, both under `lock`. */
#ifndef TEG_PROGRAM_H
#define TEG_PROGRAM_H

#include <pthread.h>

#include "eval/eval.h"
#include "mil/program.h"

struct teg_program {
    const struct teg_allocator *allocator;
    struct teg_program_options options;
    struct teg_mil_program *mil;
    struct teg_arena arena; /* tables below; the program itself */
    struct teg_program_info info;
    const teg_mil_var_id *weights; /* variables whose value lies in a weight file */
    const char **names;            /* of weights, by variable; NULL: the variable's own */
    const char *(*metadata)[2];
    struct teg_requirement *requirements; /* the concrete ones first, the opsets and the file's version last */
    uint32_t spec_version;                /* the highest of them */
    uint64_t n_parameters, n_decoded; /* elements of constants in files: each once; by every function that has them */
    pthread_mutex_t lock;
    uint32_t wanted_threads; /* under the lock */
    struct teg_eval **evals; /* one a function */
};

/* ---- requirements.c ---- */

enum teg_status teg_program_find_requirements(struct teg_program *program, struct teg_error *err);
/* "iOS17", "macos 14.2" to the newest specification version that the system loads, 0 where none; false: no such
 * system. */
bool teg_target_version(const char *target, uint32_t *spec_version);

/* ---- program.c ---- */

/* The index of a function by name or NULL; fails with the names there are. */
enum teg_status teg_program_need_function(const struct teg_program *program, const char *name, size_t *index,
                                          struct teg_error *err);
/* Takes the program over (freed on failure too) and makes a handle for it; options are whole, target included. */
enum teg_status teg_program_of(struct teg_mil_program *mil, const struct teg_program_options *options,
                               struct teg_program **program, struct teg_error *err);
/* For functions that are made ready from now on, unless the options said how many; 0: no wish. */
void teg_program_want_threads(struct teg_program *program, uint32_t n_threads);
enum teg_status teg_program_eval(struct teg_program *program, size_t function, const struct teg_eval **eval,
                                 struct teg_error *err);
enum teg_feature_kind teg_program_kind(const struct teg_mil_feature *feature);
/* False: a type that values outside of a program cannot have. */
bool teg_program_element(enum teg_mil_dtype dtype, enum teg_element *element);

/* ---- convert.c ---- */

struct teg_values {
    struct teg_arena arena; /* it lies in it */
    struct teg_feature_value *items;
    size_t n;
    struct teg_predict_report report;
};

enum teg_status teg_values_new(const struct teg_allocator *allocator, size_t n, struct teg_values **values,
                               struct teg_error *err);
/* `what` opens the message: "cannot predict: input". The shape of the array is given: that of the value, or another
 * of as many elements. */
enum teg_status teg_value_to_array(const struct teg_allocator *allocator, const struct teg_feature_value *value,
                                   const char *what, enum teg_mil_dtype dtype, uint32_t rank, const size_t *dims,
                                   struct teg_array **array, struct teg_error *err);
/* u8 or f32 pixels [H, W, C] into planes [1, C, H, W]; more than C channels: the rest (alpha) is dropped. */
enum teg_status teg_image_to_array(const struct teg_allocator *allocator, const struct teg_feature_value *value,
                                   const struct teg_mil_feature *feature, const struct teg_mil_type *type,
                                   struct teg_array **array, struct teg_error *err);
/* Copies an array into item `index` in its declared type. */
enum teg_status teg_array_to_value(struct teg_values *values, size_t index, const struct teg_array *array,
                                   struct teg_error *err);
enum teg_status teg_array_to_image(struct teg_values *values, size_t index, const struct teg_array *array,
                                   enum teg_mil_colour colour, struct teg_error *err);
/* "1x64" of a value's shape. */
struct teg_shape_text teg_value_shape_text(const struct teg_feature_value *value);

#endif
