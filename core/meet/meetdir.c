/* SPDX-License-Identifier: BSD-2-Clause */
/* Names and proofs of EXS_MEET_DIR. */
#include "core/meet/meetdir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "core/base/abstract.h"
#include "core/base/config.h"
#include "core/base/fds.h"
#include "core/base/keyfile.h"
#include "core/base/log.h"
#include "core/base/proof.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif
#define PIDFS	  0x50494446
#define BOOT_ID	  36
#define NAME_ID	  16 /* bytes of a name */
#define SWEEP_MAX 512

static int state = -ENOENT;
static uint8_t key[EXI_KEYFILE_BYTES];
static char boot_id[BOOT_ID];

/* --- who is there -------------------------------------------------------- */

/* The number of the process that the descriptor refers to, which no other
 * process of this host has or will have. Closes the descriptor. */
static int process_of(int pidfd, uint64_t *ret)
{
	struct statfs fs;
	struct stat st;
	int err = 0;

	if (fstatfs(pidfd, &fs) < 0 || fstat(pidfd, &st) < 0)
		err = -errno;
	else if (fs.f_type != PIDFS)
		err = -EOPNOTSUPP;
	else
		*ret = st.st_ino;
	close(pidfd);
	return err;
}

static int own_process(uint64_t *ret)
{
	int fd = (int)syscall(SYS_pidfd_open, getpid(), 0);

	return fd < 0 ? -errno : process_of(fd, ret);
}

static int peer_process(int link, uint64_t *ret)
{
	int fd = -1;
	socklen_t len = sizeof(fd);

	if (getsockopt(link, SOL_SOCKET, SO_PEERPIDFD, &fd, &len) < 0)
		return errno == ENOPROTOOPT ? -EOPNOTSUPP : -errno;
	return process_of(fd, ret);
}

/* --- the start ----------------------------------------------------------- */

static int read_boot_id(void)
{
	int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return -errno;
	n = read(fd, boot_id, sizeof(boot_id));
	close(fd);
	return n == (ssize_t)sizeof(boot_id) ? 0 : -EIO;
}

static void complain(const char *what, int err)
{
	if (exi_log_level >= EXI_LOG_WARN)
		exi_log_write(EXI_LOG_WARN, "EXS_MEET_DIR=%s: %s: %s",
			      exi_config()->meet_dir, what, exi_log_why(-err));
}

/* Whether the directory is there, which may be made later. */
static int find_directory(void)
{
	int fd = open(exi_config()->meet_dir, O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	close(fd);
	return 0;
}

void exi_meetdir_init(void)
{
	uint64_t process;
	int err;

	if (!exi_config()->meet_dir[0])
		return;
	exi_fds_begin();
	err = find_directory();
	if (err)
		complain("no program can be met there", err);
	err = exi_keyfile_read(key);
	if (err) {
		complain("no usable key, see exs key", err);
		state = -ENOKEY;
		goto end;
	}
	err = own_process(&process);
	if (!err)
		err = read_boot_id();
	if (err)
		complain("the system cannot say who is at the other end", err);
	state = err ? -EOPNOTSUPP : 0;
end:
	exi_fds_end();
}

int exi_meetdir_state(void)
{
	return state;
}

/* --- names --------------------------------------------------------------- */

struct __attribute__((packed)) naming {
	char label[16];
	char boot_id[BOOT_ID];
	char kind;
	uint8_t of[64];
};

socklen_t exi_meetdir_name(char kind, const void *of, size_t len,
			   struct sockaddr_un *ret)
{
	struct naming n = { .label = "exs meet name", .kind = kind };
	uint8_t mac[EXI_SHA256];
	char hex[2 * NAME_ID + 1];
	int at;

	if (state || len > sizeof(n.of))
		return 0;
	memcpy(n.boot_id, boot_id, sizeof(boot_id));
	memcpy(n.of, of, len);
	exi_hmac_sha256(key, &n, sizeof(n), mac);
	memset(ret, 0, sizeof(*ret));
	ret->sun_family = AF_UNIX;
	exi_hex(hex, mac, NAME_ID);
	at = snprintf(ret->sun_path, sizeof(ret->sun_path), "%s/exs-%c-%s",
		      exi_config()->meet_dir, kind, hex);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
			   (size_t)at);
}

