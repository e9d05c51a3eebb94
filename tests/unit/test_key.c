/* SPDX-License-Identifier: BSD-2-Clause */
/* The key's file: made once whoever makes it, whole or not at all, for nobody
 * else to read; and every bad one is refused with a word on what to do. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/config.h"
#include "core/trust/key.h"
#include "tests/support/bytes.h"
#include "tests/support/check.h"
#include "tests/support/proc.h"
#include "tests/support/run.h"
#include "tests/support/wait.h"

#define LINE_LEN (EXI_KEY_LINE - 1)

static char folder[] = "/tmp/exs-key-XXXXXX";
static char why[EXI_KEY_WHY];

static int discard(const char *path, const struct stat *st, int type,
		   struct FTW *at)
{
	/* A folder that nobody may enter can be one of ours. */
	return remove(path);
}

static void folder_begin(void)
{
	strcpy(folder + strlen(folder) - 6, "XXXXXX");
	T(mkdtemp(folder));
}

static void folder_end(void)
{
	T_OK(nftw(folder, discard, 16, FTW_DEPTH | FTW_PHYS));
}

/* A path in the folder, in one of four buffers. */
static const char *in(const char *name)
{
	static char paths[4][256];
	static unsigned int next;
	char *path = paths[next++ % 4];

	snprintf(path, sizeof(paths[0]), "%s/%s", folder, name);
	return path;
}

