/* SPDX-License-Identifier: BSD-2-Clause */
/* The order in which an epoll set reports its connections (the head of
 * preload/epoll_look.c; docs/design/wire-shm.md, section 4, `made').
 *
 * Modelled: one set with CONNS connections, and the thread that waits in it and
 * receives from the reported ones. Writer 0 sends SENDS records in turn on
 * connections that the search chooses. A second writer (WRITERS) has the last
 * connection, and may learn what the first one wrote before it writes (TELLS).
 * A wait reports at most `max' connections; other connections that it found
 * wait in line. With RESTS, a connection without bytes may come to rest: its
 * peer sends a doorbell for the next record, which is noticed some time later,
 * by the service thread, or by a wait that asks the kernel.
 *
 * Time is the number of times that the writers read the clock, so that the
 * search ends. With EARLY a writer may read one less than that, as a processor
 * does that reads its clock before an older store is done. The times of one
 * writer grow.
 *
 * Memory is sequentially consistent here, except for what NO_FENCE and
 * LATE_MADE change: bell.pml checks that a request and a record see one
 * another.
 *
 * Asserted: when a connection is reported, each record that its writer wrote
 * (or had learnt of) before the reported record was reported before, in this
 * call or an earlier one. The reported record is the connection's first one;
 * edge-triggered (EDGE), the first one that was not reported. A record is
 * reported with its connection, if it is there by then.
 *
 * Beyond what the order is promised for, and found as such: edge-triggered
 * connections whose receiver leaves records unread; writers of two processes,
 * if a connection of one rests; two threads that wait at once. With EARLY, also
 * a record that is written about when its connection is reported for another
 * one (so N is 1 there).
 *
 * Not modelled: times of two threads that are equal; counts that wrap; epochs;
 * bytes on TCP, for which see moves.pml. */

#define CONNS_MOST	3
#define RECS_MOST	9

#define PARAMETERS(P) \
	P(CONNS, 3) \
	P(N, 2)	/* records on a connection, at most */ \
	P(SENDS, 3)	/* of writer 0 */ \
	P(SENDS1, 2) \
	P(WRITERS, 1) \
	P(TELLS, 0) \
	P(PROCS, 1)	/* processes in which the writers are */ \
	P(LIES, 0)	/* writer 1 says any time */ \
	P(MAX, now.CONNS)	/* connections that a wait tells, at most; 0: any number */ \
	P(EDGE, 0) \
	P(UNREAD, !now.EDGE)	/* who was told may leave records unread */ \
	P(RESTS, 0) \
	P(KERNEL, now.RESTS)	/* a wait may begin with events of the kernel's */ \
	P(EARLY, 0) \
	P(OTHER, 0)	/* another thread waits in the set, too */ \
	P(PASSES, 4) \
	P(BUG, 0)
#include "parameters.pml"

/* Planted bugs. */
#define NO_SECOND	1	/* what had nothing is not looked at again */
#define NO_FENCE	2	/* a time is read while the record before it is not stored yet */
#define LATE_MADE	3	/* the record is there before its time is */
#define WHEN_SEEN	4	/* a record's time is when it was found */
#define BY_POSITION	5	/* told by the place in the set */
#define NO_MARGIN	6	/* a pass is left out by clocks taken as exact */
#define NO_UNTIL	7	/* later passes take all that they find */
#define FUTURE		8	/* a time that is later than now counts */
#define LINE_LAST	9	/* what waits in line is told behind what is found */
#define NO_REST		10	/* a new count is no reason to look at what rests */
#define NO_FRESH	11	/* where the kernel was asked before, what a ring moved from
				 * the resting to the active meanwhile is not looked at */
#define EARLY_SEEN	12	/* the count of what is left for the next wait is noted */
#define NONE	255
#define EVER	254

#define ACTIVE	0
#define LINE	1
#define RESTING	2
#define HELD	3

