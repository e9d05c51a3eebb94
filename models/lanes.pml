/* SPDX-License-Identifier: BSD-2-Clause */
/* Lanes of a queue (core/transfer/lanes.h): the order of the events of a
 * direction, and sleep.
 *
 * Modelled: a queue, its root and two lanes; threads that submit operations of
 * one direction and take events, until they go to other work; the peer, which
 * completes the operations in their order; and somebody who at any moment gives
 * a thread a lane (not thread 0), or ends all lanes (ENDS).
 *
 * What is done under a member's lock, or under those of all, is one step: a
 * thread that has one waits for no other. Looks without a lock are steps of
 * their own. Memory is sequentially consistent here: a look that decides about
 * sleep is behind a lock, as is each store that it looks for.
 *
 * Not modelled: a thread that takes an event as it completes it, which is both
 * steps at once; a call that waits for several events, which ends the lanes;
 * slots; a direction that two queues have; more operations than a member joins.
 *
 * Asserted: an event comes to a member that lives; the events are taken in the
 * order in which they were completed; and when no thread moves any more, no
 * thread is asleep while an event is there. */

#define PARAMETERS(P) \
	P(N, 2)		/* operations */ \
	P(THREADS, 2) \
	P(MAKES, 2)	/* lanes that are given */ \
	P(ENDS, 0) \
	P(BUG, 0)
#include "parameters.pml"

/* Planted bugs. */
#define ROOT_LAST	1	/* who falls asleep counts itself at the lanes first */
#define NO_WAKE_MAKE	2	/* a new lane wakes nobody */
#define NO_EVENTS	3	/* a direction leaves a member that has its events */
#define NO_OPS		4	/* or its operations */
#define OWN_ONLY	5	/* who falls asleep looks at its own member only */
#define NO_FOLLOW	6	/* who completes does not look where the operation is now */
#define REMADE		7	/* what was: lanes may begin again after an end */
#define EARLY_LOOK	8	/* who falls asleep looks before it counts itself */
#define ANY_OLD		9	/* a direction joins a member that has ended */

#define MEMBERS	3
#define MOST	3		/* threads */
#define OPS	4
#define NONE	7

/* Members. A lane that ended may be somebody's again. */
bit lives[MEMBERS], there[MEMBERS];
byte owner[MEMBERS] = NONE;
byte attended[MEMBERS];
short events[MEMBERS];		/* the number + 1 of each, 3 bits, the oldest lowest */
bit flat;
bit root_changed[MOST];		/* since the thread noted hot_changes */

/* Threads. */
byte counted[MOST];		/* the members where it is a sleeper */
bit rung[MOST];
byte slot[MOST] = NONE;		/* the member of what it is about to submit */

/* The direction, its lock, and its operations: numbers in their order. */
bit held;
byte turn = NONE;
byte where[OPS] = NONE;
byte begun, submitted, completed, taken;

#define any_lane	(lives[1] || lives[2])
#define has(m)		(events[m] != 0)
#define room(m)		(events[m] == 0 -> 0 : (events[m] < 8 -> 3 : (events[m] < 64 -> 6 : 9)))
#define lane_of(t)	(lives[1] && owner[1] == t -> 1 : (lives[2] && owner[2] == t -> 2 : 0))
#define sleepers(m)	((counted[0] | counted[1] | counted[2]) & (1 << (m)))

inline wake(m)
{
	rung[0] = rung[0] || (counted[0] & (1 << (m)));
	rung[1] = rung[1] || (counted[1] & (1 << (m)));
	rung[2] = rung[2] || (counted[2] & (1 << (m)))
}

/* One event, under the member's lock: got says whether there was any. */
inline take(m)
{
	atomic {
		got = lives[m] && has(m);
		if
		:: got ->
			assert((events[m] & 7) - 1 == taken);
			events[m] = events[m] >> 3;
			taken++
		:: else
		fi
	}
}

inline submit()
{
	/* A slot: of the thread's member when it looked, or of the root. */
	q = lane_of(me);
	atomic { slot[me] = (lives[q] -> q : 0); q = 0 };
	atomic { !held -> held = 1 };
	/* exi_lanes_turn_locked() */
	if
	:: atomic { turn == slot[me] -> skip }
	:: atomic { turn != slot[me] ->
			q = slot[me]; old = turn;
			mixed = old != NONE && old != q && (lives[old] || BUG == ANY_OLD) &&
				((submitted > completed && BUG != NO_OPS) ||
				 (has(old) && BUG != NO_EVENTS)) };
		if
		:: mixed -> atomic {
			old = (lives[old] || BUG == ANY_OLD -> old : 0);
			slot[me] = old }
		:: !mixed -> old = q
		fi;
		atomic { turn = old; q = 0; old = 0; mixed = 0 }
	fi;
	atomic {
		where[submitted] = slot[me];
		slot[me] = NONE;
		submitted++;
		held = 0
	}
}

inline count_in(m)
{
	atomic {
		if
		:: there[m] -> counted[me] = counted[me] | (1 << (m)); n++
		:: else
		fi
	}
}

