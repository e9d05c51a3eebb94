/* SPDX-License-Identifier: BSD-2-Clause */
/* The key's file: finds, makes, reads and checks it. */
#include "core/trust/key.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include "core/base/config.h"

#define KEY_DIGITS (2 * EXI_KEY_BYTES)
#define ID_DIGITS  (2 * EXI_KEY_ID_BYTES)
#define BLANKS	   " \t\r\n"

_Static_assert(EXI_KEY_BYTES == crypto_auth_hmacsha256_KEYBYTES,
	       "the key is one of HMAC-SHA-256");
_Static_assert(EXI_KEY_LINE == 9 + 1 + 64 + 1 + 16 + 1 + 1,
	       "word, key, id, newline, NUL");

__attribute__((format(printf, 3, 4))) static int
say(char why[EXI_KEY_WHY], int err, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(why, EXI_KEY_WHY, fmt, ap);
	va_end(ap);
	return err;
}

/* --- keys in memory --- */

static int key_new_empty(struct exi_key **ret)
{
	struct exi_key *key;

	if (sodium_init() < 0)
		return -EIO;
	/* libsodium guards and locks the memory, and leaves it out of core
	 * dumps. */
	key = sodium_malloc(sizeof(*key));
	if (!key)
		return -ENOMEM;
	memset(key, 0, sizeof(*key));
	*ret = key;
	return 0;
}

static void key_identify(struct exi_key *key)
{
	static const unsigned char label[16] = "exs key id";
	unsigned char mac[crypto_auth_hmacsha256_BYTES];

	crypto_auth_hmacsha256(mac, label, sizeof(label), key->bytes);
	memcpy(key->id, mac, sizeof(key->id));
}

int exi_key_new(struct exi_key **ret)
{
	struct exi_key *key;
	int err = key_new_empty(&key);

	if (err)
		return err;
	randombytes_buf(key->bytes, sizeof(key->bytes));
	key_identify(key);
	*ret = key;
	return 0;
}

int exi_key_open(struct exi_key **ret)
{
	static const char everybody[EXI_KEY_BYTES] = "libexs: EXS_TRUST=hosts";
	struct exi_key *key;
	int err = key_new_empty(&key);

	if (err)
		return err;
	memcpy(key->bytes, everybody, sizeof(key->bytes));
	key->open = true;
	key_identify(key);
	*ret = key;
	return 0;
}

void exi_key_free(struct exi_key *key)
{
	sodium_free(key);
}

void exi_key_wipe(void *p, size_t len)
{
	sodium_memzero(p, len);
}

const char *exi_key_id_text(const uint8_t id[EXI_KEY_ID_BYTES],
			    char text[EXI_KEY_ID_TEXT])
{
	return sodium_bin2hex(text, EXI_KEY_ID_TEXT, id, EXI_KEY_ID_BYTES);
}

/* --- the line --- */

void exi_key_print(const struct exi_key *key, char line[EXI_KEY_LINE])
{
	char *to = line + strlen(EXI_KEY_WORD " ");

	memcpy(line, EXI_KEY_WORD " ", (size_t)(to - line));
	sodium_bin2hex(to, KEY_DIGITS + 1, key->bytes, EXI_KEY_BYTES);
	to += KEY_DIGITS;
	*to++ = ' ';
	exi_key_id_text(key->id, to);
	to += ID_DIGITS;
	*to++ = '\n';
	*to = '\0';
}

/* Takes a word off the text; returns its length. */
static size_t word_of(const char **text, size_t *len, const char **ret)
{
	size_t n = 0;

	while (*len && strchr(BLANKS, **text)) {
		(*text)++;
		(*len)--;
	}
	*ret = *text;
	while (n < *len && !strchr(BLANKS, (*text)[n]))
		n++;
	*text += n;
	*len -= n;
	return n;
}

/* Exactly so many bytes in hexadecimal digits. */
static bool take_hex(const char *word, size_t len, uint8_t *to, size_t bytes)
{
	size_t got;

	return len == 2 * bytes &&
	       !sodium_hex2bin(to, bytes, word, len, NULL, &got, NULL) &&
	       got == bytes;
}