#define bit_of(i)	(1 << (i))
#define rec(i, k)	((i) * N + (k))
#define recs(i, k)	((bit_of(k) - 1) << ((i) * N))	/* the first k of i */
#define proc_of(w)	(PROCS == 2 -> (w) : 0)
#define owner(i)	(WRITERS == 2 && (i) == CONNS - 1)

/* The rings that hold the records. */
byte there[CONNS_MOST], taken[CONNS_MOST];
byte made[RECS_MOST];		/* 0: it does not say */
byte count[RECS_MOST];		/* what its process had rung for others */
byte wants[CONNS_MOST] = NONE;	/* the record for which a ring is asked */
bit ringing[CONNS_MOST];		/* the ring is on its way */
byte rings[2], rang[CONNS_MOST];	/* by process; by connection */
byte clock = 1;

/* Who knows of which records: those before a record, those of a writer, those told. */
short before[RECS_MOST], knows[2], told;

/* The set. */
byte state[CONNS_MOST];
bit again[CONNS_MOST], fresh[CONNS_MOST];
byte seen[CONNS_MOST] = NONE;	/* the count found last */
byte told_at[CONNS_MOST], place[CONNS_MOST], saw[CONNS_MOST], covered[CONNS_MOST];
chan line = [CONNS_MOST] of { byte };
byte waiting;			/* how many are in line */

/* --- writers --- */

/* Record r of connection i gets its time, and what its writer knew. */
inline stamp(w)
{
	d_step {
		clock++;
		before[r] = knows[w];
		count[r] = rings[proc_of(w)] - rang[i]
	};
	if
	:: LIES && w == 1 -> made[r] = 1
	:: LIES && w == 1 -> made[r] = EVER - 1
	:: !(LIES && w == 1) -> made[r] = clock
	:: EARLY && !(LIES && w == 1) && clock - 1 > last -> made[r] = clock - 1
	fi;
	last = (LIES && w == 1 -> 0 : made[r])
}

/* The word of the next record of connection c is stored. */
#define publish(c)	there[c]++

/* Connections are alike: of those of a writer the last one is used first. */
#define may_begin(i)	((i) == CONNS - 1 || owner((i) + 1) != w || (used & bit_of((i) + 1)))

proctype writer(byte w; byte left)
{
	byte i, r, last, used, late = NONE;
	bit asked;

	do
	:: left ->
		/* On one of its connections, with room. */
		atomic {
			if
			:: i = 0
			:: i = 1
			:: CONNS > 2 -> i = 2
			fi;
			if
			:: owner(i) == w && there[i] + (late == i) < N && may_begin(i)
			:: else -> goto done
			fi;
			r = rec(i, there[i] + (late == i)); left--; used = used | bit_of(i)
		};
		if
		:: TELLS -> knows[w] = knows[w] | knows[1 - w]
		:: skip
		fi;
		if
		:: BUG == LATE_MADE -> atomic { before[r] = knows[w]; publish(i) };
			atomic { stamp(w) }
		:: BUG != LATE_MADE -> atomic { stamp(w) };
			if
			:: late != NONE -> publish(late); late = NONE
			:: else
			fi;
			if
			:: BUG == NO_FENCE -> late = i
			:: else -> publish(i)
			fi
		fi;
		atomic { asked = (wants[i] == r - rec(i, 0)); knows[w] = knows[w] | bit_of(r) };
		if
		:: asked ->
			ringing[i] = 1;
			atomic { rings[proc_of(w)]++; rang[i]++; asked = 0 }
		:: else
		fi;
		r = 0
	:: else -> break
	od;
done:	if
	:: late != NONE -> publish(late)
	:: else
	fi
}

/* --- the set --- */

inline activate(c)
{
	fresh[c] = 1;
	if
	:: state[c] == HELD -> again[c] = 1
	:: state[c] == RESTING -> state[c] = ACTIVE
	:: else
	fi
}

proctype service()
{
end:	do
	:: atomic { ringing[0] -> ringing[0] = 0; activate(0) }
	:: atomic { ringing[1] -> ringing[1] = 0; activate(1) }
	:: atomic { CONNS > 2 && ringing[CONNS - 1] -> ringing[CONNS - 1] = 0; activate(CONNS - 1) }
	od
}