static void put(const char *path, const void *text, size_t len, mode_t mode)
{
	int fd;

	unlink(path);
	fd = T_OK(open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
	T_EQ(write(fd, text, len), len);
	T_OK(fchmod(fd, mode));
	close(fd);
}

static mode_t mode_of(const char *path)
{
	struct stat st;

	T_OK(lstat(path, &st));
	return st.st_mode & 07777;
}

static unsigned int files_in(const char *path)
{
	DIR *d = opendir(path);
	unsigned int n = 0;

	T(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n - 2;
}

static bool same_key(const struct exi_key *a, const struct exi_key *b)
{
	return !memcmp(a->bytes, b->bytes, sizeof(a->bytes)) &&
	       !memcmp(a->id, b->id, sizeof(a->id));
}

static struct exi_key *new_key(void)
{
	struct exi_key *key = NULL;

	T_EQ(exi_key_new(&key), 0);
	return key;
}

static struct exi_key *read_key(const char *path)
{
	struct exi_key *key = NULL;
	int err = exi_key_read(path, &key, why);

	T_MSG(!err, "%s: %s", t_errname(-err), why);
	return key;
}

/* Nothing of a key is ever said. */
static void says_no_key(const char *line)
{
	const char *digits = line + strlen(EXI_KEY_WORD " ");
	char piece[9] = "";

	for (int i = 0; i + 8 <= 2 * EXI_KEY_BYTES; i++) {
		memcpy(piece, digits + i, 8);
		T_MSG(!strstr(why, piece), "the key is in \"%s\"", why);
	}
}

static void refused(const char *path, int err, const char *word)
{
	struct exi_key *key = NULL;

	why[0] = '\0';
	T_EQ(exi_key_read(path, &key, why), err);
	T(!key);
	T_MSG(strstr(why, word), "\"%s\" is not in \"%s\"", word, why);
	T_MSG(strstr(why, path), "\"%s\" is not in \"%s\"", path, why);
}

static struct exi_key_search search_at(const char *file)
{
	return (struct exi_key_search){ .file = file, .system = "/none" };
}

/* Whether the tests may give files away. */
static bool is_root(void)
{
	return geteuid() == 0;
}

static void a_key_is_made_and_read_again(void)
{
	struct exi_key *made = NULL, *again;
	struct exi_key_search s;
	char home[64];

	folder_begin();
	snprintf(home, sizeof(home), "%s", in("home"));
	s = (struct exi_key_search){ .home = home, .system = "/none" };
	T_MSG(exi_key_load(&s, &made, why) == 0, "%s", why);
	T_EQ(mode_of(in("home/.config/exs/key")), 0600);
	T_EQ(mode_of(in("home/.config/exs")), 0700);
	T_EQ(mode_of(in("home/.config")), 0700);
	T_EQ(files_in(in("home/.config/exs")), 1);
	again = read_key(in("home/.config/exs/key"));
	T(same_key(made, again));
	exi_key_free(again);
	T_EQ(exi_key_load(&s, &again, why), 0);
	T(same_key(made, again));
	exi_key_free(again);
	exi_key_free(made);
	folder_end();
}

static void keys_differ_and_so_do_their_ids(void)
{
	struct exi_key *a = new_key(), *b = new_key(), *open = NULL;

	T(memcmp(a->bytes, b->bytes, sizeof(a->bytes)));
	T(memcmp(a->id, b->id, sizeof(a->id)));
	T(!a->open && !b->open);
	T_EQ(exi_key_open(&open), 0);
	T(open->open);
	T(memcmp(a->id, open->id, sizeof(a->id)));
	exi_key_free(a);
	exi_key_free(b);
	exi_key_free(open);
	exi_key_free(NULL);
}

/* Files outlive releases: the line and the id of a key stay what they are. */
static void the_line_is_what_it_always_was(void)
{
	static const char known[] =
		"exs-key-1 000102030405060708090a0b0c0d0e0f"
		"101112131415161718191a1b1c1d1e1f 97c42c30a5deece3\n";
	char line[EXI_KEY_LINE], id[EXI_KEY_ID_TEXT];
	struct exi_key *key = NULL;
	int i;

	T_MSG(exi_key_parse(known, LINE_LEN, &key, why) == 0, "%s", why);
	for (i = 0; i < EXI_KEY_BYTES; i++)
		T_EQ(key->bytes[i], i);
	exi_key_print(key, line);
	T_EQ(strlen(line), LINE_LEN);
	T(!strcmp(line, known));
	T(!strncmp(exi_key_id_text(key->id, id), known + LINE_LEN - 17, 16));
	exi_key_free(key);
}

static void blanks_and_capitals_are_a_matter_of_taste(void)
{
	struct exi_key *key = new_key(), *got = NULL;
	char line[EXI_KEY_LINE], text[4 * EXI_KEY_LINE];
	int i, len;

	exi_key_print(key, line);
	for (i = (int)strlen(EXI_KEY_WORD); i < (int)LINE_LEN; i++)
		if (line[i] >= 'a' && line[i] <= 'f')
			line[i] -= 32;
	line[LINE_LEN - 1] = '\0';
	len = snprintf(text, sizeof(text), " \t%s \r\n\n", line);
	T_EQ(exi_key_parse(text, (size_t)len, &got, why), 0);
	T(same_key(key, got));
	exi_key_free(got);
	/* Without a newline. */
	T_EQ(exi_key_parse(text + 2, LINE_LEN - 1, &got, why), 0);
	T(same_key(key, got));
	exi_key_free(got);
	exi_key_free(key);
}

static void every_damaged_character_is_found(void)
{
	struct exi_key *key = new_key(), *got = NULL;
	char line[EXI_KEY_LINE], text[EXI_KEY_LINE];
	size_t i;

	exi_key_print(key, line);
	for (i = 0; i < LINE_LEN - 1; i++) {
		for (int bit = 0; bit < 8; bit++) {
			memcpy(text, line, sizeof(text));
			text[i] ^= (char)(1 << bit);
			/* Capitals are no damage. */
			if (bit == 5 && i >= strlen(EXI_KEY_WORD " ") &&
			    (line[i] | 32) >= 'a' && (line[i] | 32) <= 'f')
				continue;
			T_MSG(exi_key_parse(text, LINE_LEN, &got, why) ==
				      -EBADMSG,
			      "bit %d of character %zu", bit, i);
			says_no_key(line);
		}
	}
	for (i = 0; i < LINE_LEN - 1; i++) {
		T_EQ(exi_key_parse(line, i, &got, why), -EBADMSG);
		says_no_key(line);
	}
	exi_key_free(key);
}

static void what_is_no_key_is_refused(void)
{
	char line[EXI_KEY_LINE], text[8192];
	struct exi_key *key = new_key();
	const char *path;
	int n;

	folder_begin();
	path = in("key");
	exi_key_print(key, line);
	put(path, "", 0, 0600);
	refused(path, -EBADMSG, "it is empty");
	put(path, "\n \n", 3, 0600);
	refused(path, -EBADMSG, "it is empty");
	put(path, "ssh-ed25519 AAAA\n", 17, 0600);
	refused(path, -EBADMSG, "does not begin with exs-key-1");
	put(path, "exs-key-2 abc\n", 14, 0600);
	refused(path, -EBADMSG, "another version");
	put(path, line, LINE_LEN / 2, 0600);
	refused(path, -EBADMSG, "damaged");
	n = snprintf(text, sizeof(text), "%s%s", line, line);
	put(path, text, (size_t)n, 0600);
	refused(path, -EBADMSG, "has more than a key");
	n = snprintf(text, sizeof(text), "%s# mine\n", line);
	put(path, text, (size_t)n, 0600);
	refused(path, -EBADMSG, "has more than a key");
	memset(text, ' ', sizeof(text));
	put(path, text, sizeof(text), 0600);
	refused(path, -EBADMSG, "too long");
	memcpy(text, line, LINE_LEN);
	text[LINE_LEN] = '\0';
	put(path, text, LINE_LEN + 1, 0600);
	refused(path, -EBADMSG, "not text");
	memset(text, 0, sizeof(text));
	put(path, text, 64, 0600);
	refused(path, -EBADMSG, "not text");
	refused(in("elsewhere"), -ENOENT, "exs key make");
	exi_key_free(key);
	folder_end();
}

static void what_others_may_read_is_refused(void)
{
	static const mode_t bad[] = { 0604, 0602, 0601, 0644, 0666,
				      0660, 0620, 0610, 0777, 0444 };
	static const mode_t good[] = { 0600, 0400, 0700 };
	struct exi_key *key = new_key();
	char line[EXI_KEY_LINE];
	const char *path;
	size_t i;

	folder_begin();
	path = in("key");
	exi_key_print(key, line);
	for (i = 0; i < T_COUNT(bad); i++) {
		put(path, line, LINE_LEN, bad[i]);
		refused(path, -EPERM, "chmod 600");
	}
	for (i = 0; i < T_COUNT(good); i++) {
		put(path, line, LINE_LEN, good[i]);
		exi_key_free(read_key(path));
	}
	/* A group is root's to trust. */
	put(path, line, LINE_LEN, 0640);
	if (is_root())
		exi_key_free(read_key(path));
	else
		refused(path, -EPERM, "chmod 600");
	if (is_root()) {
		put(path, line, LINE_LEN, 0600);
		T_OK(chown(path, 65533, 0));
		refused(path, -EPERM, "belongs to user 65533");
	}
	exi_key_free(key);
	folder_end();
}

static void as_nobody(void (*f)(void))
{
	pid_t pid = t_fork();

	if (!pid) {
		t_become_nobody();
		f();
		_exit(0);
	}
	t_join(pid);
}

static void read_roots_keys(void)
{
	refused(in("0600"), -EACCES, "chmod 640");
	refused(in("0644"), -EPERM, "0644");
	exi_key_free(read_key(in("0640")));
	/* What is his own is for no group. */
	refused(in("own"), -EPERM, "0640");
}

static void a_service_reads_what_root_lets_its_group_read(void)
{
	struct exi_key *key = new_key();
	char line[EXI_KEY_LINE];

	if (!is_root()) {
		exi_key_free(key);
		return;
	}
	folder_begin();
	T_OK(chmod(folder, 0755));
	exi_key_print(key, line);
	put(in("0600"), line, LINE_LEN, 0600);
	put(in("0644"), line, LINE_LEN, 0644);
	put(in("0640"), line, LINE_LEN, 0640);
	T_OK(chown(in("0640"), 0, 65534));
	put(in("own"), line, LINE_LEN, 0640);
	T_OK(chown(in("own"), 65534, 65534));
	as_nobody(read_roots_keys);
	exi_key_free(key);
	folder_end();
}

static void only_plain_files_are_read(void)
{
	struct exi_key *key = NULL;
	const char *path;

	folder_begin();
	path = in("key");
	T_OK(mkdir(path, 0700));
	refused(path, -EINVAL, "regular file");
	T_OK(rmdir(path));
	/* Nobody is at its other end. */
	T_OK(mkfifo(path, 0600));
	refused(path, -EINVAL, "regular file");
	T_OK(unlink(path));
	T_OK(symlink("/dev/zero", path));
	refused(path, -EINVAL, "regular file");
	T_OK(unlink(path));
	T_OK(symlink("key", path));
	T_EQ(exi_key_read(path, &key, why), -ELOOP);
	folder_end();
}

static void a_symbolic_link_is_followed_but_not_made_a_file_of(void)
{
	struct exi_key *key = new_key(), *got = NULL, *other = new_key();
	struct exi_key_search s;
	struct stat st;

	folder_begin();
	T_EQ(exi_key_write(in("real"), key, false, why), 0);
	T_OK(symlink("real", in("key")));
	got = read_key(in("key"));
	T(same_key(key, got));
	exi_key_free(got);
	T_EQ(exi_key_write(in("key"), other, false, why), -EEXIST);
	T(strstr(why, "--force"));

	/* To nothing: nobody's choice of where the key goes. */
	T_OK(symlink("nothing", in("lost")));
	s = search_at(in("lost"));
	T_EQ(exi_key_load(&s, &got, why), -ENOENT);
	T_MSG(strstr(why, "symbolic link to nothing"), "%s", why);
	T(access(in("nothing"), F_OK) != 0);

	/* Replacing takes the link's place, not its target's. */
	T_EQ(exi_key_write(in("key"), other, true, why), 0);
	T_OK(lstat(in("key"), &st));
	T(S_ISREG(st.st_mode));
	got = read_key(in("real"));
	T(same_key(key, got));
	exi_key_free(got);
	got = read_key(in("key"));
	T(same_key(other, got));
	exi_key_free(got);
	T_EQ(files_in(folder), 3);
	exi_key_free(key);
	exi_key_free(other);
	folder_end();
}

static void the_mode_is_ours_whatever_the_umask(void)
{
	static const mode_t masks[] = { 0, 0777, 077, 0200 };
	struct exi_key *key = new_key();

	for (size_t i = 0; i < T_COUNT(masks); i++) {
		folder_begin();
		umask(masks[i]);
		T_MSG(exi_key_write(in("a/b/key"), key, false, why) == 0, "%s",
		      why);
		T_EQ(mode_of(in("a/b/key")), 0600);
		T_EQ(mode_of(in("a/b")), 0700);
		T_EQ(mode_of(in("a")), 0700);
		T_EQ(exi_key_write(in("a/b/key"), key, true, why), 0);
		T_EQ(mode_of(in("a/b/key")), 0600);
		exi_key_free(read_key(in("a/b/key")));
		umask(022);
		folder_end();
	}
	exi_key_free(key);
}

#define MAKERS 12
#define ROUNDS 20

struct id {
	uint8_t bytes[EXI_KEY_ID_BYTES];
};

/* Waits for the start, makes or reads the key, tells its id. */
static void maker(int start, int result, const char *path)
{
	struct exi_key_search s = search_at(path);
	struct exi_key *key = NULL;
	struct id id;
	char c;

	T_EQ(read(start, &c, 1), 0);
	T_MSG(exi_key_load(&s, &key, why) == 0, "%s", why);
	memcpy(id.bytes, key->id, sizeof(id.bytes));
	T_EQ(write(result, &id, sizeof(id)), sizeof(id));
	exi_key_free(key);
	_exit(0);
}

static void make_at_once(void)
{
	int start[2], result[2], i;
	struct id id, first = { 0 };
	pid_t pids[MAKERS];

	folder_begin();
	T_OK(pipe2(start, O_CLOEXEC));
	T_OK(pipe2(result, O_CLOEXEC));
	for (i = 0; i < MAKERS; i++) {
		pids[i] = t_fork();
		if (!pids[i]) {
			close(start[1]);
			maker(start[0], result[1], in("home/exs/key"));
		}
	}
	close(start[0]);
	close(start[1]);
	for (i = 0; i < MAKERS; i++) {
		T_EQ(read(result[0], &id, sizeof(id)), sizeof(id));
		if (!i)
			first = id;
		T(!memcmp(&id, &first, sizeof(id)));
	}
	for (i = 0; i < MAKERS; i++)
		t_join(pids[i]);
	close(result[0]);
	close(result[1]);
	T_EQ(files_in(in("home/exs")), 1);
	folder_end();
}

static void all_who_make_it_at_once_get_one_key(void)
{
	for (int i = 0; i < ROUNDS; i++)
		make_at_once();
}

__attribute__((noreturn)) static void make_and_remove(const char *path)
{
	struct exi_key_search s = search_at(path);
	struct exi_key *key = NULL;

	for (;;) {
		T_MSG(exi_key_load(&s, &key, why) == 0, "%s", why);
		T_MSG(exi_key_write(path, key, true, why) == 0, "%s", why);
		exi_key_free(key);
		T_OK(unlink(path));
	}
}

/* Whenever a maker dies there is no key or a whole one. */
static void a_maker_that_is_killed_leaves_no_half_key(void)
{
	struct t_deadline d = t_deadline_ms(50000); /* of a busy host */
	struct t_rng rng = { .state = 7 };
	unsigned int whole = 0, none = 0, ns = 3000000;
	struct exi_key *key;
	int status;
	pid_t pid;

	folder_begin();
	while (whole < 20 || none < 20) {
		T_MSG(!t_over(&d), "%u whole, %u none", whole, none);
		pid = t_fork();
		if (!pid)
			make_and_remove(in("key"));
		/* Longer where making one takes longer. */
		t_spin_ns((int64_t)t_below(&rng, ns));
		T_OK(kill(pid, SIGKILL));
		T_EQ(waitpid(pid, &status, 0), pid);
		T(WIFSIGNALED(status));
		if (access(in("key"), F_OK) != 0) {
			none++;
			if (none > 4 * whole)
				ns += ns / 8;
			continue;
		}
		key = read_key(in("key"));
		exi_key_free(key);
		whole++;
		T_OK(unlink(in("key")));
	}
	folder_end();
}

static void places_are(const struct exi_key_search *s, const char *first,
		       const char *origin, const char *second)
{
	struct exi_key_places p;

	T_EQ(exi_key_places(s, &p), 0);
	T_EQ(p.n, second ? 2 : 1);
	T_MSG(!strcmp(p.place[0].path, first), "%s", p.place[0].path);
	T_MSG(!strcmp(p.place[0].origin, origin), "%s", p.place[0].origin);
	if (second) {
		T(!strcmp(p.place[1].path, second));
		T(!strcmp(p.place[1].origin, "system"));
	}
	T_EQ(p.chosen, 0);
}

static void it_is_searched_where_the_manual_says(void)
{
	struct exi_key_search s = { .system = "/none/exs/key" };
	struct exi_key_places p;
	char path[2 * PATH_MAX];

	places_are(&s, "/none/exs/key", "system", NULL);
	s.home = "/home/ada";
	places_are(&s, "/home/ada/.config/exs/key", "HOME", "/none/exs/key");
	s.config_home = "/cfg";
	places_are(&s, "/cfg/exs/key", "XDG_CONFIG_HOME", "/none/exs/key");
	s.config_home = "cfg"; /* must be absolute to count */
	places_are(&s, "/home/ada/.config/exs/key", "HOME", "/none/exs/key");
	s.config_home = s.home = "";
	places_are(&s, "/none/exs/key", "system", NULL);
	s.file = "key";
	s.home = "/home/ada";
	places_are(&s, "key", "EXS_KEY_FILE", NULL);
	memset(path, 'x', sizeof(path));
	path[0] = '/';
	path[sizeof(path) - 1] = '\0';
	s.file = path;
	T_EQ(exi_key_places(&s, &p), -ENAMETOOLONG);
	s.file = NULL;
	s.home = path;
	T_EQ(exi_key_places(&s, &p), -ENAMETOOLONG);
}

static void the_environment_says_where(void)
{
	struct exi_key_search s;

	setenv("HOME", "/home/ada", 1);
	unsetenv("XDG_CONFIG_HOME");
	exi_key_search_init(&s, "");
	places_are(&s, "/home/ada/.config/exs/key", "HOME", EXI_KEY_SYSTEM);
	setenv("XDG_CONFIG_HOME", "/cfg", 1);
	exi_key_search_init(&s, NULL);
	places_are(&s, "/cfg/exs/key", "XDG_CONFIG_HOME", EXI_KEY_SYSTEM);
	exi_key_search_init(&s, "/mine");
	places_are(&s, "/mine", "EXS_KEY_FILE", NULL);
	unsetenv("XDG_CONFIG_HOME");
	unsetenv("HOME");
	exi_key_search_init(&s, "");
	places_are(&s, EXI_KEY_SYSTEM, "system", NULL);
}

static void the_system_key_serves_who_has_none_of_his_own(void)
{
	struct exi_key *key = new_key(), *got = NULL;
	char home[64], system[64];
	struct exi_key_search s = { .home = home, .system = system };

	folder_begin();
	snprintf(home, sizeof(home), "%s", in("home"));
	snprintf(system, sizeof(system), "%s", in("exs/key"));
	T_EQ(exi_key_write(system, key, false, why), 0);
	T_EQ(exi_key_load(&s, &got, why), 0);
	T(same_key(key, got));
	exi_key_free(got);
	/* Bad, it is refused: nothing else takes its place in silence. */
	T_OK(chmod(system, 0644));
	T_EQ(exi_key_load(&s, &got, why), -EPERM);
	T_OK(unlink(system));
	T_EQ(exi_key_load(&s, &got, why), 0);
	T(!same_key(key, got));
	T_EQ(access(in("home/.config/exs/key"), F_OK), 0);
	exi_key_free(got);
	/* His own goes first. */
	T_EQ(exi_key_write(system, key, false, why), 0);
	T_EQ(exi_key_load(&s, &got, why), 0);
	T(!same_key(key, got));
	exi_key_free(got);
	exi_key_free(key);
	folder_end();
}

static void have_no_home(void)
{
	struct exi_key_search s = { .system = in("none/key") };
	struct exi_key *key = NULL;
	char home[64];

	/* Nowhere to make one. */
	T_EQ(exi_key_load(&s, &key, why), -EACCES);
	T_MSG(strstr(why, "EXS_KEY_FILE"), "%s", why);
	/* One that root keeps for himself. */
	s.system = in("key");
	T_EQ(exi_key_load(&s, &key, why), -EACCES);
	T_MSG(strstr(why, "chmod 640"), "%s", why);
	/* A home that is not there, nor can be. */
	snprintf(home, sizeof(home), "%s", in("nonexistent"));
	s.home = home;
	T_EQ(exi_key_load(&s, &key, why), -EACCES);
	T_MSG(strstr(why, "EXS_KEY_FILE"), "%s", why);
}

static void who_can_make_none_is_told_what_to_do(void)
{
	struct exi_key *key = new_key();

	if (is_root()) {
		folder_begin();
		T_OK(chmod(folder, 0755));
		T_EQ(exi_key_write(in("key"), key, false, why), 0);
		as_nobody(have_no_home);
		folder_end();
	}
	exi_key_free(key);
}

static void what_is_in_the_way_of_the_folder_is_told(void)
{
	struct exi_key_search s;
	struct exi_key *key = NULL;

	folder_begin();
	put(in("file"), "", 0, 0600);
	s = search_at(in("file/exs/key"));
	T_EQ(exi_key_load(&s, &key, why), -ENOTDIR);
	T_MSG(strstr(why, "Not a directory"), "%s", why);
	folder_end();
}

/* The mapping that a key lies in, as the kernel has it. */
static void a_key_is_in_no_core_dump(void)
{
	struct exi_key *key = new_key();
	FILE *f = fopen("/proc/self/smaps", "re");
	unsigned long from, to;
	bool here = false, found = false;
	char line[512];

	T(f);
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
			here = (unsigned long)key >= from &&
			       (unsigned long)key < to;
		if (here && !strncmp(line, "VmFlags:", 8)) {
			if (!t_can(strstr(line, " dd"),
				   "madvise(MADV_DONTDUMP)"))
				exit(T_SKIP);
			found = true;
		}
	}
	T(found);
	fclose(f);
	exi_key_free(key);
}

int main(int argc, char **argv)
{
	static const struct t_row rows[] = {
		T_ROW(a_key_is_made_and_read_again),
		T_ROW(keys_differ_and_so_do_their_ids),
		T_ROW(the_line_is_what_it_always_was),
		T_ROW(blanks_and_capitals_are_a_matter_of_taste),
		T_ROW(every_damaged_character_is_found),
		T_ROW(what_is_no_key_is_refused),
		T_ROW(what_others_may_read_is_refused),
		T_ROW(a_service_reads_what_root_lets_its_group_read),
		T_ROW(only_plain_files_are_read),
		T_ROW(a_symbolic_link_is_followed_but_not_made_a_file_of),
		T_ROW(the_mode_is_ours_whatever_the_umask),
		T_ROW(all_who_make_it_at_once_get_one_key),
		T_ROW(a_maker_that_is_killed_leaves_no_half_key),
		T_ROW(it_is_searched_where_the_manual_says),
		T_ROW(the_environment_says_where),
		T_ROW(the_system_key_serves_who_has_none_of_his_own),
		T_ROW(who_can_make_none_is_told_what_to_do),
		T_ROW(what_is_in_the_way_of_the_folder_is_told),
		T_ROW(a_key_is_in_no_core_dump),
	};

	return t_run("key", rows, T_COUNT(rows), argc > 1 ? argv[1] : NULL);
}
