/* SPDX-License-Identifier: BSD-2-Clause */
/* A connection in an epoll set for which no thread was seen to wait (the head
 * of preload/epoll.h; core/call/unseen.h; exi_switch_awaited()): it stays on
 * TCP, or is moved back, and moves (again) when a thread is seen to wait.
 *
 * Modelled: this end of one connection, which is added to a set by epoll_ctl(),
 * for which the shim then makes its own set; the meeting, which ends with the
 * link; the mark that the program's bytes pass; the watch, which finds bytes in
 * the ring that no call takes, searches, and leaves later; the service thread,
 * which reads the link; the peer. With SEEN a thread waits for the set by the C
 * library at any time, also before the set is made; otherwise a thread waits by
 * a call that is not intercepted, and the kernel reports only TCP to it. With
 * TWO the connection is in a second set, too, for which no thread is ever seen
 * to wait. With LASTS something else holds the connection for good, at any
 * time.
 *
 * The part under one lock is one step; structure and the link lock are locks,
 * because more than one such part lies between. Memory is sequentially
 * consistent, except for what NO_FENCE changes.
 *
 * Asserted: GO and UP are sent only if no waiter is idle. At the end, when
 * nothing happens any more: what holds the connection for good is still in
 * force; for a thread that waits unseen there is nothing in the ring; for a
 * thread that is seen to wait the connection has moved, unless something else
 * holds it, and there is a managed item for what is in the ring.
 *
 * Not modelled: how the watch stops and starts again; forks; a peer that does
 * not answer. */

/* Planted bugs. */
#define NO_FENCE	1	/* a wait is noted after it looked for the set */
#define NO_GO		2	/* the first wait does not say GO */
#define NO_ANSWER	3	/* the answer to DOWN is no reason to look again */
#define ANY_SET		4	/* one set that is waited for is enough */
#define CLEARS		5	/* a hold for good is taken for one that ends */
#define OVERWRITES	6	/* a hold that ends is written over one for good */
#define FOR_GOOD	7	/* what is found in a set holds for good */
#define NOT_MANAGED	8	/* the first wait does not manage the item */
#define NO_WATCH	9	/* the watch does not search sets that the shim knows */

#define PARAMETERS(P) \
	P(SEEN, 1) \
	P(TWO, 0) \
	P(LASTS, 0) \
	P(BUG, 0)
#include "parameters.pml"

/* Messages, and enum exi_hold. */
#define GO	1
#define DOWN	2
#define UP	3
#define ACK	4
#define SWITCH	5
#define HOLD		1
#define UNTIL_SEEN	2

chan to_peer = [6] of { byte };
chan to_us = [6] of { byte };

bit link_lock, structure;
bit noted;			/* a wait for the number of the set */
bit set, attended;		/* the shim's set */
bit item, managed;
byte idle_rx, idle_tx;		/* idle waiters */
bit up, go_sent, marked;
byte hold, down_wait;
bit told;			/* DOWN was said, and no UP since */
bit for_good;			/* the hold that LASTS has begun */
bit in_ring;			/* this end reads the ring */
bit sleeps;			/* the thread that is seen to wait */

/* The peer. */
bit its_ring, its_hold, its_go;

/* The item is idle. */
#define is_idle		(idle_rx > TWO)

inline take(l)
{
	atomic { !l -> l = 1 }
}

/* exi_switch_leave_locked(), for a set. */
inline leave()
{
	atomic {
		if
		:: hold == 0 || BUG == OVERWRITES ->
			hold = (BUG == FOR_GOOD -> HOLD : UNTIL_SEEN)
		:: else
		fi;
		if
		:: up && !(told && down_wait) -> down_wait++; told = 1; to_peer!DOWN
		:: else
		fi
	}
}

#define no_idlers(n)	(!(n) || BUG == ANY_SET)

/* exi_switch_awaited(): it looks at the waiters of the one half, then at the other. */
inline awaited(rx)
{
	rx = 1;
	if
	:: atomic { hold == UNTIL_SEEN || (BUG == CLEARS && hold) -> rx = !no_idlers(idle_rx) }
	:: else
	fi;
	if
	:: !rx ->
		atomic {
			if
			:: (hold == UNTIL_SEEN || (BUG == CLEARS && hold)) && !down_wait &&
			   no_idlers(idle_tx) ->
				hold = 0; told = 0;
				assert(!idle_tx);
				if
				:: up -> to_peer!UP
				:: else
				fi
			:: else
			fi
		}
	:: else
	fi
}

