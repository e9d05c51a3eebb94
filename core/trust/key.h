/* SPDX-License-Identifier: BSD-2-Clause */
/* The key for upgrades between hosts: 32 random bytes in a file of one line.
 * Ends on different hosts that hold the same key trust each other; see
 * docs/design/security.md.
 *
 * Not in libexs.so: a static library for the modules of fabrics between hosts,
 * and for the tools. Any thread may call every function, and file access may
 * block. In another program's process, a caller first announces that
 * descriptors are made (exi_fds_begin()). No function logs: errors are
 * described in words, with the cure, and never with the key. */
#ifndef EXI_CORE_TRUST_KEY_H
#define EXI_CORE_TRUST_KEY_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EXI_KEY_BYTES	 32
#define EXI_KEY_ID_BYTES 8

/* The line, "exs-key-1 KEY ID", both in hexadecimal digits; the id reveals
 * typing errors. The length includes the newline and a final NUL. */
#define EXI_KEY_WORD "exs-key-1"
#define EXI_KEY_LINE                                                           \
	(sizeof(EXI_KEY_WORD " ") + 2 * EXI_KEY_BYTES + sizeof(" ") - 1 +      \
	 2 * EXI_KEY_ID_BYTES + 1)
#define EXI_KEY_ID_TEXT (2 * EXI_KEY_ID_BYTES + 1)

/* Room for one sentence about a file. */
#define EXI_KEY_WHY (PATH_MAX + 512)

/* The key lies in memory of its own, which is locked where the limits allow it,
 * is in no core dump, and is wiped when it is freed. */
struct exi_key {
	uint8_t bytes[EXI_KEY_BYTES];
	/* Identifies the key: a hash, from which the key cannot be found. */
	uint8_t id[EXI_KEY_ID_BYTES];
	/* the key of EXS_TRUST=hosts, which everybody has */
	bool open;
};

/* The places where a key is looked for. All but the last may be null or
 * empty. */
struct exi_key_search {
	const char *file;	 /* EXS_KEY_FILE; if set, the only place */
	const char *config_home; /* XDG_CONFIG_HOME, if absolute */
	const char *home;	 /* HOME, if absolute */
	/* The place for services, and for users without a home. */
	const char *system;
};

struct exi_key_place {
	char path[PATH_MAX];
	const char *origin; /* "EXS_KEY_FILE", "XDG_CONFIG_HOME", "HOME",
			     * "system" */
	bool there;
};

struct exi_key_places {
	struct exi_key_place place[2];
	unsigned int n;
	/* The index of the first place that has a key; if there is none, of the
	 * first place, where a key is made. A system key that this user may not
	 * read counts only if the user has no other place. */
	unsigned int chosen;
};

/* Sets the places from the environment, which programs that gained privileges
 * at their start ignore. file is EXS_KEY_FILE as configured, and stays the
 * caller's. */
void exi_key_search_init(struct exi_key_search *s, const char *file);

/* Lists the places, and checks which have a key. 0 or -ENAMETOOLONG. */
int exi_key_places(const struct exi_key_search *s, struct exi_key_places *ret);

/* Loads this user's key, and makes one if there is none. Processes that make a
 * key at once, even on hosts that share the folder, get the same one. The
 * errors are those of exi_key_read() and exi_key_write(). */
int exi_key_load(const struct exi_key_search *s, struct exi_key **ret,
		 char why[EXI_KEY_WHY]);

/* Reads a key. -ENOENT: no such file. -EPERM: others could read the file, or it
 * belongs to another user; root's may be read by one group. -EINVAL: not a
 * plain file. -EBADMSG: not a key, a damaged one, or of another version.
 * -errno. */
int exi_key_read(const char *path, struct exi_key **ret, char why[EXI_KEY_WHY]);

/* Writes a file of mode 0600, whole or not at all, and its folders. -EEXIST:
 * there is a file, and replace is not set. -errno. */
int exi_key_write(const char *path, const struct exi_key *key, bool replace,
		  char why[EXI_KEY_WHY]);

/* Parses a line; blanks around it are allowed. 0 or -EBADMSG. */
int exi_key_parse(const char *text, size_t len, struct exi_key **ret,
		  char why[EXI_KEY_WHY]);

/* Writes the line, with its newline; the caller must wipe it. */
void exi_key_print(const struct exi_key *key, char line[EXI_KEY_LINE]);

/* Makes a random key. 0, -ENOMEM or -EIO. */
int exi_key_new(struct exi_key **ret);

/* Makes the key of EXS_TRUST=hosts, which everybody has. */
int exi_key_open(struct exi_key **ret);

/* Wipes and frees a key; null is allowed. */
void exi_key_free(struct exi_key *key);

/* The id as text, for messages; returns text. */
const char *exi_key_id_text(const uint8_t id[EXI_KEY_ID_BYTES],
			    char text[EXI_KEY_ID_TEXT]);

/* Overwrites memory, even if the compiler would leave that out. */
void exi_key_wipe(void *p, size_t len);

#endif