/* The two ends in the order in which they connected. */
struct __attribute__((packed)) ends {
	uint8_t address_a[16];
	uint8_t address_b[16];
	uint16_t port_a;
	uint16_t port_b;
};

static struct ends ends_of(const struct exi_tuple *t, bool connects)
{
	struct ends e = { .port_a = 0 };

	/* Of a UNIX connection the end that accepted knows no number of the
	 * other. */
	if (t->family == AF_UNIX) {
		memcpy(e.address_a, &t->netns, sizeof(t->netns));
		memcpy(e.address_b, connects ? &t->peer_cookie : &t->cookie,
		       sizeof(t->cookie));
		return e;
	}
	memcpy(e.address_a, connects ? t->local : t->peer, 16);
	memcpy(e.address_b, connects ? t->peer : t->local, 16);
	e.port_a = connects ? t->local_port : t->peer_port;
	e.port_b = connects ? t->peer_port : t->local_port;
	return e;
}

socklen_t exi_meetdir_meeting(const struct exi_tuple *t, bool connects,
			      struct sockaddr_un *ret)
{
	struct ends e = ends_of(t, connects);

	return exi_meetdir_name(t->family == AF_UNIX ? 'u' : 'm', &e, sizeof(e),
				ret);
}

socklen_t exi_meetdir_marker(uint16_t port, struct sockaddr_un *ret)
{
	return exi_meetdir_name('p', &port, sizeof(port), ret);
}

/* Opens the file at a path in the directory itself, not where a stranger's
 * symbolic link leads, or what he has mounted there: that may be another
 * program's socket, or a file system that makes its users wait. Gives a path of
 * the file. The descriptor, or -errno. */
static int open_itself(const char *path, char of_fd[32], struct stat *st)
{
	struct open_how how = { .flags = O_PATH | O_NOFOLLOW | O_CLOEXEC,
				.resolve = RESOLVE_NO_XDEV };
	int dir = open(exi_config()->meet_dir, O_PATH | O_CLOEXEC), fd;

	if (dir < 0)
		return -errno;
	fd = (int)syscall(SYS_openat2, dir, strrchr(path, '/') + 1, &how,
			  sizeof(how));
	close(dir);
	if (fd < 0 || fstat(fd, st) < 0) {
		int err = errno;

		if (fd >= 0)
			close(fd);
		return -err;
	}
	snprintf(of_fd, 32, "/proc/self/fd/%d", fd);
	return fd;
}

int exi_meetdir_connect(int fd, const struct sockaddr_un *name)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	struct stat st;
	int path = open_itself(name->sun_path, at.sun_path, &st), err = 0;

	if (path < 0)
		return path;
	if (!S_ISSOCK(st.st_mode))
		err = -ECONNREFUSED;
	else if (connect(fd, (struct sockaddr *)&at, sizeof(at)) < 0)
		err = -errno;
	close(path);
	return err;
}

/* Connects for a moment: 0, or -ECONNREFUSED if no process has the name any
 * more. */
static int probe(const struct sockaddr_un *name)
{
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int err;

	if (fd < 0)
		return -errno;
	shutdown(fd, SHUT_RD);
	err = exi_meetdir_connect(fd, name);
	close(fd);
	return err == -EPROTOTYPE ? 0 : err;
}

/* Only one process at a time removes a name and takes it: a second would remove
 * the name that the first has just bound. -EAGAIN: another process is at it. */
static int lock_dir(void)
{
	int fd = open(exi_config()->meet_dir,
		      O_RDONLY | O_DIRECTORY | O_CLOEXEC),
	    err;

	if (fd < 0)
		return -errno;
	if (flock(fd, LOCK_EX | LOCK_NB) == 0)
		return fd;
	err = -errno;
	close(fd);
	return err;
}

/* A process of another user may be the peer. If others can write to the
 * directory, the file at the path may not be ours: only a socket of this user
 * with one name is opened to all. */
static void open_to_all(const char *path)
{
	char of_fd[32];
	struct stat st;
	int fd = open_itself(path, of_fd, &st);

	if (fd < 0)
		return;
	if (S_ISSOCK(st.st_mode) && st.st_nlink == 1 && st.st_uid == geteuid())
		chmod(of_fd, 0666);
	close(fd);
}

