/* SPDX-License-Identifier: BSD-2-Clause */
/* The meeting by a key: which process A and B believe to be at the other end of
 * the link, whatever a process between them passes on, keeps and repeats
 * (docs/design/wire-shm.md, section 1, "Between network namespaces").
 *
 * Modelled: two connections between two processes, of which one has both A ends
 * and the other both B ends; each end holds the key and has its own nonce for
 * each connection. M has the directory but not the key. A binds its name at any
 * moment, and receives two candidates: B, if B found the name, and M. B looks
 * once, at any moment. It finds the name of its A, or the name that M has put
 * in that place: M's own, or that of the other A. M sends any messages on its
 * links, SAYS times: any nonce, and any MAC that it received, from either
 * connection.
 *
 * The kernel names the process at the other end of a link. With TURNS the
 * second connection has the addresses of the first, and begins when the first
 * is over; meanwhile the process of the B ends (1) or of the A ends (2) has
 * executed M: M's links then have the pid of that process, and M knows what it
 * had sent.
 *
 * Abstractions: a MAC is the data that it covers, and only an end that holds
 * the key can make it. M knows all nonces from the beginning, because they are
 * sent in the clear. PROVED ends the meeting for B; OFFER and ANSWER, which
 * follow, carry the segments.
 *
 * Asserted: A accepts a candidate only if it is the B of this connection, and B
 * accepts only the A of this connection; if M is absent and B looks after A
 * bound its name, both accept each other. */

#define PARAMETERS(P) \
	P(MAN, 1)	/* M is there */ \
	P(TURNS, 0) \
	P(SAYS, 3) \
	P(BUG, 0)
#include "parameters.pml"

/* Planted bugs. */
#define NO_PROCESS	1	/* a MAC does not cover the processes */
#define NO_NONCES	2	/* nor the nonces */
#define NO_LABEL	3	/* nor which end made it */
#define NO_ENDS		4	/* nor the addresses of the connection */
#define NO_CHECK	5	/* A believes PROVED whatever its MAC is */
#define ONE_WAY		6	/* B believes HELLO whatever its MAC is */
#define OWN_NUMBER	7	/* an end sends its number, and is believed */

#define PA 1			/* numbers of processes */
#define PB 2
#define PM 3

/* Nonces: of A, of B, of M. */
#define NA(c) (1 + (c))
#define NB(c) (3 + (c))
#define NM 5

/* The addresses of a connection. */
#define ENDS(c) (TURNS -> 0 : (c))

/* What a MAC covers: who made it (1: A), the addresses, nonces and processes. */
#define MAC(a, c, na, nb, pa, pb) (1 + \
	(BUG == NO_LABEL -> 0 : (a)) * 2 + \
	(BUG == NO_ENDS -> 0 : ENDS(c)) * 4 + \
	(BUG == NO_NONCES -> 0 : (na)) * 8 + \
	(BUG == NO_NONCES -> 0 : (nb)) * 64 + \
	(BUG == NO_PROCESS -> 0 : (pa)) * 512 + \
	(BUG == NO_PROCESS -> 0 : (pb)) * 2048)

mtype = { HELLO, PROVED };

/* By the number of an A: the link of a B to it, and M's. By the number of a B: its
 * link to M. A message: its kind, a nonce, a MAC, and what OWN_NUMBER believes. */
chan a_from_b[2] = [2] of { mtype, byte, short, byte };
chan b_from_a[2] = [2] of { mtype, byte, short, byte };
chan a_from_m[2] = [1] of { mtype, byte, short, byte };
chan b_from_m[2] = [1] of { mtype, byte, short, byte };

bool bound[2], taken[2];	/* A's name; by a B */
byte who[2];			/* which B has taken it */
bool to_m[2];			/* a B is connected to M */
bool a_believes[2], b_believes[2], in_time[2];
bool a_over[2], b_over[2];
bool turned;

/* MACs that M was told: by either A, and what the process that turned had in the
 * first connection. It hears at once what is said to it. */
short told[3];
short made;

/* The number of the process at M's end of a link. */
#define M_IS (turned -> (TURNS == 1 -> PB : PA) : PM)
#define PEER(real, said) (BUG == OWN_NUMBER -> (said) : (real))

inline hear_a(c, in, from_b, heard, nonce)
{
	atomic {
		in ? kind, n, mac, said;
		peer = PEER((from_b -> PB : M_IS), said);
		if
		:: kind == HELLO && !heard ->
			heard = true;
			nonce = n;
			mac = MAC(1, c, NA(c), n, PA, peer);
			if
			:: from_b ->
				b_from_a[c] ! HELLO, NA(c), mac, PA;
				if
				:: TURNS == 2 && c == 0 -> made = mac
				:: else
				fi
			:: else -> told[c] = mac
			fi
		:: kind == PROVED && heard && (BUG == NO_CHECK ||
			mac == MAC(0, c, NA(c), nonce, PA, peer)) ->
			assert(from_b && who[c] == c);
			a_believes[c] = true
		:: else
		fi;
		kind = HELLO;
		n = 0;
		mac = 0;
		said = 0;
		peer = 0
	}
}

