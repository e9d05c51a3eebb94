/* SPDX-License-Identifier: BSD-2-Clause */
/* The meeting: which process A and B believe to be at the other end of the
 * link, whatever a process between them does (docs/design/wire-shm.md, section
 * 1).
 *
 * Modelled: A, which binds the name once, at any moment, and accepts any
 * process that connects; B, which looks LOOKS times, at any moments; M, another
 * user's process, which claims the name, releases it, connects to A, and sends
 * any messages on its links, SAYS times: any message, any number of a symbol,
 * any nonce that it knows or made; C, a process that has A's end of TCP from a
 * fork.
 *
 * Links: 1 from B to A, 2 from B to M, 3 from M to A. A board has one symbol,
 * and every process can read it: nothing of it is hidden from M, which need not
 * look. B's end of its link has the name of B's nonce, from before B sends the
 * nonce until after B restored its board; M can give its end of link 3 any free
 * name that it knows, at any moment.
 *
 * Abstractions: a digest is the nonces, so two are equal only if these are; in
 * truth a symbol of another digest fits once in 32 times. K symbols instead of
 * twelve; A's nonce is the same for each process that comes. A promise is the
 * nonce, which M cannot use before it is sent. A search for a nonce that makes
 * one digest equal to another is the nonce FIT: possible for M if, when it
 * commits itself, it knows all other inputs of the digest. With DIES B may be
 * killed while another process has its end of TCP: the name is free then, and
 * its last symbol stays.
 *
 * With REFUSES B says NO at the look that finds A, before or after A's bind comes
 * a look that does not; or first KEPT, and it meets at the next look. A believes
 * either from a process of the peer's user alone.
 *
 * Asserted: A believes NO and KEPT of B only, and if B refuses, and looks after
 * A's bind, A knows. A sends OFFER, and B ANSWER, on link 1 only; at the end the
 * boards are what they were before; and if no process claims the name before A
 * has it, and B looks after that, they meet, unless B said NO, or KEPT last. */

#define PARAMETERS(P) \
	P(SAME, 0)	/* one user has both ends */ \
	P(MAN, 1)	/* M is there */ \
	P(FORKED, 0)	/* C is */ \
	P(DIES, 0)	/* B may */ \
	P(LOOKS, 2) \
	P(SAYS, 6) \
	P(REFUSES, 0)	/* B: 1 for good, 2 at first */ \
	P(K, 2) \
	P(BUG, 0)
#include "parameters.pml"

/* Planted bugs. */
#define REFERENCE	1	/* what was: something that can be passed on is shown */
#define NO_LINK		2	/* A does not ask for the name of the link */
#define NO_PROMISE	3	/* B tells its nonce at once */
#define NO_CHECK	4	/* A takes another nonce than was promised */
#define ALIKE		5	/* users read alike: M for the owner of either end */
#define EARLY_OFFER	6	/* A believes PROVED before it saw all symbols */
#define ONE_WAY		7	/* B believes an A that asks for no proof */
#define KEEP		8	/* A leaves its last symbol on the board */
#define LATE		9	/* a symbol is told of before it is there */
#define CHILD		10	/* C restores what it did not take */
#define LET_GO		11	/* B lets go of its name before its board is restored */
#define ANYBODY		12	/* A believes NO of every process */
#define NO_MORE		13	/* A takes KEPT for NO */

#define OF_A	1		/* nonces, and what was promised of them */
#define OF_B	2
#define OF_M	3
#define FIT	4

mtype = { HELLO, SHOWN, PROVED, OFFER, ANSWER, NO, KEPT };

/* To A, and from it; 1 to B, and from it; what is said to M is not kept, but in what
 * it knows. A message: HELLO's wish to be shown, or the number of a symbol; a nonce. */
chan to_a[4] = [2] of { mtype, byte, byte };
chan to_b[3] = [2] of { mtype, byte, byte };

byte name;			/* who listens: 0, 1 A, 2 M */
bool claimed;			/* by M, ever */
byte link_b;			/* 1, 2; 0: none yet */
bool link_m;			/* 3 */
bool late_look;			/* B's last look came after A's bind */
bool met_a, met_b, a_over, b_over;
bool b_refused, b_kept, a_told;	/* B said NO, KEPT; A believed one of them */
bool last_kept;			/* B's last look was that of KEPT */

/* Of a board: the digest, 0 for what was there, and the number. */
byte board_a, board_a_i, board_b, board_b_i;
byte dig_a, dig_b;		/* 0: none yet; A's follows from what was promised */
bool seen_b, knows_a, knows_b;	/* M: B's promise, nonces */
bool named_b, named_m;		/* B's end of its link, M's of 3: who has B's name */
bool died;			/* B */

#define DIGEST(na, nb)	(1 + (na) * 5 + (nb))

