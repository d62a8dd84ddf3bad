/* interrupt.c: signals.
 *
 * Invariant: the handler runs its body on the main thread only (a signal that another thread received is passed on),
 * so it can never see a session that the main thread is freeing, and a read() that waits for input returns EINTR.
 * It touches nothing but lock-free atomics and calls that POSIX lists as safe in handlers. SIGINT and SIGTERM are
 * caught even where the parent ignored them: shells ignore SIGINT for background jobs of scripts, and whoever sends
 * it there by hand wants the clean end. SIGHUP stays ignored under nohup. SIGPIPE and SIGXFSZ are ignored: a closed
 * pipe and a limit on file sizes are write errors, which whoever writes reports. The alternative, signalfd or a waiting
 * thread, is not portable or costs more. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

#include "interrupt.h"

static volatile sig_atomic_t received_signal;
static volatile bool stop_flag; /* the same as a bool, for the library */
static pthread_t main_thread;
static _Atomic(struct teg_session *) watched_session;
static _Atomic(const char *) doomed_path;

static void on_signal(int number)
{
    if (!pthread_equal(pthread_self(), main_thread)) {
        pthread_kill(main_thread, number);
        return;
    }
    if (received_signal) {
        const char *path = atomic_load(&doomed_path);
        if (path)
            unlink(path);
        signal(number, SIG_DFL);
        raise(number);
        return;
    }
    received_signal = number;
    stop_flag = true;
    struct teg_session *session = atomic_load(&watched_session);
    if (session)
        teg_session_interrupt(session);
}

void cli_interrupt_install(void)
{
    static const int caught[] = {SIGINT, SIGTERM, SIGHUP};
    main_thread = pthread_self();
    struct sigaction action = {.sa_handler = on_signal};
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < CLI_COUNT(caught); i++) {
        struct sigaction before;
        if (caught[i] == SIGHUP && sigaction(SIGHUP, NULL, &before) == 0 && before.sa_handler == SIG_IGN)
            continue;
        sigaction(caught[i], &action, NULL);
    }
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
}

bool cli_interrupted(void)
{
    return received_signal != 0;
}

int cli_interrupt_exit_code(void)
{
    return 128 + (int)received_signal;
}

const volatile bool *cli_interrupt_flag(void)
{
    return &stop_flag;
}

void cli_interrupt_watch(struct teg_session *session)
{
    atomic_store(&watched_session, session);
}

void cli_interrupt_unlink(const char *path)
{
    atomic_store(&doomed_path, path);
}

bool cli_interrupt_progress(void *ctx, uint64_t done, uint64_t total)
{
    (void)ctx;
    (void)done;
    (void)total;
    return !cli_interrupted();
}