static const char *parse(const char *text, size_t len, struct exi_key *key)
{
	const char *word, *digits, *check, *rest;
	size_t word_len = word_of(&text, &len, &word);
	size_t digits_len = word_of(&text, &len, &digits);
	size_t check_len = word_of(&text, &len, &check);
	uint8_t id[EXI_KEY_ID_BYTES];

	if (!word_len)
		return "it is empty";
	if (word_len != strlen(EXI_KEY_WORD) ||
	    memcmp(word, EXI_KEY_WORD, word_len) != 0)
		return word_len > 8 && !memcmp(word, EXI_KEY_WORD, 8)
			       ? "it is a key of another version of libexs"
			       : "it does not begin with " EXI_KEY_WORD;
	if (!take_hex(digits, digits_len, key->bytes, sizeof(key->bytes)))
		return "it is damaged: its second word is not 64 hexadecimal "
		       "digits";
	if (!take_hex(check, check_len, id, sizeof(id)))
		return "it is damaged: its third word is not 16 hexadecimal "
		       "digits";
	if (word_of(&text, &len, &rest))
		return "it has more than a key";
	key_identify(key);
	if (sodium_memcmp(id, key->id, sizeof(id)) != 0)
		return "it is damaged: the third word does not match the "
		       "second";
	return NULL;
}

int exi_key_parse(const char *text, size_t len, struct exi_key **ret,
		  char why[EXI_KEY_WHY])
{
	struct exi_key *key;
	const char *fault;
	int err = key_new_empty(&key);

	if (err)
		return say(why, err, "not enough memory for a key");
	/* strchr() finds the end of its string, too. */
	fault = memchr(text, 0, len) ? "it is not text" : parse(text, len, key);
	if (fault) {
		exi_key_free(key);
		return say(why, -EBADMSG, "%s", fault);
	}
	*ret = key;
	return 0;
}

/* --- where it is --- */

void exi_key_search_init(struct exi_key_search *s, const char *file)
{
	*s = (struct exi_key_search){
		.file = file,
		.config_home = secure_getenv("XDG_CONFIG_HOME"),
		.home = secure_getenv("HOME"),
		.system = EXI_KEY_SYSTEM,
	};
}

static int place_add(struct exi_key_places *p, const char *origin,
		     const char *folder, const char *file)
{
	struct exi_key_place *to = &p->place[p->n];
	struct stat st;
	int n = snprintf(to->path, sizeof(to->path), "%s%s", folder, file);

	if (n < 0 || n >= (int)sizeof(to->path))
		return -ENAMETOOLONG;
	to->origin = origin;
	/* A file that cannot be examined counts as there: reading it gives the
	 * reason. */
	to->there =
		!lstat(to->path, &st) || (errno != ENOENT && errno != ENOTDIR);
	p->n++;
	return 0;
}

static bool absolute(const char *path)
{
	return path && path[0] == '/';
}

static int place_of_user(const struct exi_key_search *s,
			 struct exi_key_places *p)
{
	if (s->file && s->file[0])
		return place_add(p, "EXS_KEY_FILE", "", s->file);
	if (absolute(s->config_home))
		return place_add(p, "XDG_CONFIG_HOME", s->config_home,
				 "/exs/key");
	if (absolute(s->home))
		return place_add(p, "HOME", s->home, "/.config/exs/key");
	return 0;
}

int exi_key_places(const struct exi_key_search *s, struct exi_key_places *ret)
{
	struct exi_key_places p = { .n = 0 };
	int err = place_of_user(s, &p);

	if (!err && (!s->file || !s->file[0]))
		err = place_add(&p, "system", "", s->system);
	if (err)
		return err;
	if (p.n == 2 && faccessat(AT_FDCWD, s->system, R_OK, AT_EACCESS) != 0)
		p.place[1].there = false;
	if (p.n == 2 && !p.place[0].there && p.place[1].there)
		p.chosen = 1;
	*ret = p;
	return 0;
}

