/* SPDX-License-Identifier: BSD-2-Clause */
/* The line "exs-key-1 KEY ID", both in hexadecimal digits. */
#include "core/base/keyfile.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/config.h"
#include "core/base/hash.h"

#define WORD   "exs-key-1"
#define BLANKS " \t\r\n"
#define ID     8
#define LINE   256

static int digit(char c)
{
	static const char digits[] = "0123456789abcdef";
	const char *at = c ? strchr(digits, c | 0x20) : NULL;

	return at ? (int)(at - digits) : -1;
}

/* Takes the next word, of exactly n bytes in hexadecimal digits. */
static bool take_hex(char **text, size_t n, uint8_t *ret)
{
	const char *word = strtok_r(NULL, BLANKS, text);

	if (!word || strlen(word) != 2 * n)
		return false;
	for (size_t i = 0; i < n; i++) {
		int high = digit(word[2 * i]), low = digit(word[2 * i + 1]);

		if (high < 0 || low < 0)
			return false;
		ret[i] = (uint8_t)(high << 4 | low);
	}
	return true;
}

static int parse(char *line, uint8_t ret[EXI_KEYFILE_BYTES])
{
	static const char label[16] = "exs key id";
	uint8_t key[EXI_KEYFILE_BYTES], id[ID], mac[EXI_SHA256];
	char *text;
	const char *word = strtok_r(line, BLANKS, &text);
	bool good = word && !strcmp(word, WORD) &&
		    take_hex(&text, sizeof(key), key) &&
		    take_hex(&text, sizeof(id), id) &&
		    !strtok_r(NULL, BLANKS, &text);

	if (good) {
		exi_hmac_sha256(key, label, sizeof(label), mac);
		good = !memcmp(mac, id, sizeof(id));
	}
	if (good)
		memcpy(ret, key, sizeof(key));
	explicit_bzero(key, sizeof(key));
	return good ? 0 : -EBADMSG;
}

/* Root's file may be readable by one group, for a service. */
static int check_owner(const struct stat *st)
{
	if (!S_ISREG(st->st_mode))
		return -EINVAL;
	if (st->st_uid != 0 && st->st_uid != geteuid())
		return -EPERM;
	return st->st_mode & (st->st_uid == 0 ? 037 : 077) ? -EPERM : 0;
}

static int read_path(const char *path, uint8_t ret[EXI_KEYFILE_BYTES])
{
	/* O_NONBLOCK: the path may be a FIFO without a process at its other
	 * end. */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	char line[LINE] = "";
	struct stat st;
	ssize_t n;
	int err;

	if (fd < 0)
		return -errno;
	err = fstat(fd, &st) < 0 ? -errno : check_owner(&st);
	if (!err) {
		n = read(fd, line, sizeof(line) - 1);
		err = n < 0			   ? -errno
		      : memchr(line, 0, (size_t)n) ? -EBADMSG
						   : parse(line, ret);
	}
	explicit_bzero(line, sizeof(line));
	close(fd);
	return err;
}

int exi_keyfile_read(uint8_t ret[EXI_KEYFILE_BYTES])
{
	const struct exi_config *c = exi_config();
	const char *folder = c->config_home, *name = "/exs/key";
	char path[PATH_MAX];
	int err = -ENOENT;

	if (c->key_file[0])
		return read_path(c->key_file, ret);
	if (!folder || *folder != '/') {
		folder = c->home;
		name = "/.config/exs/key";
	}
	if (folder && *folder == '/' &&
	    snprintf(path, sizeof(path), "%s%s", folder, name) <
		    (int)sizeof(path))
		err = read_path(path, ret);
	return err == -ENOENT ? read_path(EXI_KEY_SYSTEM, ret) : err;
}
