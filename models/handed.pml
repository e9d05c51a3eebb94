/* SPDX-License-Identifier: BSD-2-Clause */
/* A connection that is passed on (core/meet/handed.h, core/sock/holders.h): its
 * new holder moves it again only when no other process uses it.
 *
 * Modelled: the parent, which has the connection and the library; its actions,
 * by scenario; and the new holder.
 *
 * EXEC: a child also has the connection, and becomes another program, which
 * keeps it. The parent closes it at any time. With STREAM the parent opens a
 * stdio stream on it instead, and its library lets go of it.
 *
 * Otherwise the parent passes the connection in a message, once, and closes it.
 *
 * Meanwhile, with FORKS another thread of the parent forks, with SPAWNS it
 * spawns a program; with OTHER another child has the connection, too, and opens
 * a stream on it.
 *
 * Memory is sequentially consistent, as the code's operations are; a descriptor
 * table is the kernel's, and changes in one step.
 *
 * Asserted: when the new holder moves the connection, no other process uses it.
 * A process uses it if it has it and is not in the close that ends that, or was
 * forked during that close. At the end, if the parent closed the connection and
 * no other process can have got it, the new holder has moved it.
 *
 * Not modelled: how the new holder and the peer find each other (meet.pml); a
 * child that has the connection, and no library; a spawn with a child that does
 * exec. */

/* Planted bugs. */
#define LOOKS_FIRST	1	/* who closes looks for strays, then takes itself out */
#define COUNTS_LATE	2	/* the child looks, then counts itself as a stray */
#define NO_STRAYS	3	/* a library that lets go of it only leaves */
#define NO_FORKS	4	/* who closes does not compare the forks */
#define NOTES_LATE	5	/* the forks are read when it was seen to be alone */
#define ONLY_BEFORE	6	/* a spawn is like a fork: counted before it only */
#define ANY_STRAYS	7	/* who closes takes any number of strays for the heir */
#define STRAYS_FIRST	8	/* strays are looked at before the users are counted */

#define PARAMETERS(P) \
	P(EXEC, 0) \
	P(STREAM, 0) \
	P(FORKS, 0) \
	P(SPAWNS, 0) \
	P(OTHER, 0) \
	P(BUG, 0)
#include "parameters.pml"

/* Who has a descriptor, and uses it. */
bit parent_uses, other_uses;
bit other_got;			/* a child or a program got it, at any time */
bit parent_closed;

/* struct exi_holders: who counts, by process, and is not about to leave. */
bit parent_lib;			/* the parent's library has it */
bit parent_counts, child_counts, other_counts;
byte strays;
bit heir;

byte forks, spawning;
bit noted;			/* the note of handed.c */
bit said;			/* the name is bound */
bit holder_has, moved;
bit others_done, parent_done;

#define users	(parent_counts + child_counts + other_counts)

inline move()
{
	atomic {
		assert(!parent_uses && !other_uses);
		moved = 1
	}
}

/* --- exec ---------------------------------------------------------------- */

proctype child()
{
	byte had;
	bit alone;

	if
	:: BUG == COUNTS_LATE ->
		alone = users == 1;
		alone = alone && !strays;
		strays++;
		heir = 1
	:: BUG == STRAYS_FIRST ->
		atomic { had = strays; strays++ };
		heir = 1;
		alone = !had && users == 1
	:: else ->
		strays++;
		heir = 1;
		alone = users == 1;
		alone = alone && strays == 1
	fi;
	child_counts = 0;
	holder_has = 1;
	if
	:: alone -> move()
	:: !alone -> (said || (others_done && parent_done));
		if
		:: said -> move()
		:: else
		fi
	fi
}

/* In the close that takes the connection away. */
inline leave()
{
	atomic { parent_counts = 0; parent_uses = 0 }
}