/* --- reading --- */

static int refuse_file(const char *path, const struct stat *st,
		       char why[EXI_KEY_WHY])
{
	/* Root's file may be readable by one group, for a service. */
	mode_t others = st->st_uid == 0 ? 037 : 077;

	if (!S_ISREG(st->st_mode))
		return say(why, -EINVAL, "%s is not a regular file", path);
	if (st->st_uid != 0 && st->st_uid != geteuid())
		return say(why, -EPERM,
			   "%s belongs to user %u, who is neither this user "
			   "(%u) nor root; chown it, or set EXS_KEY_FILE to a "
			   "key of your own",
			   path, st->st_uid, geteuid());
	if (st->st_mode & others)
		return say(why, -EPERM,
			   "%s has mode %04o, so other users may have read it; "
			   "make a new one with exs key make --force, or, if "
			   "nobody read it, chmod 600 %s",
			   path, st->st_mode & 07777, path);
	return 0;
}

static int read_line(int fd, char *buf, size_t len, size_t *ret)
{
	size_t got = 0;
	ssize_t n;

	do {
		n = read(fd, buf + got, len - got);
		got += n > 0 ? (size_t)n : 0;
	} while (n > 0 || (n < 0 && errno == EINTR));
	if (n < 0)
		return -errno;
	*ret = got;
	return 0;
}

static int read_open(int fd, const char *path, struct exi_key **ret,
		     char why[EXI_KEY_WHY])
{
	/* Editors may leave blanks at its ends; more is no key. */
	char text[2 * EXI_KEY_LINE], fault[EXI_KEY_WHY];
	struct stat st;
	size_t len = 0;
	int err;

	if (fstat(fd, &st))
		return say(why, -errno, "%s: %s", path, strerrordesc_np(errno));
	err = refuse_file(path, &st, why);
	if (err)
		return err;
	err = read_line(fd, text, sizeof(text), &len);
	if (err)
		say(why, err, "%s: %s", path, strerrordesc_np(-err));
	else if (len == sizeof(text))
		err = say(fault, -EBADMSG, "it is too long");
	else
		err = exi_key_parse(text, len, ret, fault);
	if (err == -EBADMSG)
		say(why, err,
		    "%s is not a usable key: %s; copy it again from a host "
		    "that has it, or make a new one: exs key make --force",
		    path, fault);
	else if (err == -ENOMEM || err == -EIO)
		say(why, err, "%s: %s", path, strerrordesc_np(-err));
	sodium_memzero(text, sizeof(text));
	return err;
}

static int say_unopened(const char *path, int err, char why[EXI_KEY_WHY])
{
	struct stat st;

	if (err == ENOENT && !lstat(path, &st))
		return say(why, -err,
			   "%s is a symbolic link to nothing; remove it, or "
			   "exs key make --force",
			   path);
	if (err == ENOENT)
		return say(why, -err, "there is no key in %s; exs key make",
			   path);
	if (err == EACCES)
		return say(why, -err,
			   "%s cannot be read by this user (%u); if it is "
			   "root's, root may let one group read it: chgrp "
			   "GROUP %s; chmod 640 %s",
			   path, geteuid(), path, path);
	return say(why, -err, "%s: %s", path, strerrordesc_np(err));
}

int exi_key_read(const char *path, struct exi_key **ret, char why[EXI_KEY_WHY])
{
	/* O_NONBLOCK: the path may be a FIFO without a process at its other
	 * end. */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	int err;

	if (fd < 0)
		return say_unopened(path, errno, why);
	err = read_open(fd, path, ret, why);
	close(fd);
	return err;
}

/* --- making --- */

/* Makes the missing folders of a path. Those of the system are for all users,
 * who read what root allows; the user's own are for nobody else. */
