/* graph/same.h: whether two graphs say the same.
 *
 * Names, the order of ops and encodings do not matter: ops are matched by what they are and what they read, constants
 * by their decoded values. For the law raise(lower(g)) == g and for tests of builders. */
#ifndef TEG_GRAPH_SAME_H
#define TEG_GRAPH_SAME_H

#include "graph/graph.h"

struct teg_same_options {
    double weights; /* constants may differ by this share of a row's largest value; 0: equal */
    double numbers; /* eps, scales and caps: by this share */
};

/* What is reachable from the logits and from what is appended to states; ops that nobody reads are not compared. Every
 * state of one is a state of the other. False: `difference` gets one sentence about the first op of `a` that has no
 * counterpart, and in what the nearest one differs. */
bool teg_graph_same(const struct teg_graph *a, const struct teg_graph *b, const struct teg_same_options *options,
                    struct teg_buf *difference);

#endif
