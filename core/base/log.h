/* SPDX-License-Identifier: BSD-2-Clause */
/* All output of the library: lines "libexs[pid] level: text" on stderr or in
 * EXS_LOG_FILE (%p is the pid). The function that detects an error logs it,
 * once. Lower case, "name %s", no full stop. */
#ifndef EXI_CORE_BASE_LOG_H
#define EXI_CORE_BASE_LOG_H

#include <stddef.h>
#include <sys/types.h>

#include "core/base/util.h"

enum exi_log_level {
	EXI_LOG_OFF,
	EXI_LOG_ERROR,
	EXI_LOG_WARN,
	EXI_LOG_INFO,
	EXI_LOG_DEBUG,
	EXI_LOG_TRACE,
};

/* Messages above it are dropped. Set by the configuration, and by exs log while
 * the process runs. */
extern int exi_log_level;

/* Sets the file for log lines; "" is stderr. The file is opened at the first
 * line, and again after fork, by exi_log_open(). If it cannot be opened, stderr
 * gets one message and then the lines. */
void exi_log_file(const char *path);

/* Opens, or creates, a file that the user named, for appending. The file may
 * lie where others can write: a symbolic link at its name is not followed,
 * except /dev/stdout and /dev/stderr, and a FIFO is opened only if it has a
 * reader; the call does not wait for one. -EEXIST: everybody may write to the
 * directory, and the file is another user's, or has a second name. -EXDEV:
 * everybody may, and something is mounted at the name. -errno, which
 * exi_log_why() describes in words. */
EXI_SHIM int exi_log_open(const char *path, unsigned int mode);
EXI_SHIM const char *exi_log_why(int err);
/* Whether such a file still has a name; false for -1. */
EXI_SHIM bool exi_log_named(int fd);

/* Writes to a file that the user named by one call with these flags of
 * pwritev2(2), so that lines of processes do not mix. The call raises no signal
 * in the program: neither SIGPIPE (a pipe or FIFO without a reader) nor SIGXFSZ
 * (a file at RLIMIT_FSIZE). Returns how many bytes were written, or -errno. */
EXI_SHIM ssize_t exi_log_put(int fd, const char *text, size_t n, int flags);

/* Writes a line by one call. Keeps errno. */
EXI_SHIM __attribute__((format(printf, 2, 3))) void
exi_log_write(int level, const char *fmt, ...);

/* "descriptor 7 (local 127.0.0.1:40000, peer 127.0.0.1:6379)": a connection as
 * lines of the log name it, without the addresses that the kernel does not have
 * (of UNIX sockets, or after the end of TCP). The text is in *to; keeps errno,
 * takes no lock. EXI_CONN() is an argument of a line, and costs nothing if the
 * line is not written. */
#define EXI_LOG_CONN 160
struct exi_log_conn {
	char text[EXI_LOG_CONN];
};
const char *exi_log_conn(struct exi_log_conn *to, int fd);
#define EXI_CONN(fd) exi_log_conn(&(struct exi_log_conn){ { 0 } }, (fd))

#define exi_log(level, ...)                                                    \
	do {                                                                   \
		if ((level) <=                                                 \
		    __atomic_load_n(&exi_log_level, __ATOMIC_RELAXED))         \
			exi_log_write((level), __VA_ARGS__);                   \
	} while (0)

#define exi_error(...) exi_log(EXI_LOG_ERROR, __VA_ARGS__)
#define exi_warn(...)  exi_log(EXI_LOG_WARN, __VA_ARGS__)
#define exi_info(...)  exi_log(EXI_LOG_INFO, __VA_ARGS__)
#define exi_debug(...) exi_log(EXI_LOG_DEBUG, __VA_ARGS__)
#define exi_trace(...) exi_log(EXI_LOG_TRACE, __VA_ARGS__)

#endif