static int make_folders(const char *path)
{
	mode_t mode = strncmp(path, "/etc/", 5) ? 0700 : 0755;
	char folder[PATH_MAX];
	struct stat st;

	snprintf(folder, sizeof(folder), "%s", path);
	for (char *c = strchr(folder + 1, '/'); c; c = strchr(c + 1, '/')) {
		*c = '\0';
		if (stat(folder, &st) != 0) {
			if (!mkdir(folder, mode))
				/* chmod() gives the mode in spite of the
				 * umask. */
				chmod(folder, mode);
			else if (errno != EEXIST)
				return -errno;
		}
		*c = '/';
	}
	return 0;
}

static int fill(int fd, const struct exi_key *key)
{
	char line[EXI_KEY_LINE];
	ssize_t n;
	int err = 0;

	exi_key_print(key, line);
	n = write(fd, line, EXI_KEY_LINE - 1);
	if (n != EXI_KEY_LINE - 1)
		err = n < 0 ? -errno : -ENOSPC;
	sodium_memzero(line, sizeof(line));
	/* fchmod() gives the mode in spite of the umask; fsync() puts the bytes
	 * before the name. */
	if (!err && (fchmod(fd, 0600) || fsync(fd)))
		err = -errno;
	return err;
}

/* A unique name beside the file's. */
static int name_beside(const char *path, char ret[PATH_MAX])
{
	const char *slash = strrchr(path, '/');
	int folder = slash ? (int)(slash - path) + 1 : 0;
	uint64_t number;
	int n;

	randombytes_buf(&number, sizeof(number));
	n = snprintf(ret, PATH_MAX, "%.*s.exs-key-%016" PRIx64, folder, path,
		     number);
	return n < PATH_MAX ? 0 : -ENAMETOOLONG;
}

/* Links a complete file to the name, if that is free: this works on NFS, too,
 * where neither unnamed files nor locks can be relied on. */
static int put_in_place(const char *beside, const char *path, bool replace)
{
	if (replace)
		return rename(beside, path) ? -errno : 0;
	return link(beside, path) ? -errno : 0;
}

static int write_file(const char *path, const struct exi_key *key, bool replace)
{
	char beside[PATH_MAX];
	int fd, err;

	if (sodium_init() < 0)
		return -EIO;
	err = name_beside(path, beside);
	if (!err)
		err = make_folders(path);
	if (err)
		return err;
	fd = open(beside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	err = fill(fd, key);
	close(fd);
	if (!err)
		err = put_in_place(beside, path, replace);
	if (err || !replace)
		unlink(beside);
	return err;
}

int exi_key_write(const char *path, const struct exi_key *key, bool replace,
		  char why[EXI_KEY_WHY])
{
	int err = write_file(path, key, replace);

	switch (err) {
	case 0:
		return 0;
	case -EEXIST:
		return say(why, err,
			   "there is a key in %s already; --force "
			   "replaces it",
			   path);
	case -EPERM:
	case -EOPNOTSUPP:
		return say(why, err,
			   "no key can be made in %s: its file system has no "
			   "links, or does not permit this user to make one; "
			   "set EXS_KEY_FILE to a file elsewhere",
			   path);
	default:
		return say(why, err,
			   "no key can be made in %s: %s; set EXS_KEY_FILE to "
			   "a path that this user (%u) may write",
			   path, strerrordesc_np(-err), geteuid());
	}
}

static int make(const char *path, char why[EXI_KEY_WHY])
{
	struct exi_key *key;
	int err = exi_key_new(&key);

	if (err)
		return say(why, err, "no key can be made: %s",
			   strerrordesc_np(-err));
	err = exi_key_write(path, key, false, why);
	exi_key_free(key);
	return err;
}

int exi_key_load(const struct exi_key_search *s, struct exi_key **ret,
		 char why[EXI_KEY_WHY])
{
	struct exi_key_places p;
	const char *path;
	int err = exi_key_places(s, &p);

	if (err)
		return say(why, err, "the path of the key is too long");
	path = p.place[p.chosen].path;
	if (!p.place[p.chosen].there) {
		err = make(path, why);
		/* Another process was faster: uses its key. */
		if (err && err != -EEXIST)
			return err;
	}
	return exi_key_read(path, ret, why);
}