/* Another thread looks at what is written to first, and finds nothing, or has no room. */
proctype other()
{
	byte i = CONNS - 1;
	bit has;

end:	do
	:: atomic { state[i] == ACTIVE -> state[i] = HELD; again[i] = 0; fresh[i] = 0 };
		has = there[i] != taken[i];
		atomic { state[i] = ACTIVE; has = 0 }
	od
}

inline ask_kernel()
{
	d_step {
		i = 0;
		do
		:: i < CONNS ->
			if
			:: ringing[i] -> ringing[i] = 0; activate(i)
			:: else
			fi;
			i++
		:: else -> break
		od;
		i = 0
	}
}

inline hold(c)
{
	state[c] = HELD; again[c] = 0
}

/* Active, or at rest if nothing came meanwhile. */
inline release(c, keep)
{
	if
	:: keep || again[c] -> state[c] = ACTIVE
	:: else -> state[c] = RESTING; fresh[c] = 0
	fi;
	again[c] = 0
}

inline look(c)
{
	saw[c] = there[c];
	has = there[c] != taken[c] && (!EDGE || saw[c] != covered[c])
}

/* Sets took: it has something that is for this wait. */
inline find(c)
{
	took = 0;
	if
	:: has ->
		at = made[rec(c, taken[c])];
		if
		:: BUG == WHEN_SEEN -> at = clock
		:: BUG != FUTURE && at > clock -> at = clock
		:: else
		fi;
		if
		:: at == 0 && place[c] -> at = place[c]
		:: at == 0 && !place[c] -> at = (until != EVER -> until - 1 : clock)
		:: else
		fi;
		place[c] = (at > told_at[c] -> at : told_at[c]);
		last = (at > last -> at : last);
		at = 0;
		if
		:: place[c] <= until || BUG == NO_UNTIL -> found = found | bit_of(c); took = 1
		:: else
		fi;
		if
		:: (took || BUG == EARLY_SEEN) && seen[c] != count[rec(c, taken[c])] ->
			rung = 1; seen[c] = count[rec(c, taken[c])]
		:: else
		fi
	:: else -> place[c] = 0
	fi
}

#define in_state(c, x)	(state[c] == (x) && !(mine & bit_of(c)) -> bit_of(c) : 0)
#define all_in(x)	(in_state(0, x) | in_state(1, x) | \
			 (CONNS > 2 -> in_state(CONNS - 1, x) : 0))
#define pick(c)		(c) < CONNS && (left & bit_of(c)) -> i = (c)

/* One of those that are left to look at. */
inline choose()
{
	if
	:: pick(0)
	:: pick(1)
	:: pick(2)
	fi;
	left = left & ~bit_of(i)
}

inline look_at_active()
{
	left = all_in(ACTIVE);
	do
	:: left ->
		atomic { choose(); hold(i); fresh[i] = 0; wants[i] = NONE };
		atomic {
			look(i); find(i);
			if
			:: !took && (has || until != EVER || !RESTS) -> release(i, 1); goto next
			:: !took && !has && until == EVER && RESTS -> release(i, 1); goto next
			:: !took && !has && until == EVER && RESTS
			:: took -> goto next
			fi
		};
		/* It is armed: the peer rings, unless something is there already. */
		wants[i] = saw[i];
		atomic { has = there[i] != saw[i]; release(i, has) };
next:		atomic { i = 0; has = 0; took = 0 }
	:: else -> break
	od
}

inline look_at_resting()
{
	left = all_in(RESTING);
	do
	:: left ->
		atomic {
			choose();
			if
			:: state[i] == RESTING -> hold(i)
			:: else -> goto gone
			fi
		};
		atomic { look(i); find(i); wants[i] = (has -> NONE : wants[i]) };
		atomic {
			if
			:: took
			:: else -> release(i, has)
			fi;
gone:			i = 0; has = 0; took = 0
		}
	:: else -> break
	od
}

#define MARGIN	(BUG == NO_MARGIN -> 0 : EARLY)

