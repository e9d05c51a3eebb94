/* SPDX-License-Identifier: BSD-2-Clause */
/* One doorbell for a sleep over many connections (docs/design/wire-shm.md,
 * section 4; preload/epoll_wait.c; exi_conn_wake() in core/link/control.c).
 *
 * Modelled: a set with two connections of one peer process, which sends on both
 * from two threads (LEAVES: one). Thread 0 waits in the set for ever, and
 * receives from all connections that are reported to it. Thread 1 (LEAVES)
 * looks once, receives, and goes to other work for good. With CLOSES a thread
 * closes connection 0 at any time, and its ring may be unread.
 *
 * Memory is sequentially consistent here: bell.pml checks that a request and a
 * record see one another.
 *
 * Asserted: when no thread moves any more, an open connection has nothing
 * unread. (Sleepers may be asleep then.) */

#define PARAMETERS(P) \
	P(N, 1)	/* sends on each connection */ \
	P(LEAVES, 0) \
	P(CLOSES, 0) \
	P(BUG, 0)
#include "parameters.pml"

/* Planted bugs. */
#define ONE_NUMBER	1	/* every pass of arming has the same number */
#define NO_STIRS	2	/* who leaves does not look whether something came while it armed */
#define NO_NUDGE	3	/* a close does not wake who sleeps */
#define NO_STIR_CLOSE	4	/* nor does who is arming know of it */
#define NO_ARMING	5	/* who arms does not hear of what a leaver held meanwhile */

#define NONE 255
#define unread(i)	(sent[i] != taken[i])

byte sent[2], taken[2];
byte wants[2] = NONE;		/* the record for which the bell is asked */
bit rings[2];			/* it lies in the link */
byte number[2] = NONE;		/* the sleep that it is to end */
bit open[2] = 1;
bit hot[2] = 1;
bit held[2];
byte stirs, noted = NONE;
byte loaded[2] = NONE;		/* by the senders */
byte arms_with[2] = NONE;	/* the waiters */
byte sleepers, arming;
bit nudged;
bit sleeping[2];

/* Something came for connection i. */
inline activate(i)
{
	stirs++;
	if
	:: !open[i]
	:: open[i] && held[i]	/* its holder makes it so */
	:: open[i] && !held[i] -> hot[i] = 1
	fi;
	if
	:: sleepers > 0 -> nudged = 1
	:: else
	fi
}

#define in_use(x)	(noted == (x) || number[0] == (x) || number[1] == (x) || \
			 loaded[0] == (x) || loaded[1] == (x) || \
			 arms_with[0] == (x) || arms_with[1] == (x))

/* What nobody has is as good as what nobody had, and there are fewer. */
inline new_number(ret)
{
	ret = 1;
	do
	:: in_use(ret) -> ret++
	:: else -> break
	od
}

/* A record was sent on connection i. */
inline ring()
{
	atomic { asked = (wants[i] == sent[i] - 1); loaded[i] = number[i] };
	if
	:: asked && noted != loaded[i] ->
		if
		:: atomic { open[i] -> rings[i] = 1 }; noted = loaded[i]
		:: !open[i]
		fi
	:: else
	fi;
	loaded[i] = NONE
}

/* Of a connection, or (BOTH) of both. */
#define BOTH 2

proctype sender(byte which)
{
	byte i;
	bit asked;

	do
	:: atomic { which != 1 && sent[0] < N && open[0] -> i = 0; sent[0]++ };
		ring()
	:: atomic { which != 0 && sent[1] < N && open[1] -> i = 1; sent[1]++ };
		ring()
	:: else -> break
	od
}

/* The kernel tells thread t of links, or of the nudge. */
inline hear()
{
	atomic {
		nudged = 0;
		if
		:: rings[0] -> rings[0] = 0; activate(0)
		:: else
		fi;
		if
		:: rings[1] -> rings[1] = 0; activate(1)
		:: else
		fi
	}
}

/* Looks once at each that is active, and receives: some says whether there was any. */
inline collect()
{
	i = 0;
	do
	:: i < 2 ->
		atomic {
			if
			:: hot[i] && open[i] ->
				hot[i] = 0; held[i] = 1; mine = 1
			:: else -> mine = 0
			fi
		};
		if
		:: mine ->
			wants[i] = NONE;
			atomic {
				if
				:: unread(i) -> taken[i] = sent[i]; some = 1
				:: else
				fi
			};
			atomic { held[i] = 0; hot[i] = 1 }
		:: else
		fi;
		i++
	:: else -> break
	od;
	atomic { i = 0; mine = 0 }
}

/* Arms what is active, which stays so. done: nothing is there, nothing came. */
inline arm_all()
{
	atomic {
		arming++;
		before = stirs; done = 1; i = 0;
		n = 1;
		if
		:: BUG == ONE_NUMBER
		:: else -> new_number(n)
		fi;
		arms_with[t] = n
	};
	do
	:: i < 2 && done ->
		atomic {
			if
			:: hot[i] && open[i] -> hot[i] = 0; held[i] = 1; mine = 1
			:: else -> mine = 0
			fi
		};
		if
		:: mine ->
			wants[i] = NONE;
			atomic { number[i] = n; wants[i] = taken[i] };
			done = !unread(i);
			atomic { held[i] = 0; hot[i] = 1 }
		:: else
		fi;
		i++
	:: else -> break
	od;
	atomic { arms_with[t] = NONE; n = 0; i = 0; mine = 0 }
}

proctype waiter(byte t)
{
	byte i, n, before, seen;
	bit some, mine, done;

	do
	:: atomic { some = 0; seen = stirs };
		collect();
		if
		:: t == 1 -> break
		:: some && t == 0
		:: !some && t == 0 ->
			arm_all();
			atomic {
				if
				:: done && stirs == before && stirs == seen ->
					sleepers++; sleeping[t] = 1
				:: else
				fi;
				arming--; done = 0; before = 0; seen = 0
			};
			if
			:: sleeping[t] ->
end:					atomic { nudged || rings[0] || rings[1] ->
					sleeping[t] = 0; sleepers-- };
				hear()
			:: else
			fi
		fi
	od;
	/* It leaves: what is there, or comes, is for one of those who sleep. */
	atomic {
		if
		:: BUG == NO_ARMING
		:: BUG != NO_ARMING && arming -> stirs++
		:: else
		fi;
		done = (sleepers == 0)
	};
	if
	:: !done ->
		arm_all();
		atomic {
			if
			:: !done || (BUG != NO_STIRS && stirs != before) -> nudged = 1
			:: else
			fi;
			arming--
		}
	:: else
	fi
}

proctype closer()
{
	if
	:: atomic {
		open[0] = 0; rings[0] = 0; hot[0] = 0;
		if
		:: BUG == NO_STIR_CLOSE
		:: else -> stirs++
		fi;
		if
		:: BUG != NO_NUDGE && sleepers > 0 -> nudged = 1
		:: else
		fi
	}
	:: skip
	fi
}

init
{
	atomic {
		TAKE_PARAMETERS;
		run waiter(0);
		if
		:: LEAVES -> run waiter(1)
		:: else
		fi;
		if
		:: CLOSES -> run closer()
		:: else
		fi;
		if
		:: LEAVES -> run sender(BOTH)
		:: else -> run sender(0); run sender(1)
		fi
	};
	timeout -> assert(!unread(1) && (!unread(0) || !open[0]))
}
