/* SPDX-License-Identifier: BSD-2-Clause */
/* A table of users. A new user replaces the entry that ends first. */
#include "core/base/shun.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <unistd.h>

#include "core/base/lock.h"
#include "core/base/user.h"

#define FIRST_NS   60000000000u
#define LONGEST_NS (60 * 60 * 1000000000ull)
#define USERS	   64
/* When this many numbers of one person are shunned, all count as one user. */
#define NUMBERS 4

struct user {
	uint64_t until; /* 0: free */
	uint64_t time;	/* how long it is shunned, this time */
	struct exi_uids uids;
};

static struct exi_lock lock; /* guards the table */
static struct user users[USERS];
static _Atomic bool any;

static struct user *find_locked(uid_t uid)
{
	unsigned int i;

	EXI_LOCKED(&lock);
	for (i = 0; i < USERS; i++)
		if (users[i].until && users[i].uids.first <= uid &&
		    uid <= users[i].uids.last)
			return &users[i];
	return NULL;
}

static struct user *room_locked(void)
{
	struct user *ret = &users[0];
	unsigned int i;

	EXI_LOCKED(&lock);
	for (i = 1; i < USERS; i++)
		if (users[i].until < ret->until)
			ret = &users[i];
	return ret;
}

/* A user without an offence for an hour starts again. */
static bool begins_anew(const struct user *u, uint64_t now)
{
	return now > u->until && now - u->until > LONGEST_NS;
}

/* Entries of the person that has these numbers: */
static bool is_of(const struct user *u, struct exi_uids all, uint64_t now)
{
	return u->until && !begins_anew(u, now) && all.first <= u->uids.first &&
	       u->uids.last <= all.last;
}

/* Makes one user of NUMBERS. */
static void join_locked(struct exi_uids all, uint64_t now)
{
	struct user one = { .uids = all };
	unsigned int i, n = 0;

	EXI_LOCKED(&lock);
	for (i = 0; i < USERS; i++)
		n += is_of(&users[i], all, now);
	if (n < NUMBERS)
		return;
	for (i = 0; i < USERS; i++) {
		struct user *u = &users[i];

		if (!is_of(u, all, now))
			continue;
		one.until = u->until > one.until ? u->until : one.until;
		one.time = u->time > one.time ? u->time : one.time;
		*u = (struct user){ 0 };
	}
	*room_locked() = one;
}

static void shun_locked(uid_t uid, struct exi_uids all, uint64_t now)
{
	struct user *u;

	EXI_LOCKED(&lock);
	u = find_locked(uid);
	if (u && now < u->until) /* already shunned; counts once */
		return;
	if (u && !begins_anew(u, now)) {
		u->time *= 2;
	} else {
		u = u ? u : room_locked();
		*u = (struct user){ .uids = { uid, uid }, .time = FIRST_NS };
	}
	if (u->time > LONGEST_NS)
		u->time = LONGEST_NS;
	u->until = now + u->time;
	join_locked(all, now);
}

/* Users other than these are shunned. */
static bool is_spared(uid_t uid)
{
	return uid == (uid_t)-1 || uid == 0 || uid == getuid() ||
	       uid == geteuid() || !exi_user_is_one(uid);
}

void exi_shun(uid_t uid, uint64_t now_ns)
{
	struct exi_uids all;

	if (is_spared(uid))
		return;
	all = exi_user_uids(EXI_SUBUID, uid);
	exi_lock(&lock);
	shun_locked(uid, all, now_ns);
	exi_unlock(&lock);
	atomic_store(&any, true);
}

bool exi_shunned(uid_t uid, uint64_t now_ns)
{
	struct user *u;
	bool ret;

	if (!atomic_load_explicit(&any, memory_order_relaxed))
		return false;
	exi_lock(&lock);
	u = find_locked(uid);
	ret = u && now_ns < u->until;
	exi_unlock(&lock);
	/* One of many numbers may be the process's own. */
	return ret && !is_spared(uid);
}

void exi_shun_forked(void)
{
	atomic_store(&lock.word, 0);
}
