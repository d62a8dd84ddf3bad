/* interrupt.h: Ctrl-C and its relatives. The first SIGINT, SIGTERM or SIGHUP asks for a clean end, the second kills. */
#ifndef TEGULA_CLI_INTERRUPT_H
#define TEGULA_CLI_INTERRUPT_H

#include "cli.h"

void cli_interrupt_install(void);
/* True once a signal came in. */
bool cli_interrupted(void);
/* 128 + the signal: 130 for SIGINT, 143 for SIGTERM. */
int cli_interrupt_exit_code(void);
/* The session whose work the signal shall stop; NULL before it is freed. */
void cli_interrupt_watch(struct teg_session *session);
/* Becomes true with the first signal: for teg_predict_options.stop. */
const volatile bool *cli_interrupt_flag(void);
/* A temporary file that the second signal removes before it kills; NULL: none. The text must stay valid. */
void cli_interrupt_unlink(const char *path);
/* A teg_progress_fn for work without a progress bar: goes on until a signal came in. */
bool cli_interrupt_progress(void *ctx, uint64_t done, uint64_t total);

#endif
