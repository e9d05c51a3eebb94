/* SPDX-License-Identifier: BSD-2-Clause */
/* A table of users; the entry that ends first makes room for another user. */
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

struct user {
	uint64_t until; /* 0: free */
	uint64_t time;	/* how long it is left out, this time */
	uid_t uid;
};

static struct exi_lock lock; /* guards the table */
static struct user users[USERS];
static _Atomic bool any;

static struct user *find_locked(uid_t uid)
{
	unsigned int i;

	EXI_LOCKED(&lock);
	for (i = 0; i < USERS; i++)
		if (users[i].until && users[i].uid == uid)
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

static void shun_locked(uid_t uid, uint64_t now)
{
	struct user *u;

	EXI_LOCKED(&lock);
	u = find_locked(uid);
	if (!u) {
		u = room_locked();
		*u = (struct user){ .uid = uid, .time = FIRST_NS };
	} else if (now < u->until) { /* it began before, and counts once */
		return;
	} else {
		/* A user that behaved for an hour begins anew. */
		u->time = now - u->until > LONGEST_NS ? FIRST_NS : u->time * 2;
	}
	if (u->time > LONGEST_NS)
		u->time = LONGEST_NS;
	u->until = now + u->time;
}

void exi_shun(uid_t uid, uint64_t now_ns)
{
	if (uid == (uid_t)-1 || uid == 0 || uid == getuid() ||
	    uid == geteuid() || !exi_user_is_one(uid))
		return;
	exi_lock(&lock);
	shun_locked(uid, now_ns);
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
	return ret;
}

void exi_shun_forked(void)
{
	atomic_store(&lock.word, 0);
}