/* go_locked(). */
inline go(rx)
{
	awaited(rx);
	atomic {
		rx = 0;
		if
		:: up && !go_sent && !hold && no_idlers(idle_rx) ->
			assert(!idle_rx); go_sent = 1; to_peer!GO
		:: up && !go_sent && !hold && !no_idlers(idle_rx) -> marked = 1
		:: else
		fi
	}
}

/* epoll_ctl(), of a connection that may have met. */
proctype adder()
{
	bit idle;

	take(link_lock); take(structure);
	set = 1;
	idle = !noted; attended = !idle;
	atomic { item = 1; idle_tx = idle_tx + idle };
	idle_rx = idle_rx + idle;
	if
	:: atomic { up && !idle -> managed = 1 }
	:: else
	fi;
	structure = 0; link_lock = 0;
	idle = 0
}

/* The meeting ends: up_locked(). */
proctype meeting()
{
	bit rx;

	take(link_lock);
	up = 1;
	take(structure);
	if
	:: atomic { item && !is_idle && !managed -> managed = 1 }
	:: else
	fi;
	structure = 0;
	go(rx);
	link_lock = 0
}

/* A wait by the C library. */
proctype waiter()
{
	bit known, rx;

	if
	:: BUG == NO_FENCE -> known = set; noted = 1
	:: else -> noted = 1; known = set
	fi;
	if
	:: known ->
		take(structure); rx = item && is_idle; structure = 0;
		if
		:: rx ->
			rx = 0;
			take(link_lock); take(structure);
			if
			:: is_idle ->
				managed = managed || (up && BUG != NOT_MANAGED);
				idle_tx--; idle_rx--
			:: else
			fi;
			structure = 0; link_lock = 0;
			if
			:: BUG != NO_GO -> take(link_lock); go(rx); link_lock = 0
			:: else
			fi
		:: else
		fi
	:: else
	fi;
	sleeps = 1
}

/* The program's bytes pass the mark. */
proctype mover()
{
	do
	:: atomic { marked -> marked = 0 };
		if
		:: idle_tx -> leave()
		:: else
		fi
	:: timeout -> break
	od
}

/* Nobody who is seen waits for what lies in the ring: of what waits, all is idle. */
#define neglected	(in_ring && !hold && (!item || idle_rx == 1 + TWO))

/* A search takes its time. The set that it finds is one that the shim knows. */
proctype watch()
{
	bit found;

end:	do
	:: atomic { neglected && item && BUG != NO_WATCH -> found = 1 };
		leave();
		found = 0
	od
}

proctype service()
{
	byte m;
	bit rx;

end:	do
	:: to_us?m;
		take(link_lock);
		if
		:: m == SWITCH -> atomic { in_ring = 1 }
		:: m == ACK ->
			/* What the peer has in the ring goes over TCP. */
			atomic { in_ring = 0; down_wait-- };
			if
			:: BUG != NO_ANSWER -> go(rx)
			:: else
			fi
		fi;
		link_lock = 0; m = 0
	od
}

inline try_up()
{
	if
	:: its_go && !its_hold && !its_ring -> its_ring = 1; to_us!SWITCH
	:: else
	fi
}

proctype peer()
{
	byte m;

end:	do
	:: atomic {
		to_peer?m;
		if
		:: m == GO -> its_go = 1; try_up()
		:: m == DOWN -> its_hold = 1; its_ring = 0; to_us!ACK
		:: m == UP -> its_hold = 0; try_up()
		fi;
		m = 0
	}
	od
}

proctype other()
{
	atomic { hold = HOLD; for_good = 1 }
}

/* Nothing happens any more. */
proctype at_last()
{
	timeout;
	assert(!for_good || hold == HOLD);
	assert(!sleeps || !in_ring || managed || for_good);
	assert(SEEN || !in_ring || !item);
	assert(!SEEN || TWO || for_good || in_ring)
}

init
{
	atomic {
		TAKE_PARAMETERS;
		idle_rx = TWO; idle_tx = TWO;
		run adder(); run meeting(); run watch(); run service(); run peer(); run mover();
		if
		:: SEEN -> run waiter()
		:: else
		fi;
		if
		:: LASTS -> run other()
		:: else
		fi;
		run at_last()
	}
}