/* The other end of A's link has the name of nonce n. M has those of its own. */
#define NAMED(l, n)	(BUG == NO_LINK || ((l) == 1 && (n) == OF_B) || \
			 ((l) == 3 && ((n) != OF_B || named_m)))

#define KNOWS(l)	(BUG == ALIKE || (SAME && (l) == 1))

/* A says it on the link. */
inline a_says(t, x, n)
{
	if
	:: l == 1 -> to_b[1]!t,x,n
	:: else -> skip		/* M hears it */
	fi
}

inline dismiss(which)
{
	if
	:: prover == which ->
		prover = 0;
		board_a = 0
	:: else -> skip
	fi
}

/* The peer, as A believes. */
inline a_offers()
{
	atomic {
		assert(l == 1);
		board_a = (BUG == KEEP -> board_a : 0);
		to_b[1]!OFFER,0,0
	};
	if
	:: to_a[1]?ANSWER,_,_ -> met_a = true
	:: b_over && empty(to_a[1]) -> skip	/* the link hung up */
	fi
}

proctype A()
{
	byte prover, looked, promise, peer, l, x, n;
	mtype t;

	atomic {
		if
		:: name == 0 -> name = 1
		:: else -> goto done	/* refused, for good */
		fi
	}
	do
	:: atomic { to_a[1]?t,x,n -> l = 1 };
		goto heard
	:: atomic { to_a[3]?t,x,n -> l = 3 };
		goto heard
	:: timeout -> break		/* ten seconds */
	:: false ->
heard:		atomic {
			if
			:: peer && l == peer && t == PROVED ->
				goto offers
			:: peer && !(l == peer && t == PROVED) ->
				skip	/* others are closed */
			:: !peer && t == HELLO && BUG == REFERENCE ->
				if
				:: n == OF_B ->
					peer = l;
					knows_a = knows_a || l == 3;
					a_says(HELLO, 0, OF_A)
				:: else -> dismiss(l)
				fi
			:: !peer && t == HELLO && BUG != REFERENCE &&
			   KNOWS(l) && !x ->
				board_a = 0;
				prover = 0;
				peer = l;
				name = 0;
				a_says(HELLO, 0, 0)
			:: !peer && t == HELLO && BUG != REFERENCE &&
			   !(KNOWS(l) && !x) && prover ->
				dismiss(l)
			:: !peer && t == HELLO && BUG != REFERENCE &&
			   !(KNOWS(l) && !x) && !prover ->
				prover = l;
				promise = n;
				looked = 0;
				dig_a = DIGEST(OF_A, n);
				knows_a = knows_a || l == 3;
				a_says(HELLO, 1, OF_A)
			:: !peer && t == SHOWN && l == prover && x == looked &&
			   looked < K ->
				if
				:: x == 0 && n == FIT && BUG == NO_CHECK ->
					dig_a = dig_b
				:: else -> skip
				fi;
				if
				:: (x > 0 || n == promise || BUG == NO_CHECK) &&
				   (x > 0 || NAMED(l, n)) &&
				   dig_a && board_b == dig_a &&
				   board_b_i == looked ->
					board_a = dig_a;
					board_a_i = looked;
					looked++;
					a_says(SHOWN, x, 0)
				:: else -> dismiss(l)
				fi
			:: !peer && t == PROVED && l == prover &&
			   (looked == K || BUG == EARLY_OFFER) ->
				goto offers
			:: !peer && l != prover && (t == NO || t == KEPT) &&
			   (KNOWS(l) || BUG == ANYBODY) ->
				assert(b_refused || b_kept);
				a_told = true;
				if
				:: t == NO || BUG == NO_MORE -> goto done
				:: else -> skip
				fi
			:: else -> dismiss(l)
			fi
		}
	od;
	goto done;
offers:	a_offers();
done:	board_a = (BUG == KEEP -> board_a : 0);
	if
	:: name == 1 -> name = 0
	:: else -> skip
	fi;
	a_over = true
}

/* B says it on its link. */
inline b_says(t, x, n)
{
	if
	:: link_b == 1 -> to_a[1]!t,x,n
	:: else -> skip
	fi
}

inline b_shows(i)
{
	if
	:: BUG == LATE ->
		b_says(SHOWN, i, OF_B);
		board_b = dig_b;
		board_b_i = i
	:: else ->
		atomic {
			board_b = dig_b;
			board_b_i = i;
			knows_b = knows_b || link_b == 2;
			b_says(SHOWN, i, OF_B)
		}
	fi
}

