/* SPDX-License-Identifier: BSD-2-Clause */
/* The closing of candidates (core/meet/candidate.c, docs/design/wire-shm.md,
 * section 2): an A that leaves before it has met informs each candidate. Each
 * candidate that could connect gets a message.
 *
 * Modelled: A, which accepts any process that connects, receives what each
 * says, and leaves at any moment; B, candidate 0, which connects at any moment,
 * sends HELLO, and reads; STRANGERS others, which connect, send something or
 * nothing, and may close.
 *
 * A listening socket has a queue: listen(2) with n lets n + 1 wait. A
 * connection is two queues of packets: `said' counts those to A, `no' is the
 * one packet to the candidate. After a shutdown by A, the candidate's sends
 * fail, and its reads end after `no'. If A closes with unread bytes, the
 * candidate gets an error, before `no', once.
 *
 * Not modelled: which of the candidates is the peer (meet.pml), and messages
 * that B would send later. If more candidates come than A has room for, A
 * dismisses the oldest without a message.
 *
 * Asserted: at the end B, if it connected and was not dismissed for room, got
 * the message. */

#define PARAMETERS(P) \
	P(STRANGERS, 2) \
	P(LEAVES, 0)	/* A closes what it has not read, */ \
	P(STOPS, 0)	/* B stops at an error: either alone does no harm */ \
	P(BUG, 0)
#include "parameters.pml"

/* Planted bugs. */
#define NO_QUEUE	1	/* who waits to be accepted is told nothing */
#define FEW		2	/* what was: no more are accepted than listen() was given */
#define SHUTS_LATE	3	/* the name is shut when those who wait were told */
#define NO_LAST		4	/* B reads no more when it could not send */
#define ONLY_QUEUE	5	/* who was accepted is told nothing */

#define ROOM	2		/* candidates; and listen() is given as much */
#define MOST	(ROOM + 1)	/* that wait, for the kernel */
#define ALL	4

chan queue = [MOST] of { byte };
bool accepts = true;		/* the name */

byte said[ALL];			/* unread */
bool no[ALL], ended[ALL], failed[ALL];

byte slot[ROOM];		/* whose: the number + 1; 0: free */
byte n_told;

bool connected, dismissed, told, parted, b_over;

/* A closes its end. */
inline close_end(c)
{
	atomic {
		ended[c] = true;
		failed[c] = failed[c] || (LEAVES && said[c]);
		said[c] = 0
	}
}

/* Accepted: the oldest goes where there is no room. */
inline take(c)
{
	if
	:: slot[0] == 0 -> slot[0] = c + 1
	:: slot[0] && slot[1] == 0 -> slot[1] = c + 1
	:: slot[0] && slot[1] ->
		dismissed = dismissed || slot[0] == 1;
		close_end(slot[0] - 1);
		slot[0] = slot[1];
		slot[1] = c + 1
	fi
}

/* What it said first: an error would come before the word. */
inline tell(c)
{
	if
	:: !LEAVES -> said[c] = 0
	:: else
	fi;
	no[c] = true
}

inline tell_candidates()
{
	i = 0;
	do
	:: i < ROOM ->
		if
		:: slot[i] -> tell(slot[i] - 1)
		:: else
		fi;
		i++
	:: else -> break
	od
}

inline tell_queue()
{
	i = 0;
	do
	:: i < (BUG == FEW -> ROOM : MOST) && BUG != NO_QUEUE ->
		if
		:: queue?c -> tell(c); close_end(c)
		:: empty(queue) -> break
		fi;
		i++
	:: else -> break
	od
}

proctype A()
{
	byte c, i;

	/* Under the link's lock each time. */
	do
	:: atomic { queue?c -> take(c) }
	:: atomic { slot[0] && said[slot[0] - 1] -> said[slot[0] - 1]-- }
	:: atomic { slot[1] && said[slot[1] - 1] -> said[slot[1] - 1]-- }
	:: break
	od;
	if
	:: BUG != ONLY_QUEUE -> tell_candidates()
	:: else
	fi;
	if
	:: BUG != SHUTS_LATE -> accepts = false
	:: else
	fi;
	tell_queue();
	accepts = false;
	/* Gives up: what is left in the queue ends, and the candidates. */
	do
	:: queue?c -> close_end(c)
	:: empty(queue) -> break
	od;
	i = 0;
	do
	:: i < ROOM ->
		if
		:: slot[i] -> close_end(slot[i] - 1)
		:: else
		fi;
		i++
	:: else -> break
	od;
	parted = true
}

proctype B()
{
	bool could;

	if
	:: atomic { accepts && nfull(queue) -> queue!0; connected = true }
	:: atomic { parted -> goto done }
	fi;
	atomic {
		could = !ended[0];
		said[0] = said[0] + could
	};
	if
	:: !could && BUG == NO_LAST -> goto done
	:: else
	fi;
	/* An answer, an error or the end. */
	(no[0] || ended[0] || failed[0]);
	if
	:: failed[0] && STOPS -> goto done
	:: else -> failed[0] = false
	fi;
	(no[0] || ended[0]);
	told = no[0];
done:	b_over = true
}

proctype stranger(byte c)
{
	if
	:: atomic { accepts && nfull(queue) -> queue!c }
	:: goto done
	fi;
	do
	:: atomic { said[c] < 1 && !ended[c] -> said[c]++ }
	:: break
	od;
done:	skip
}

proctype judge()
{
	parted && b_over;
	assert(!connected || dismissed || told)
}

init
{
	atomic {
		TAKE_PARAMETERS;
		run A();
		run B();
		if
		:: STRANGERS > 0 -> run stranger(1)
		:: else
		fi;
		if
		:: STRANGERS > 1 -> run stranger(2)
		:: else
		fi;
		if
		:: STRANGERS > 2 -> run stranger(3)
		:: else
		fi;
		run judge()
	}
}
