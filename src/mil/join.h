/* mil/join.h: functions of several programs, one after the other, as functions of one program.
 *
 * Models come in pieces: pipelines, and language models split because a device cannot hold the whole. Joined once, what
 * takes a program takes them all. Nothing is changed but what must be: states of different programs that have one name
 * are told apart, outputs get the names that the caller gives, and where a number goes into an input of another type a
 * cast stands between. Where an image goes from one to the other, its values become bytes on the way, as pixels do. */
#ifndef TEG_MIL_JOIN_H
#define TEG_MIL_JOIN_H

#include "mil/program.h"

#define TEG_MIL_OUTSIDE SIZE_MAX

/* Where an input of a stage comes from: output `output` of an earlier stage; or stage TEG_MIL_OUTSIDE: it is an input
 * of the joined function, under its own name (one input, where several stages have the name). */
struct teg_mil_wire {
    size_t stage, output;
    enum teg_mil_pixels { TEG_MIL_NO_PIXELS, TEG_MIL_PIXELS, TEG_MIL_PIXELS_TURNED /* RGB to BGR or back */ } pixels;
};

struct teg_mil_stage {
    size_t program, function;
    const struct teg_mil_wire *wires; /* of the function's inputs that are no states, in its order */
};

struct teg_mil_result {
    size_t stage, output;
    const char *name; /* NULL: its own */
};

struct teg_mil_joint {
    const char *name; /* of the function that is made */
    const struct teg_mil_stage *stages;
    size_t n_stages;
    const struct teg_mil_result *results;
    size_t n_results;
};

/* An empty program to join into. */
enum teg_status teg_mil_join_new(const char *path, const struct teg_allocator *allocator,
                                 struct teg_mil_program **program, struct teg_error *err);
/* Gives the program its parts; they are freed with it, whatever follows. False: no memory, the parts are the caller's.
 */
bool teg_mil_join_parts(struct teg_mil_program *program, struct teg_mil_program *const *parts, size_t n_parts);
/* Makes a function for each joint; the first is the default one. */
enum teg_status teg_mil_join(struct teg_mil_program *program, const struct teg_mil_joint *joints, size_t n_joints,
                             struct teg_error *err);

#endif