/* Each look at a member is a step. */
inline look_at_all()
{
	some = has(0);
	if
	:: !some && there[1] -> some = has(1)
	:: else
	fi;
	if
	:: !some && there[2] -> some = has(2)
	:: else
	fi
}

inline look()
{
	if
	:: has(q) || !lives[q] || (q == 0 && root_changed[me]) -> some = 1
	:: else
	fi;
	if
	:: !some && BUG != OWN_ONLY && (n > 1 || BUG == EARLY_LOOK) -> look_at_all()
	:: else
	fi
}

/* Until an event may be there; sleeps once. */
inline await()
{
	looked = 0;
	do
	:: has(q) || !lives[q] -> break
	:: else ->
		some = 0;
		if
		:: looked && any_lane -> look_at_all()
		:: else
		fi;
		if
		:: some -> break
		:: else
		fi;
		atomic { root_changed[me] = 0; n = 0 };
		if
		:: BUG == EARLY_LOOK -> look()
		:: else
		fi;
		if
		:: BUG == ROOT_LAST -> count_in(1); count_in(2); count_in(0)
		:: else -> count_in(0); count_in(1); count_in(2)
		fi;
		if
		:: BUG != EARLY_LOOK -> look()
		:: else
		fi;
		if
		:: !some ->
end:			rung[me]
		:: else
		fi;
		atomic { counted[me] = 0; rung[me] = 0; n = 0; some = 0; looked = 1 }
	od;
	atomic { looked = 0; some = 0 }
}

inline dequeue()
{
	q = lane_of(me);
	do
	:: atomic { attended[q]++ };
		await();
		take(q);
		if
		:: !got && any_lane ->
			/* Those of others. */
			m = 0;
			do
			:: m < MEMBERS && !got ->
				if
				:: m != q && has(m) -> take(m)
				:: else
				fi;
				m++
			:: else -> break
			od;
			m = 0
		:: else
		fi;
		atomic {
			attended[q]--;
			if
			:: got -> got = 0; break
			:: !got && !lives[q] -> q = 0 /* the lane has ended */
			:: else
			fi
		}
	od;
	q = 0
}

proctype thread(byte me)
{
	byte q, old, m, n;
	bit got, some, looked, mixed;

	do
	:: atomic { begun < N -> begun++ }; submit()
	:: dequeue()
	:: break
	od
}

proctype peer()
{
	byte m;

end:	do
	:: atomic { !held && submitted > completed -> held = 1; m = where[completed] };
		do
		:: atomic { m != where[completed] && BUG != NO_FOLLOW -> m = where[completed] }
		:: atomic { m == where[completed] || BUG == NO_FOLLOW ->
				assert(lives[m]);
				events[m] = events[m] | ((completed + 1) << room(m));
				wake(m);
				break }
		od;
		atomic { completed++; held = 0; m = 0 }
	od
}

inline make(m, t)
{
	if
	:: there[m] && lives[m]
	:: else ->
		there[m] = 1; lives[m] = 1; owner[m] = t;
		root_changed[0] = 1; root_changed[1] = 1; root_changed[2] = 1;
		if
		:: BUG != NO_WAKE_MAKE -> wake(0)
		:: else
		fi
	fi
}

#define idle(m)	(!lives[m] && !attended[m] && !sleepers(m))

proctype maker()
{
	byte i, t, m;

	do
	:: i < MAKES -> atomic {
			i++;
			if
			:: t = 1
			:: THREADS > 2 -> t = 2
			fi;
			m = (idle(1) -> 1 : (idle(2) -> 2 : 0));
			if
			:: m && !flat && !lane_of(t) -> make(m, t)
			:: else
			fi;
			t = 0; m = 0
		}
	:: else -> break
	od
}

inline to_root(m)
{
	if
	:: lives[m] ->
		events[0] = events[0] | (events[m] << room(0));
		events[m] = 0;
		lives[m] = 0; owner[m] = NONE;
		wake(m)
	:: else
	fi
}

proctype ender()
{
	byte i;

	atomic {
		if
		:: any_lane ->
			to_root(1);
			to_root(2);
			i = 0;
			do
			:: i < OPS ->
				if
				:: where[i] != NONE -> where[i] = 0
				:: else
				fi;
				i++
			:: else -> break
			od;
			i = 0;
			do
			:: i < MOST ->
				if
				:: slot[i] != NONE -> slot[i] = 0
				:: else
				fi;
				i++
			:: else -> break
			od;
			wake(0);
			i = 0
		:: else
		fi;
		flat = (BUG != REMADE)
	}
}

init
{
	byte i;

	atomic {
		TAKE_PARAMETERS;
		lives[0] = 1; there[0] = 1;
		i = 0;
		do
		:: i < THREADS -> run thread(i); i++
		:: else -> break
		od;
		run peer();
		run maker();
		if
		:: ENDS -> run ender()
		:: else
		fi
	};
	timeout -> assert(completed == submitted);
	assert(taken == completed || !(counted[0] | counted[1] | counted[2]))
}
