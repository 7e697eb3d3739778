/* Stands between a process and the system: counts the calls that concern one directory tree, lets the n-th one fail or
 * kill the process, and writes down every change of files and names. Preloaded into `icecore-torture drive`; compiled at
 * run time by `shim.rs`, which sets the variables that are read here, and read back by `trace.rs`.
 *
 *   TORTURE_ROOT   the directory whose files are watched
 *   TORTURE_TRACE  where the records go; not below the root
 *   TORTURE_ACK    a file whose writes are recorded as acknowledgements and neither counted nor failed
 *   TORTURE_AT     the number of the call that is hit, counted from 1; 0 or absent: none
 *   TORTURE_HOW    kill-before, kill-after, kill-short, short, errno:N, errno:N+ (from then on), late:N (done, and reported as failed)
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

/* What was asked of the system. The numbers are those of `Class` in `trace.rs`. */
enum { C_NONE, C_OPEN, C_CREATE, C_READ, C_WRITE, C_SYNC, C_CUT, C_RENAME, C_REMOVE, C_LINK, C_MKDIR, C_MAP, C_LOCK };

/* What changed. The numbers are those of `Change` in `trace.rs`; K_NOTHING is a call that changed nothing. */
enum { K_NOTHING, K_START, K_OPEN, K_CLOSE, K_WRITE, K_CUT, K_SYNC, K_RENAME, K_REMOVE, K_LINK, K_MKDIR, K_ACK };

/* Flags of K_OPEN. */
enum { F_CREATED = 1, F_NAMELESS = 2 };

struct record {
    uint32_t kind, class, call;
    int32_t fd;
    uint64_t offset;
    uint32_t len, len_second;
};

enum how { H_NONE, H_KILL_BEFORE, H_KILL_AFTER, H_KILL_SHORT, H_SHORT, H_ERRNO, H_LATE };

enum { FDS = 4096 };

static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static char root[PATH_MAX], ack[PATH_MAX];
static size_t root_len;
static int trace = -1, fault_errno, lasting;
static enum how how;
static uint32_t calls, at;
static enum { UNWATCHED, WATCHED, ACK } fds[FDS];

static int (*real_open)(const char *, int, ...);
static int (*real_close)(int);
static ssize_t (*real_write)(int, const void *, size_t);
static ssize_t (*real_pwrite)(int, const void *, size_t, off64_t);
static ssize_t (*real_writev)(int, const struct iovec *, int);
static ssize_t (*real_read)(int, void *, size_t);
static ssize_t (*real_pread)(int, void *, size_t, off64_t);
static void *(*real_mmap)(void *, size_t, int, int, int, off64_t);
static int (*real_fsync)(int), (*real_fdatasync)(int);
static int (*real_ftruncate)(int, off64_t);
static int (*real_rename)(const char *, const char *);
static int (*real_unlink)(const char *);
static int (*real_linkat)(int, const char *, int, const char *, int);
static ssize_t (*real_copy_file_range)(int, off64_t *, int, off64_t *, size_t, unsigned);
static ssize_t (*real_sendfile)(int, int, off64_t *, size_t);
static int (*real_rmdir)(const char *);
static int (*real_mkdir)(const char *, mode_t);
static int (*real_flock)(int, int);

static void record(uint32_t kind, uint32_t class, int fd, uint64_t offset, const void *a, size_t len, const void *b, size_t len_second)
{
    struct record head = { kind, class, class ? calls : 0, fd, offset, (uint32_t)len, (uint32_t)len_second };
    struct iovec parts[3] = { { &head, sizeof head }, { (void *)a, len }, { (void *)b, len_second } };
    if (trace >= 0 && real_writev(trace, parts, 3) != (ssize_t)(sizeof head + len + len_second))
        abort(); /* An incomplete trace would show states that never were. */
}

static void parse_how(const char *text)
{
    static const struct { const char *name; enum how how; } plain[] = {
        { "kill-before", H_KILL_BEFORE }, { "kill-after", H_KILL_AFTER }, { "kill-short", H_KILL_SHORT }, { "short", H_SHORT },
    };
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        if (!strcmp(text, plain[i].name))
            how = plain[i].how;
    if (!strncmp(text, "errno:", 6)) {
        how = H_ERRNO;
        fault_errno = atoi(text + 6);
        lasting = text[strlen(text) - 1] == '+';
    } else if (!strncmp(text, "late:", 5)) {
        how = H_LATE;
        fault_errno = atoi(text + 5);
    }
}