proctype B()
{
	byte looks, looked, x, n;
	bool proved;
	mtype t;

	do
	:: looks < LOOKS ->
		atomic {
			looks++;
			late_look = (name == 1);
			link_b = name
		};
		if
		:: link_b && REFUSES == 1 && KNOWS(link_b) ->
			atomic {
				b_refused = true;
				b_says(NO, 0, 0);
				goto done
			}
		:: link_b && REFUSES == 1 && !KNOWS(link_b) ->
			link_b = 0	/* and looks again */
		:: link_b && REFUSES == 2 && KNOWS(link_b) && !b_kept ->
			atomic {
				b_kept = true;
				last_kept = true;
				b_says(KEPT, 0, 0);
				link_b = 0
			}
		:: link_b && (!REFUSES || (REFUSES == 2 &&
		   (b_kept || !KNOWS(link_b)))) ->
			last_kept = false;
			break
		:: else -> skip
		fi
	:: else -> goto done
	od;
	atomic {
		seen_b = (link_b == 2);
		knows_b = (link_b == 2 && BUG == NO_PROMISE);
		b_says(HELLO, !KNOWS(link_b), OF_B)
	};
	do
	:: to_b[link_b]?t,x,n ->
		if
		:: t == HELLO && BUG == REFERENCE && n == OF_A ->
			proved = true;
			b_says(PROVED, 0, 0)
		:: t == HELLO && BUG != REFERENCE && !x &&
		   (KNOWS(link_b) || BUG == ONE_WAY) ->
			proved = true;
			b_says(PROVED, 0, 0)
		:: t == HELLO && BUG != REFERENCE && x && !dig_b && !proved &&
		   !named_m ->
			named_b = true;
			dig_b = (n == FIT -> dig_a : DIGEST(n, OF_B));
			b_shows(0)
		:: t == SHOWN && dig_b && !proved && x == looked &&
		   board_a == dig_b && board_a_i == looked ->
			looked++;
			if
			:: looked == K ->
				atomic {
					board_b = 0;
					proved = true;
					b_says(PROVED, 0, 0)
				}
			:: else -> b_shows(looked)
			fi
		:: t == OFFER && proved ->
			assert(link_b == 1);
			met_b = true;
			to_a[1]!ANSWER,0,0;
			break
		:: else -> break	/* refused */
		fi
	:: timeout -> break		/* five seconds, or the link hung up */
	:: DIES -> goto dead
	od;
done:	named_b = named_b && BUG != LET_GO;
	board_b = 0;
	goto over;
dead:	died = true;
over:	named_b = false;
	b_over = true
}

#define CAN_A	(link_m && !a_over && empty(to_a[3]))
#define CAN_B	(link_b == 2 && !b_over && empty(to_b[2]))

/* A nonce, or a promise of one, passed on or made. */
inline choose(other, known)
{
	if
	:: n = OF_M
	:: known -> n = other
	fi
}

inline m_tells_a()
{
	if
	:: choose(OF_B, seen_b); to_a[3]!HELLO,1,n
	:: to_a[3]!HELLO,0,OF_M
	:: choose(OF_B, knows_b); to_a[3]!SHOWN,0,n
	:: knows_a && dig_b -> to_a[3]!SHOWN,0,FIT
	:: REFUSES -> to_a[3]!NO,0,0
	:: to_a[3]!SHOWN,1,0
	:: to_a[3]!PROVED,0,0
	fi
}

inline m_tells_b()
{
	if
	:: choose(OF_A, knows_a); to_b[2]!HELLO,1,n
	:: to_b[2]!HELLO,0,OF_M
	:: knows_b && dig_a -> to_b[2]!HELLO,1,FIT
	:: to_b[2]!SHOWN,0,0
	:: to_b[2]!SHOWN,1,0
	:: to_b[2]!OFFER,0,0
	fi
}

proctype M()
{
	byte says, n;

	do
	:: atomic { name == 0 && !claimed -> name = 2; claimed = true }
	:: atomic { name == 2 -> name = 0 }
	:: atomic { name == 1 && !link_m -> link_m = true }
	:: atomic { knows_b && !named_b && !named_m -> named_m = true }
	:: atomic { says < SAYS && CAN_A -> says++; m_tells_a(); n = 0 }
	:: atomic { says < SAYS && CAN_B -> says++; m_tells_b(); n = 0 }
	:: break
	od
}

proctype C()
{
	/* At any moment its copy of what A is at ends. */
	if
	:: BUG == CHILD -> board_a = 0
	:: else -> skip
	fi
}

/* All is over: nobody has anything to do but end. */
proctype judge()
{
	a_over && b_over;
	assert(board_a == 0 && (died || board_b == 0));
	assert(!(SAME && !claimed && late_look && REFUSES) || died || a_told);
	assert(!((SAME || !MAN) && !claimed && late_look) || died ||
	       REFUSES == 1 || last_kept || (met_a && met_b))
}

init
{
	atomic {
		TAKE_PARAMETERS;
		run A();
		run B();
		if
		:: MAN -> run M()
		:: else
		fi;
		if
		:: FORKED -> run C()
		:: else
		fi;
		run judge()
	}
}