static int take_over(int fd, const struct sockaddr_un *name, socklen_t len)
{
	int dir = lock_dir(), err = -EADDRINUSE;

	if (dir < 0)
		return -EADDRINUSE;
	if (probe(name) == -ECONNREFUSED && unlink(name->sun_path) == 0)
		err = bind(fd, (const struct sockaddr *)name, len) < 0 ? -errno
								       : 0;
	close(dir);
	return err;
}

int exi_meetdir_bind(int fd, const struct sockaddr_un *name, socklen_t len)
{
	static bool complained;
	int err = bind(fd, (const struct sockaddr *)name, len) < 0 ? -errno : 0;

	if (err == -EADDRINUSE)
		err = take_over(fd, name, len);
	if (!err)
		open_to_all(name->sun_path);
	else if (err != -EADDRINUSE &&
		 !__atomic_exchange_n(&complained, true, __ATOMIC_RELAXED))
		complain("no name can be made there", err);
	return err;
}

void exi_meetdir_unbind(const struct sockaddr_un *name)
{
	int saved = errno;

	unlink(name->sun_path);
	errno = saved;
}

/* A name of ours, in the directory. */
static bool is_name(const char *name)
{
	return !strncmp(name, "exs-", 4) && name[4] && name[5] == '-' &&
	       strlen(name) == 6 + 2 * NAME_ID;
}

static void sweep_one(const char *name)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };

	if (is_name(name) &&
	    snprintf(at.sun_path, sizeof(at.sun_path), "%s/%s",
		     exi_config()->meet_dir, name) < (int)sizeof(at.sun_path) &&
	    probe(&at) == -ECONNREFUSED)
		unlink(at.sun_path);
}

/* The first listen() of a program waits for it, and strangers may have made the
 * names: checks only a few. */
void exi_meetdir_sweep(void)
{
	int lock = state ? -1 : lock_dir();
	struct dirent *e;
	DIR *dir;

	if (lock < 0)
		return;
	dir = opendir(exi_config()->meet_dir);
	for (int i = 0; dir && i < SWEEP_MAX && (e = readdir(dir)); i++)
		sweep_one(e->d_name);
	if (dir)
		closedir(dir);
	close(lock);
}

bool exi_meetdir_marked(uint16_t port)
{
	struct sockaddr_un name;
	socklen_t len = exi_meetdir_marker(port, &name);

	return len && probe(&name) == 0;
}

/* --- the proof ----------------------------------------------------------- */

int exi_meetdir_nonce(uint8_t ret[EXI_MEETDIR_NONCE])
{
	return getrandom(ret, EXI_MEETDIR_NONCE, GRND_NONBLOCK) ==
			       EXI_MEETDIR_NONCE
		       ? 0
		       : -EAGAIN;
}

struct __attribute__((packed)) proving {
	char label[16];
	char boot_id[BOOT_ID];
	struct ends ends;
	uint8_t nonce_a[EXI_MEETDIR_NONCE];
	uint8_t nonce_b[EXI_MEETDIR_NONCE];
	uint64_t process_a;
	uint64_t process_b;
	uint64_t said[2];
};

int exi_meetdir_proof(const struct exi_meetdir_claim *c, int link, bool a,
		      uint8_t ret[EXI_SHA256])
{
	struct proving p = { .ends = ends_of(c->t, c->connects) };
	/* For the compiler, which does not see that both are set without an
	 * error. */
	uint64_t own = 0, peer = 0;
	int err = state ? -EOPNOTSUPP : own_process(&own);

	if (!err)
		err = peer_process(link, &peer);
	if (err)
		return err;
	memcpy(p.label, a ? "exs meet end A" : "exs meet end B", 14);
	memcpy(p.boot_id, boot_id, sizeof(boot_id));
	memcpy(p.nonce_a, c->connects ? c->own : c->peer, sizeof(p.nonce_a));
	memcpy(p.nonce_b, c->connects ? c->peer : c->own, sizeof(p.nonce_b));
	p.process_a = c->connects ? own : peer;
	p.process_b = c->connects ? peer : own;
	p.said[0] = c->said[0];
	p.said[1] = c->said[1];
	exi_hmac_sha256(key, &p, sizeof(p), ret);
	return 0;
}

bool exi_meetdir_same(const uint8_t a[EXI_SHA256], const uint8_t b[EXI_SHA256])
{
	unsigned int differs = 0;

	for (int i = 0; i < EXI_SHA256; i++)
		differs |= a[i] ^ b[i];
	return !differs;
}
