/* base/filemap.c: mmap behind a small door. A file that another process cuts short while it is mapped raises SIGBUS;
 * that is the one way a map can fail late, and it is the price of not copying gigabytes. */
#include "base/filemap.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *kind_of(mode_t mode)
{
    static const struct {
        mode_t mode;
        const char *name;
    } kinds[] = {{S_IFDIR, "a directory"},
                 {S_IFIFO, "a FIFO"},
                 {S_IFSOCK, "a socket"},
                 {S_IFCHR, "a character device"},
                 {S_IFBLK, "a block device"}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if ((mode & S_IFMT) == kinds[i].mode)
            return kinds[i].name;
    return "something else";
}

enum teg_status teg_filemap_open(struct teg_filemap *map, const char *path, const char *what, struct teg_error *err)
{
    /* O_NONBLOCK: opening a FIFO must not wait for a writer. */
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        FAIL(err, TEG_ERR_IO, "%s: %s: expected a readable file, found: %s; check the path and its permissions", what,
             path, strerror(errno));
    struct stat st;
    if (fstat(fd, &st) != 0) {
        const int code = errno;
        close(fd);
        FAIL(err, TEG_ERR_IO, "%s: %s: expected a readable file, found: %s; check the file system", what, path,
             strerror(code));
    }
    if (!S_ISREG(st.st_mode)) {
        close(fd);
        FAIL(err, TEG_ERR_IO, "%s: %s: expected a regular file, found %s; pass the path of a file", what, path,
             kind_of(st.st_mode));
    }
    const size_t n_bytes = (size_t)st.st_size;
    void *bytes = NULL;
    if (n_bytes) {
        bytes = mmap(NULL, n_bytes, PROT_READ, MAP_PRIVATE, fd, 0);
        if (bytes == MAP_FAILED) {
            const int code = errno;
            close(fd);
            FAIL(err, code == ENOMEM ? TEG_ERR_MEMORY : TEG_ERR_IO,
                 "%s: %s: expected to map %zu bytes, found: %s; free memory or copy the file to a local disk", what,
                 path, n_bytes, strerror(code));
        }
    }
    close(fd);
    *map = (struct teg_filemap){bytes, n_bytes};
    return TEG_OK;
}

void teg_filemap_close(struct teg_filemap *map)
{
    if (map->bytes)
        munmap((void *)(uintptr_t)map->bytes, map->n_bytes);
    *map = (struct teg_filemap){0};
}

void teg_filemap_release(const struct teg_filemap *map, size_t offset_bytes, size_t n_bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t begin = (offset_bytes + page - 1) / page * page;
    const size_t end = (offset_bytes + n_bytes) / page * page;
    if (begin < end)
        (void)madvise((void *)(uintptr_t)(map->bytes + begin), end - begin, MADV_DONTNEED);
}