proctype a(byte c)
{
	mtype kind = HELLO;
	byte n, said, peer, nonce_b, nonce_m;
	short mac;
	bool heard_b, heard_m;

	/* With TURNS 2 this process is M's by then. */
	if
	:: TURNS == 2 && c == 1 -> goto over
	:: else
	fi;
	if
	:: !TURNS || c == 0 || turned -> bound[c] = true
	:: timeout -> goto over
	fi;
	do
	:: a_believes[c] -> break
	:: !a_believes[c] && nempty(a_from_b[c]) ->
		hear_a(c, a_from_b[c], true, heard_b, nonce_b)
	:: !a_believes[c] && nempty(a_from_m[c]) ->
		hear_a(c, a_from_m[c], false, heard_m, nonce_m)
	:: TURNS && c == 0 -> break
	:: timeout -> break
	od;
over:
	bound[c] = false;
	a_over[c] = true
}

/* B has HELLO of the A whose number is x, or of M (2). */
inline hear_b(c, in, x)
{
	atomic {
		in ? kind, n, mac, said;
		peer = PEER((x == 2 -> M_IS : PA), said);
		if
		:: kind == HELLO && (BUG == ONE_WAY ||
			mac == MAC(1, c, n, NB(c), peer, PB)) ->
			assert(x == c);
			b_believes[c] = true;
			mac = MAC(0, c, n, NB(c), peer, PB);
			if
			:: TURNS == 1 -> made = mac
			:: else
			fi
		:: else -> mac = 0
		fi;
		kind = HELLO;
		n = 0;
		said = 0;
		peer = 0
	}
}

proctype b(byte c)
{
	mtype kind = HELLO;
	byte n, said, peer, x;
	short mac;

	if
	:: !TURNS || c == 0 || turned
	:: timeout -> goto over
	fi;
	if
	:: atomic { bound[c] && !taken[c] ->
		x = c;
		in_time[c] = true
	}
	:: atomic { MAN && bound[1 - c] && !taken[1 - c] -> x = 1 - c }
	:: MAN -> x = 2
	:: TURNS && c == 0 -> goto over
	:: timeout -> goto over
	fi;
	if
	:: x == 2 ->
		to_m[c] = true;
		if
		:: nempty(b_from_m[c]) -> hear_b(c, b_from_m[c], 2)
		:: TURNS && c == 0 -> goto over
		:: timeout -> goto over
		fi
	:: else ->
		atomic {
			if
			:: taken[x] -> goto over
			:: else
			fi;
			taken[x] = true;
			who[x] = c;
			a_from_b[x] ! HELLO, NB(c), 0, PB
		}
		if
		:: nempty(b_from_a[x]) -> hear_b(c, b_from_a[x], x)
		:: TURNS && c == 0 -> goto over
		:: timeout -> goto over
		fi;
		if
		:: mac -> a_from_b[x] ! PROVED, 0, mac, PB
		:: else
		fi
	fi;
over:
	b_over[c] = true
}

inline pretend()
{
	said = PM;
	if
	:: BUG == OWN_NUMBER -> said = PA
	:: BUG == OWN_NUMBER -> said = PB
	:: else
	fi
}

/* To A: a nonce, the MAC with it is not looked at, or a MAC. */
inline say_to_a(out)
{
	atomic {
		says++;
		pretend();
		if
		:: out ! HELLO, NB(0), 0, said
		:: out ! HELLO, NB(1), 0, said
		:: out ! HELLO, NM, 0, said
		:: told[0] -> out ! PROVED, 0, told[0], said
		:: told[1] -> out ! PROVED, 0, told[1], said
		:: told[2] -> out ! PROVED, 0, told[2], said
		:: BUG == NO_CHECK -> out ! PROVED, 0, 0, said
		fi;
		said = 0
	}
}

inline say_to_b(out)
{
	atomic {
		says++;
		pretend();
		select(i : 0 .. 2);
		mac = told[i];
		if
		:: out ! HELLO, NA(0), mac, said
		:: out ! HELLO, NA(1), mac, said
		:: out ! HELLO, NM, mac, said
		fi;
		i = 0;
		mac = 0;
		said = 0
	}
}

proctype man()
{
	byte i, said, says;
	short mac;

	do
	:: says < SAYS && bound[0] && nfull(a_from_m[0]) ->
		say_to_a(a_from_m[0])
	:: says < SAYS && bound[1] && nfull(a_from_m[1]) ->
		say_to_a(a_from_m[1])
	:: says < SAYS && to_m[0] && nfull(b_from_m[0]) -> say_to_b(b_from_m[0])
	:: says < SAYS && to_m[1] && nfull(b_from_m[1]) -> say_to_b(b_from_m[1])
	:: atomic { TURNS && !turned && a_over[0] && b_over[0] ->
		turned = true;
		told[2] = made
	}
	:: timeout -> break
	od
}

init
{
	atomic {
		TAKE_PARAMETERS;
		run a(0);
		run a(1);
		run b(0);
		/* With TURNS 1 this process is M's by then. */
		if
		:: TURNS == 1
		:: else -> run b(1)
		fi;
		if
		:: MAN -> run man()
		:: else
		fi
	}
	timeout;
	assert(MAN || ((!in_time[0] || (a_believes[0] && b_believes[0])) &&
		(!in_time[1] || (a_believes[1] && b_believes[1]))))
}