/* exi_hand_leaves() and the close. */
proctype closer()
{
	byte was, seen;
	bit is_heir;

	was = forks;
	if
	:: BUG == LOOKS_FIRST ->
		is_heir = heir && !other_counts;
		seen = strays;
		leave()
	:: BUG == STRAYS_FIRST ->
		leave();
		seen = strays;
		is_heir = heir;
		is_heir = is_heir && !other_counts
	:: else ->
		leave();
		is_heir = heir;
		is_heir = is_heir && !other_counts;
		seen = strays
	fi;
	is_heir = is_heir && (seen == 1 || BUG == ANY_STRAYS);
	atomic { parent_lib = 0; parent_closed = 1 };
	if
	:: is_heir && (forks == was || BUG == NO_FORKS) -> said = 1
	:: else
	fi;
	parent_done = 1
}

/* A stream: the library lets go, the program does not. */
proctype streamer()
{
	if
	:: BUG != NO_STRAYS -> strays++
	:: else
	fi;
	atomic { parent_counts = 0; parent_lib = 0 };
	parent_done = 1
}

/* --- a message ----------------------------------------------------------- */

proctype giver()
{
	byte was;
	bit alone;

	was = forks;
	if
	:: BUG == STRAYS_FIRST -> alone = !strays; alone = alone && !other_counts
	:: else -> alone = !other_counts; alone = alone && !strays
	fi;
	if
	:: BUG == NOTES_LATE -> was = forks
	:: else
	fi;
	if
	:: alone -> noted = 1
	:: else
	fi;
	holder_has = 1;
	strays++;			/* its library lets go */
	atomic { parent_counts = 0; parent_lib = 0 };
	atomic { alone = noted; noted = 0 };
	atomic { parent_uses = 0; parent_closed = 1 };
	if
	:: alone && BUG == NO_FORKS -> alone = !spawning
	:: alone && BUG != NO_FORKS ->
		alone = !spawning;
		alone = alone && forks == was
	:: else
	fi;
	said = alone;
	parent_done = 1
}

proctype receiver()
{
	holder_has -> (said || (others_done && parent_done));
	if
	:: said -> move()
	:: else
	fi
}

/* --- meanwhile ----------------------------------------------------------- */

/* The child counts before it is there, and uses what the parent has then. */
proctype forker()
{
	bit counted;

	atomic { counted = parent_lib; other_counts = counted };
	atomic { forks++; noted = 0 };
	atomic {
		other_uses = parent_uses;
		other_got = other_got || !parent_closed;
		if
		:: !counted -> other_counts = 0
		:: else
		fi
	};
	others_done = 1
}

/* The program has it until its exec, which closes it: what it keeps, the parent's
 * library lets go of before. */
proctype spawner()
{
	if
	:: BUG == ONLY_BEFORE -> atomic { forks++; noted = 0 }
	:: else -> spawning++
	fi;
	other_uses = !parent_closed;
	other_uses = 0;
	if
	:: BUG == ONLY_BEFORE
	:: else -> atomic { forks++; noted = 0 }; spawning--
	fi;
	others_done = 1
}

/* A child with the library, and a stream. */
proctype other()
{
	if
	:: BUG != NO_STRAYS -> strays++
	:: else
	fi;
	other_counts = 0;
	others_done = 1
}

init {
	TAKE_PARAMETERS
	atomic {
		parent_uses = 1;
		parent_counts = 1;
		parent_lib = 1;
		other_counts = OTHER;
		other_uses = OTHER;
		other_got = OTHER;
		child_counts = EXEC;
		if
		:: EXEC && STREAM -> run child(); run streamer()
		:: EXEC && !STREAM -> run child(); run closer()
		:: else -> run giver(); run receiver()
		fi;
		if
		:: FORKS -> run forker()
		:: SPAWNS -> run spawner()
		:: OTHER -> run other()
		:: else -> others_done = 1
		fi
	};
	(_nr_pr == 1) ->
	assert(moved || parent_uses || other_got || FORKS || SPAWNS)
}