__attribute__((constructor)) static void start(void)
{
    real_open = dlsym(RTLD_NEXT, "open64");
    real_close = dlsym(RTLD_NEXT, "close");
    real_write = dlsym(RTLD_NEXT, "write");
    real_pwrite = dlsym(RTLD_NEXT, "pwrite64");
    real_writev = dlsym(RTLD_NEXT, "writev");
    real_read = dlsym(RTLD_NEXT, "read");
    real_pread = dlsym(RTLD_NEXT, "pread64");
    real_mmap = dlsym(RTLD_NEXT, "mmap64");
    real_fsync = dlsym(RTLD_NEXT, "fsync");
    real_fdatasync = dlsym(RTLD_NEXT, "fdatasync");
    real_ftruncate = dlsym(RTLD_NEXT, "ftruncate64");
    real_rename = dlsym(RTLD_NEXT, "rename");
    real_unlink = dlsym(RTLD_NEXT, "unlink");
    real_linkat = dlsym(RTLD_NEXT, "linkat");
    real_copy_file_range = dlsym(RTLD_NEXT, "copy_file_range");
    real_sendfile = dlsym(RTLD_NEXT, "sendfile64");
    real_rmdir = dlsym(RTLD_NEXT, "rmdir");
    real_mkdir = dlsym(RTLD_NEXT, "mkdir");
    real_flock = dlsym(RTLD_NEXT, "flock");
    const char *tree = getenv("TORTURE_ROOT"), *to = getenv("TORTURE_TRACE"), *told = getenv("TORTURE_ACK");
    const char *number = getenv("TORTURE_AT"), *fault = getenv("TORTURE_HOW");
    if (!tree || strlen(tree) >= sizeof root)
        return;
    strcpy(root, tree);
    if (told && strlen(told) < sizeof ack)
        strcpy(ack, told);
    if (number)
        at = (uint32_t)strtoul(number, NULL, 10);
    if (fault)
        parse_how(fault);
    if (to)
        trace = real_open(to, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    record(K_START, C_NONE, -1, 0, NULL, 0, NULL, 0);
    root_len = strlen(root); /* From here on calls are watched. */
}

/* The part of a path below the root, with its slash; NULL for paths elsewhere. */
static const char *below(const char *path)
{
    if (!root_len || !path || strncmp(path, root, root_len) || (path[root_len] && path[root_len] != '/'))
        return NULL;
    return path + root_len;
}

static int is_watched(int fd) { return root_len && fd >= 0 && fd < FDS && fds[fd] == WATCHED; }

static int is_refused_by_full_disk(uint32_t class)
{
    return class == C_CREATE || class == C_WRITE || class == C_MKDIR || class == C_LINK;
}

/* Counts a call. Returns what is to happen to it; a kill before it happens here. */
static enum how count(uint32_t class)
{
    calls++;
    if (!at || calls < at || (calls > at && !(lasting && is_refused_by_full_disk(class))))
        return H_NONE;
    if (how == H_KILL_BEFORE)
        kill(getpid(), SIGKILL);
    return how;
}

static void finish(enum how now)
{
    if (now == H_KILL_AFTER || now == H_KILL_SHORT)
        kill(getpid(), SIGKILL);
}

/* What the call returns: its own result, or the failure that was asked for. */
static int64_t outcome(enum how now, int64_t result)
{
    finish(now);
    if (now == H_LATE) {
        errno = fault_errno;
        return -1;
    }
    return result;
}

static int fail(uint32_t class, int fd)
{
    record(class == C_SYNC ? K_SYNC : K_NOTHING, class, fd, 1, NULL, 0, NULL, 0);
    errno = fault_errno;
    return -1;
}

/* A call without bytes: counted, done unless it is to fail, recorded. */
#define SIMPLE(watched, class_, kind, fd_, offset_, a, len_a, b, len_b, call)                                                  \
    do {                                                                                                                       \
        if (!(watched))                                                                                                        \
            return call;                                                                                                       \
        pthread_mutex_lock(&guard);                                                                                            \
        enum how now = count(class_);                                                                                          \
        int result = now == H_ERRNO ? fail(class_, fd_) : call;                                                                \
        int saved = errno;                                                                                                     \
        if (now != H_ERRNO)                                                                                                    \
            record(result == 0 ? (uint32_t)(kind) : (uint32_t)K_NOTHING, class_, fd_, offset_, a, len_a, b, len_b);            \
        errno = saved;                                                                                                         \
        if (now != H_ERRNO)                                                                                                    \
            result = (int)outcome(now, result);                                                                                \
        pthread_mutex_unlock(&guard);                                                                                          \
        return result;                                                                                                         \
    } while (0)

static int watched_open(const char *path, const char *part, int flags, mode_t mode)
{
    struct stat found;
    int nameless = (flags & O_TMPFILE) == O_TMPFILE;
    int creates = nameless || ((flags & O_CREAT) && stat(path, &found) != 0);
    uint32_t class = creates ? C_CREATE : C_OPEN;
    enum how now = count(class);
    if (now == H_ERRNO)
        return fail(class, -1);
    int fd = real_open(path, flags, mode), saved = errno;
    if (fd >= 0 && fd < FDS)
        fds[fd] = WATCHED;
    uint64_t bits = (creates ? F_CREATED : 0) | (nameless ? F_NAMELESS : 0);
    record(fd >= 0 ? K_OPEN : K_NOTHING, class, fd, bits, part, strlen(part), NULL, 0);
    if (fd >= 0 && (flags & O_TRUNC) && !creates)
        record(K_CUT, C_NONE, fd, 0, NULL, 0, NULL, 0);
    finish(now);
    errno = saved;
    return fd;
}

static int open_any(const char *path, int flags, mode_t mode)
{
    const char *part = below(path);
    pthread_mutex_lock(&guard);
    int fd = part ? watched_open(path, part, flags, mode) : real_open(path, flags, mode);
    if (!part && fd >= 0 && fd < FDS)
        fds[fd] = root_len && *ack && !strcmp(path, ack) ? ACK : UNWATCHED;
    pthread_mutex_unlock(&guard);
    return fd;
}

static mode_t mode_of(int flags, va_list arguments)
{
    return flags & (O_CREAT | __O_TMPFILE) ? va_arg(arguments, mode_t) : 0;
}

#define OPEN(name)                                                                                                             \
    int name(const char *path, int flags, ...)                                                                                 \
    {                                                                                                                          \
        va_list arguments;                                                                                                     \
        va_start(arguments, flags);                                                                                            \
        mode_t mode = mode_of(flags, arguments);                                                                               \
        va_end(arguments);                                                                                                     \
        return open_any(path, flags, mode);                                                                                    \
    }

OPEN(open)
OPEN(open64)

int close(int fd)
{
    pthread_mutex_lock(&guard);
    if (is_watched(fd))
        record(K_CLOSE, C_NONE, fd, 0, NULL, 0, NULL, 0);
    if (fd >= 0 && fd < FDS)
        fds[fd] = UNWATCHED;
    int result = real_close(fd);
    pthread_mutex_unlock(&guard);
    return result;
}

static ssize_t watched_write(int fd, const void *bytes, size_t len, off64_t offset, int in_place)
{
    enum how now = count(C_WRITE);
    if (now == H_ERRNO)
        return fail(C_WRITE, fd);
    if ((now == H_SHORT || now == H_KILL_SHORT) && len > 1)
        len /= 2;
    ssize_t done = in_place ? real_pwrite(fd, bytes, len, offset) : real_write(fd, bytes, len);
    int saved = errno;
    record(done > 0 ? K_WRITE : K_NOTHING, C_WRITE, fd, (uint64_t)offset, bytes, done > 0 ? (size_t)done : 0, NULL, 0);
    errno = saved;
    return outcome(now, done);
}

ssize_t write(int fd, const void *bytes, size_t len)
{
    if (!root_len || fd < 0 || fd >= FDS || fds[fd] == UNWATCHED)
        return real_write(fd, bytes, len);
    pthread_mutex_lock(&guard);
    ssize_t done;
    if (fds[fd] == ACK) {
        done = real_write(fd, bytes, len);
        if (done > 0)
            record(K_ACK, C_NONE, fd, 0, bytes, (size_t)done, NULL, 0);
    } else {
        int appends = fcntl(fd, F_GETFL) & O_APPEND;
        done = watched_write(fd, bytes, len, lseek64(fd, 0, appends ? SEEK_END : SEEK_CUR), 0);
    }
    pthread_mutex_unlock(&guard);
    return done;
}

ssize_t writev(int fd, const struct iovec *parts, int count_of_parts)
{
    /* A short write is allowed, so the first part that has bytes is enough. */
    for (int i = 0; is_watched(fd) && i < count_of_parts; i++)
        if (parts[i].iov_len)
            return write(fd, parts[i].iov_base, parts[i].iov_len);
    return real_writev(fd, parts, count_of_parts);
}

ssize_t pwrite64(int fd, const void *bytes, size_t len, off64_t offset)
{
    if (!is_watched(fd))
        return real_pwrite(fd, bytes, len, offset);
    pthread_mutex_lock(&guard);
    ssize_t done = watched_write(fd, bytes, len, offset, 1);
    pthread_mutex_unlock(&guard);
    return done;
}

ssize_t pwrite(int fd, const void *bytes, size_t len, off_t offset) { return pwrite64(fd, bytes, len, offset); }

static ssize_t watched_read(int fd, void *bytes, size_t len, off64_t offset, int in_place)
{
    pthread_mutex_lock(&guard);
    enum how now = count(C_READ);
    ssize_t done;
    if (now == H_ERRNO) {
        done = fail(C_READ, fd);
    } else {
        if (now == H_SHORT && len > 1)
            len /= 2;
        done = in_place ? real_pread(fd, bytes, len, offset) : real_read(fd, bytes, len);
        int saved = errno;
        record(K_NOTHING, C_READ, fd, 0, NULL, 0, NULL, 0);
        errno = saved;
        finish(now);
    }
    pthread_mutex_unlock(&guard);
    return done;
}

ssize_t read(int fd, void *bytes, size_t len)
{
    return is_watched(fd) ? watched_read(fd, bytes, len, 0, 0) : real_read(fd, bytes, len);
}

ssize_t pread64(int fd, void *bytes, size_t len, off64_t offset)
{
    return is_watched(fd) ? watched_read(fd, bytes, len, offset, 1) : real_pread(fd, bytes, len, offset);
}

ssize_t pread(int fd, void *bytes, size_t len, off_t offset) { return pread64(fd, bytes, len, offset); }

void *mmap64(void *hint, size_t len, int protection, int flags, int fd, off64_t offset)
{
    if (!is_watched(fd))
        return real_mmap(hint, len, protection, flags, fd, offset);
    pthread_mutex_lock(&guard);
    enum how now = count(C_MAP);
    void *result = now == H_ERRNO ? MAP_FAILED : real_mmap(hint, len, protection, flags, fd, offset);
    if (now == H_ERRNO)
        fail(C_MAP, fd);
    else
        record(K_NOTHING, C_MAP, fd, 0, NULL, 0, NULL, 0);
    finish(now);
    pthread_mutex_unlock(&guard);
    return result;
}

void *mmap(void *hint, size_t len, int protection, int flags, int fd, off_t offset)
{
    return mmap64(hint, len, protection, flags, fd, offset);
}

int fsync(int fd) { SIMPLE(is_watched(fd), C_SYNC, K_SYNC, fd, 0, NULL, 0, NULL, 0, real_fsync(fd)); }

int fdatasync(int fd) { SIMPLE(is_watched(fd), C_SYNC, K_SYNC, fd, 0, NULL, 0, NULL, 0, real_fdatasync(fd)); }

int ftruncate64(int fd, off64_t len)
{
    SIMPLE(is_watched(fd), C_CUT, K_CUT, fd, (uint64_t)len, NULL, 0, NULL, 0, real_ftruncate(fd, len));
}

int ftruncate(int fd, off_t len) { return ftruncate64(fd, len); }

int rename(const char *from, const char *to)
{
    const char *a = below(from), *b = below(to);
    SIMPLE(a && b, C_RENAME, K_RENAME, -1, 0, a, strlen(a), b, strlen(b), real_rename(from, to));
}

int unlink(const char *path)
{
    const char *part = below(path);
    SIMPLE(part, C_REMOVE, K_REMOVE, -1, 0, part, strlen(part), NULL, 0, real_unlink(path));
}

int linkat(int from_dir, const char *from, int to_dir, const char *to, int flags)
{
    const char *a = below(from), *b = below(to);
    SIMPLE(a && b, C_LINK, K_LINK, -1, 0, a, strlen(a), b, strlen(b), real_linkat(from_dir, from, to_dir, to, flags));
}

int link(const char *from, const char *to) { return linkat(AT_FDCWD, from, AT_FDCWD, to, 0); }

ssize_t copy_file_range(int from, off64_t *from_at, int to, off64_t *to_at, size_t len, unsigned flags)
{
    /* Its bytes would not be seen here: callers then copy by reading and writing, as on systems without it. */
    if (is_watched(from) || is_watched(to)) {
        errno = EXDEV;
        return -1;
    }
    return real_copy_file_range(from, from_at, to, to_at, len, flags);
}

ssize_t sendfile64(int to, int from, off64_t *from_at, size_t len)
{
    if (is_watched(from) || is_watched(to)) {
        errno = EINVAL;
        return -1;
    }
    return real_sendfile(to, from, from_at, len);
}

int rmdir(const char *path)
{
    const char *part = below(path);
    SIMPLE(part, C_REMOVE, K_REMOVE, -1, 0, part, strlen(part), NULL, 0, real_rmdir(path));
}

int mkdir(const char *path, mode_t mode)
{
    const char *part = below(path);
    SIMPLE(part, C_MKDIR, K_MKDIR, -1, 0, part, strlen(part), NULL, 0, real_mkdir(path, mode));
}

int flock(int fd, int operation) { SIMPLE(is_watched(fd), C_LOCK, K_NOTHING, fd, 0, NULL, 0, NULL, 0, real_flock(fd, operation)); }
