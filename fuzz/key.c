/* SPDX-License-Identifier: BSD-2-Clause */
/* core/trust/key.c: the line of a key, by itself and as a file. An accepted key
 * is printed, and parsed again as the same key; its text has its id. */
#include "core/trust/key.h"

#include <sodium.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fuzz/fuzz.h"

#define DIGITS (sizeof(EXI_KEY_WORD " ") - 1)

/* The id is a hash of the key, which no fuzzer finds: made right where the
 * input asks for that. */
static void make_right(char *line, size_t size)
{
	static const unsigned char label[16] = "exs key id";
	uint8_t bytes[EXI_KEY_BYTES], mac[crypto_auth_hmacsha256_BYTES];
	char *id = line + DIGITS + 2 * EXI_KEY_BYTES + 1;
	char hex[EXI_KEY_ID_TEXT];

	if (size < EXI_KEY_LINE || memcmp(line, EXI_KEY_WORD " ", DIGITS) ||
	    sodium_hex2bin(bytes, sizeof(bytes), line + DIGITS,
			   2 * EXI_KEY_BYTES, NULL, NULL, NULL))
		return;
	crypto_auth_hmacsha256(mac, label, sizeof(label), bytes);
	sodium_bin2hex(hex, sizeof(hex), mac, EXI_KEY_ID_BYTES);
	id[-1] = ' ';
	memcpy(id, hex, 2 * EXI_KEY_ID_BYTES);
}

static void same(struct exi_key *k)
{
	char line[EXI_KEY_LINE], why[EXI_KEY_WHY];
	struct exi_key *again;

	exi_key_print(k, line);
	FUZZ_TRUE(exi_key_parse(line, strlen(line), &again, why) == 0);
	FUZZ_TRUE(!memcmp(k->id, again->id, sizeof(k->id)));
	FUZZ_TRUE(!memcmp(k->bytes, again->bytes, sizeof(k->bytes)));
	exi_key_free(again);
}

static bool has_id(const char *text, size_t size, const struct exi_key *k)
{
	char *copy = strndup(text, size), id[EXI_KEY_ID_TEXT];
	bool ret;

	FUZZ_TRUE(copy);
	ret = strcasestr(copy, exi_key_id_text(k->id, id));
	free(copy);
	return ret;
}

static bool as_file(const char *text, size_t size)
{
	static int fd = -1;
	char path[64], why[EXI_KEY_WHY];
	struct exi_key *k;

	if (fd < 0) {
		fd = memfd_create("key", MFD_CLOEXEC);
		FUZZ_TRUE(fchmod(fd, 0600) == 0);
	}
	FUZZ_TRUE(ftruncate(fd, 0) == 0);
	FUZZ_TRUE(pwrite(fd, text, size, 0) == (ssize_t)size);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (exi_key_read(path, &k, why))
		return false;
	same(k);
	exi_key_free(k);
	return true;
}

/* What is no key file of this user's, whatever is in it. */
static void as_another_file(uint8_t which)
{
	static int open_to_all = -1;
	static const char *const paths[] = {
		"/proc/self/fd", /* a folder */
		"/dev/null",
		"/proc/self/fd/none",
		"/proc/self/cwd/none/key",
	};
	char path[64], why[EXI_KEY_WHY];
	struct exi_key *k;

	if (open_to_all < 0) {
		open_to_all = memfd_create("key", MFD_CLOEXEC);
		FUZZ_TRUE(fchmod(open_to_all, 0604) == 0);
	}
	snprintf(path, sizeof(path), "/proc/self/fd/%d", open_to_all);
	which %= sizeof(paths) / sizeof(paths[0]) + 1;
	FUZZ_TRUE(exi_key_read(which ? paths[which - 1] : path, &k, why));
	FUZZ_TRUE(why[0] && strlen(why) < sizeof(why));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *line = malloc(size ? size : 1), why[EXI_KEY_WHY];
	struct exi_key *k;
	bool taken;

	FUZZ_TRUE(line);
	memcpy(line, data, size);
	if (size && data[size - 1] & 1)
		make_right(line, size);
	taken = exi_key_parse(line, size, &k, why) == 0;
	FUZZ_TRUE(!as_file(line, size) || taken);
	if (taken) {
		FUZZ_TRUE(has_id(line, size, k));
		same(k);
		exi_key_free(k);
	}
	as_another_file(size ? data[0] : 0);
	free(line);
	return 0;
}