inline search()
{
	atomic { passes = 0; began = clock };
	do
	:: atomic { had = found; last = 0 };
		look_at_active();
		if
		:: found == had -> break
		:: else
		fi;
		until = (until == EVER -> last : until);
		passes++;
		if
		:: passes == PASSES || BUG == NO_SECOND -> break
		:: last + MARGIN <= began -> break
		:: else -> began = clock
		fi
	od;
	had = 0
}

inline find_rung()
{
	look_at_resting();
	if
	:: asked
	:: else -> ask_kernel()
	fi;
	if
	:: (fresh[0] || fresh[1] || fresh[CONNS - 1]) && !(asked && BUG == NO_FRESH) ->
		look_at_active()
	:: else
	fi
}

/* Connection c is told; it had something at the last look. */
inline tell(c)
{
	r = rec(c, (EDGE && covered[c] > taken[c] -> covered[c] : taken[c]));
	assert(!(before[r] & ~told));
	told = told | recs(c, there[c]);
	covered[c] = saw[c]; told_at[c] = start; place[c] = 0;
	mine = mine | bit_of(c); n++; r = 0
}

inline tell_line()
{
	do
	:: n < max && waiting ->
		atomic { line?i; waiting--; hold(i); fresh[i] = 0; wants[i] = NONE };
		atomic {
			look(i);
			if
			:: has -> tell(i)
			:: else
			fi;
			release(i, 1); i = 0; has = 0
		}
	:: else -> break
	od
}

#define first(c)	((c) < CONNS && (found & bit_of(c)) && \
	(BUG == BY_POSITION -> !(found & (bit_of(c) - 1)) : \
	(!(found & 1) || place[0] >= place[c]) && \
	(!(found & 2) || place[1] >= place[c]) && \
	(!(found & 4) || place[CONNS - 1] >= place[c])))

/* The order is that of the places. */
inline tell_found()
{
	do
	:: found ->
		if
		:: first(0) -> i = 0
		:: first(1) -> i = 1
		:: first(2) -> i = 2
		fi;
		found = found & ~bit_of(i);
		if
		:: n < max -> tell(i); release(i, 1)
		:: else -> state[i] = LINE; again[i] = 0; line!i; waiting++
		fi;
		i = 0
	:: else -> break
	od
}

/* Who was told receives all, or one record. */
inline receive()
{
	i = 0;
	do
	:: i < CONNS ->
		if
		:: mine & bit_of(i) ->
			if
			:: taken[i] = there[i]
			:: UNREAD -> taken[i]++
			fi;
			told = told | recs(i, taken[i])
		:: else
		fi;
		i++
	:: else -> break
	od;
	i = 0; mine = 0
}

proctype waiter()
{
	byte i, r, n, max, at, start, began, until, last, passes, left, found, had, mine;
	bit asked, rung, has, took;

end:	do
	:: atomic { start = clock; until = EVER; rung = 0; n = 0; asked = 0 };
		if
		:: MAX -> max = MAX
		:: !MAX -> max = 1
		:: !MAX -> max = 2
		:: !MAX && CONNS > 2 -> max = CONNS
		fi;
		if
		:: KERNEL -> ask_kernel(); asked = 1
		:: skip
		fi;
		if
		:: BUG == LINE_LAST
		:: else -> tell_line()
		fi;
		if
		:: n < max ->
			search();
			if
			:: rung && BUG != NO_REST -> find_rung()
			:: else
			fi;
			atomic { tell_found() }
		:: else
		fi;
		if
		:: BUG == LINE_LAST -> tell_line()
		:: else
		fi;
		atomic { began = 0; last = 0; passes = 0; receive() }
	od
}

init
{
	atomic {
		TAKE_PARAMETERS;
		run waiter();
		if
		:: RESTS -> run service()
		:: else
		fi;
		if
		:: OTHER -> run other()
		:: else
		fi;
		run writer(0, SENDS);
		if
		:: WRITERS == 2 -> run writer(1, SENDS1)
		:: else
		fi
	}
}
