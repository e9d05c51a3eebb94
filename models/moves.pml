/* SPDX-License-Identifier: BSD-2-Clause */
/* The order in which an epoll set reports connections that move from TCP to a
 * ring (the head of preload/epoll_look.c; docs/design/wire-shm.md, section 4,
 * `tcp'). What order.pml models of connections in rings is left out here.
 *
 * Modelled: one set with two connections, which are on TCP at first; the thread
 * that waits in it, and receives all that it sees on reported connections; the
 * service thread of its process, which reads links as the waiter does; and the
 * peer's writer. The writer sends SENDS records in turn on connections that the
 * search chooses, and moves a connection at any time: SWITCH is then in the
 * link, and what follows in the ring. The kernel's list of the set has a
 * connection once bytes came to it on TCP, or a message to its link, in the
 * order in which that first happened.
 *
 * With MEETS the first connection has not met its peer at first: the kernel
 * reports it like any other descriptor, at its place in the list, and so does
 * the library. Then another thread manages it: the kernel's set gets the
 * library's tag, the item becomes managed, the peer reports times from some
 * moment on, and only then may it move. With MEETS=2 the other connection is in
 * its ring from the beginning.
 *
 * The writer's actions advance the time, so each record has its own time.
 *
 * Asserted: when a connection is reported, all records that were written before
 * its first unread one were reported before, in this call or an earlier one.
 *
 * Beyond what the order is promised for, and found as such: bytes whose peer
 * does not report times yet, sent while the kernel is being asked (OVERLAPS).
 *
 * Not modelled: an exclusive item, which is removed from the kernel's set and
 * added again when it becomes managed, and loses its place there; and
 * level-triggered events that the kernel keeps in its list after it reported
 * them, whose place is as old natively. */

/* Planted bugs. */
#define NO_HEAR		1	/* links are not read by who found bytes on TCP */
#define NO_ASK		2	/* bytes on TCP are told before the kernel told of them */
#define BY_LOOK		3	/* those on TCP are told in the order of the looks */
#define NO_TIMES	4	/* the peer does not say when it sent over TCP */
#define NO_WAIT		5	/* who reads a link does not wait for another reader */
#define NO_AWAIT	6	/* a tagged event of what is not managed yet is dropped */
#define NO_MET		7	/* what came to be managed counts as managed before */
#define EARLY_MET	8	/* likewise, if it did while the set was looked at */
#define LEFT_ONCE	9	/* what is left out of a wait is found when it looks again */
#define LATE_NEWS	10	/* what comes after the kernel was asked is not left out */

#define PARAMETERS(P) \
	P(SENDS, 3) \
	/* The first connection has not met yet; 2: and the other is in its ring, and on \
	 * TCP never. */ \
	P(MEETS, 0) \
	P(OVERLAPS, 0)	/* the kernel is asked while it is sent to that one */ \
	P(BUG, 0)
#include "parameters.pml"

#define CONNS	2
#define N	2		/* records on a connection, at most */
#define NONE	255
#define EVER	254

#define rec(c, k)	((c) * N + (k))
#define bit_of(c)	(1 << (c))

/* The peer. */
byte there[CONNS];		/* records that were written */
byte from[CONNS] = NONE;	/* the first one in the ring */
byte made[CONNS * N];		/* when it was written */
byte kern[CONNS * N];		/* when its writer had sent over TCP last; rings only */
byte count[CONNS * N];		/* how much it had sent by the kernel; rings only */
byte clock = 1, sent, sends;

/* The kernel, and the link. */
chan list = [2 * CONNS] of { byte };	/* c: TCP; CONNS + c: the link */
bit listed[2 * CONNS];
bit link[CONNS];		/* SWITCH lies there */

/* This process. */
bit reading[CONNS];		/* the service has read SWITCH, and has the lock */
bit moved[CONNS];		/* this end knows of the switch */
byte told[CONNS];		/* records that were told, and taken */
bit heard[CONNS];
bit moves[CONNS] = 1;		/* when looked at last */
byte position[CONNS], since[CONNS], turns;
byte seen_kern[CONNS], seen_count[CONNS];
byte asked_at, asked_before;

/* The first connection, until it meets. */
bit tagged[CONNS], managed[CONNS], timed[CONNS];
bit structure;			/* it is being managed, under this lock */
bit known[CONNS * N];		/* on TCP: the peer says when it was written */
byte left_out[CONNS];		/* 1: of this wait; 2: of an earlier one */

inline enlist(x)
{
	if
	:: !listed[x] -> listed[x] = 1; list!x
	:: else
	fi
}

proctype writer()
{
	byte c, left = 0;

	left = SENDS;
	do
	:: left ->
		/* The connections are alike: the first one is used first. */
		if
		:: atomic { there[0] < N -> c = 0 }
		:: atomic { there[1] < N && left < SENDS -> c = 1 }
		fi;
		left--;
		if
		:: from[c] == NONE ->
			atomic {
				clock++;
				made[rec(c, there[c])] = clock;
				known[rec(c, there[c])] = timed[c];
				there[c]++; sends++; enlist(c);
				if
				:: timed[c] || OVERLAPS
				:: else -> clock++; sent = clock
				fi
			};
			if
			:: sent != clock -> atomic { clock++; sent = clock }
			:: else
			fi
		:: else ->
			atomic {
				clock++;
				made[rec(c, there[c])] = clock;
				kern[rec(c, there[c])] = sent;
				count[rec(c, there[c])] = sends;
				there[c]++
			}
		fi
	:: left && from[0] == NONE && managed[0] ->
		atomic { from[0] = there[0]; link[0] = 1; sends++; enlist(CONNS) }
	:: left && from[1] == NONE ->
		atomic { from[1] = there[1]; link[1] = 1; sends++; enlist(CONNS + 1) }
	:: !left -> break
	od
}

proctype service()
{
end:	do
	:: atomic { link[0] -> link[0] = 0; reading[0] = 1 }; atomic { reading[0] = 0; moved[0] = 1 }
	:: atomic { link[1] -> link[1] = 0; reading[1] = 1 }; atomic { reading[1] = 0; moved[1] = 1 }
	od
}

/* What this end sees of c, and whether that begins on TCP. */
#define visible(c)	(!moved[c] && from[c] < there[c] -> from[c] : there[c])
#define on_tcp(c)	(told[c] < from[c])

/* Another thread manages the first connection: the kernel's set gets the tag, and
 * has the connection again if it is readable. Its peer says times when it hears
 * that it should. */
proctype manager()
{
	atomic {
		structure = 1; tagged[0] = 1;
		if
		:: told[0] < there[0] -> enlist(0)
		:: else
		fi
	};
	atomic { managed[0] = 1; structure = 0 };
	timed[0] = 1
}

/* A managed connection's event. */
inline note(c)
{
	heard[c] = 1;
	if
	:: !position[c] ->
		turns++;
		position[c] = turns; since[c] = asked_before; behind[c] = plain
	:: else
	fi
}

/* The kernel is asked at a moment, and answers later. */
inline ask()
{
	began = clock; met = managed[0];
	d_step {
		began = (MEETS && !OVERLAPS -> clock : began);
		asked_before = asked_at; asked_at = began; began = 0;
		behind[0] = 0; behind[1] = 0;
		do
		:: nempty(list) ->
			list?x; listed[x] = 0;
			if
			:: x < CONNS && !tagged[x] -> plain = 1
			:: x < CONNS && tagged[x] && (managed[x] || BUG != NO_AWAIT) ->
				awaits = (awaits || !managed[x]); note(x)
			:: x < CONNS && tagged[x] && !managed[x] && BUG == NO_AWAIT
			:: x >= CONNS && link[x - CONNS] ->
				link[x - CONNS] = 0; moved[x - CONNS] = 1
			:: else
			fi
		:: empty(list) -> break
		od;
		x = 0
	};
	if
	:: awaits -> !structure; awaits = 0
	:: else
	fi
}

/* Until another reader is done. */
inline hear(c)
{
	if
	:: link[c] -> link[c] = 0; moved[c] = 1
	:: else
	fi
}

inline hear_all()
{
	atomic {
		(!(reading[0] || reading[1]) || BUG == NO_WAIT) ->
		hear(0); hear(1)
	}
}

/* What the kernel told as the application's is not looked at. */
#define looks_at(c)	(managed[c] && ((c) || !plain))

#define leaves_out(c)	(news && (asked || (hears && BUG != LATE_NEWS)) && \
			 (!left_out[c] || (left_out[c] == 1 && BUG != LEFT_ONCE)))

/* A look at c, unless it was found. */
inline look(c)
{
	atomic {
		moves[c] = managed[c] && !moved[c];
		if
		:: !looks_at(c)
		:: looks_at(c) && !(found & bit_of(c)) && visible(c) > told[c] ->
			tcp = on_tcp(c);
			at = (!tcp || known[rec(c, told[c])] -> made[rec(c, told[c])] :
			      (until != EVER -> until - 1 : clock));
			news = (tcp && !heard[c] && BUG != NO_ASK) ||
			       (!tcp && kern[rec(c, told[c])] > asked_at);
			rang = rang || (news && !asked);
			/* What is left keeps its news for the wait that tells it. */
			if
			:: leaves_out(c) -> left_out[c] = 1
			:: at <= until && !leaves_out(c) ->
				found = found | bit_of(c); was_tcp[c] = tcp;
				order = (order == NONE -> c : order);
				last = (at > last -> at : last);
				if
				:: !tcp && (kern[rec(c, told[c])] != seen_kern[c] ||
					    count[rec(c, told[c])] != seen_count[c]) ->
					rang = 1;
					seen_kern[c] = kern[rec(c, told[c])];
					seen_count[c] = count[rec(c, told[c])]
				:: else
				fi
			:: else
			fi
		:: looks_at(c) && !(found & bit_of(c)) && visible(c) <= told[c] ->
			position[c] = 0; heard[c] = 0
		:: else
		fi;
		at = 0; tcp = 0; news = 0
	}
}

/* Something may be on TCP, or in a ring of which this end does not know, that was
 * written before what was found. */
inline find_rung()
{
	if
	:: !asked -> ask()
	:: else
	fi;
	until = (until == EVER -> clock : until);
	hears = 1;
	if
	:: BUG != NO_HEAR -> hear_all()
	:: else
	fi;
	atomic { look(0); look(1); asked = asked || plain; met_since = (managed[0] != met) }
}

/* Others may be on TCP, or came to be managed since the kernel was asked. */
#define mixed()		(was_tcp[0] || was_tcp[1] || !managed[0] || \
			 (BUG == EARLY_MET -> met_since : \
			  BUG != NO_MET && managed[0] != met))
#define precedes(c)	(made[rec(c, told[c])] <= emptied || \
			 (mixed() && kern[rec(c, told[c])] <= emptied))
#define before(a, b)	(made[rec(a, told[a])] < made[rec(b, told[b])])
/* Of what d has on TCP the peer says when it was written. */
#define said_later(c, d) (BUG != NO_TIMES && known[rec(d, told[d])] && before(c, d))

/* Whether c goes before the other one, d. */
inline compare(c, d)
{
	if
	:: was_tcp[c] && was_tcp[d] ->
		first = (BUG == BY_LOOK -> order == c : position[c] < position[d])
	:: !was_tcp[c] && !was_tcp[d] -> first = before(c, d)
	:: !was_tcp[c] && was_tcp[d] ->
		first = precedes(c) || said_later(c, d)
	:: was_tcp[c] && !was_tcp[d] ->
		first = !(precedes(d) || said_later(d, c))
	fi
}

inline tell(c)
{
	assert(told[c] >= there[c] || told[1 - c] >= there[1 - c] ||
	       made[rec(1 - c, told[1 - c])] > made[rec(c, told[c])]);
	do
	:: told[c] < visible(c) ->
		made[rec(c, told[c])] = 0; known[rec(c, told[c])] = 0; kern[rec(c, told[c])] = 0;
		count[rec(c, told[c])] = 0; told[c]++
	:: else -> break
	od;
	position[c] = 0; was_tcp[c] = 0;
	/* The kernel's own list keeps c, and the place, for what comes next. */
	if
	:: listed[c] -> list??eval(c); listed[c] = 0
	:: else
	fi;
	heard[c] = 0; left_out[c] = 0
}

/* What the kernel told as the application's, and the other one. */
inline tell_plain()
{
	if
	:: found & 2 ->
		first = (was_tcp[1] -> !behind[1] : precedes(1));
		if
		:: first -> tell(1); tell(0)
		:: else -> tell(0); tell(1)
		fi
	:: else -> tell(0)
	fi
}

inline tell_found()
{
	atomic {
		emptied = (plain -> asked_before : asked_at);
		emptied = ((found & 1) && was_tcp[0] && position[0] && since[0] < emptied ->
			   since[0] : emptied);
		emptied = ((found & 2) && was_tcp[1] && position[1] && since[1] < emptied ->
			   since[1] : emptied);
		if
		:: plain -> tell_plain()
		:: !plain && found == 3 ->
			compare(0, 1);
			if
			:: first -> tell(0); tell(1)
			:: else -> tell(1); tell(0)
			fi
		:: !plain && found == 1 -> tell(0)
		:: !plain && found == 2 -> tell(1)
		:: !plain && !found
		fi;
		some = (plain || found);
		turns = (position[0] || position[1] -> turns : 0);
		found = 0; plain = 0; order = NONE; rang = 0; last = 0; emptied = 0; first = 0;
		since[0] = (position[0] -> since[0] : 0);
		since[1] = (position[1] -> since[1] : 0);
		until = EVER
	}
}

/* The kernel is asked behind what was told, where it was not asked before. */
inline ask_last()
{
	ask();
	atomic {
		if
		:: plain -> tell(0); plain = 0
		:: else
		fi
	}
}

proctype waiter()
{
	byte began, x, at, until = EVER, last, found, emptied, order = NONE;
	bit rang, tcp, first, news, awaits;
	bit was_tcp[CONNS], behind[CONNS];
	bit plain;		/* the kernel told of the first connection as of another's */
	bit asked, hears, firstly, some, met, met_since;

end:	do
	::	if
		:: ask(); firstly = 1
		:: skip
		fi;
		atomic { asked = plain; met_since = (asked && managed[0] != met) };
		/* Each once, in any order, and again what had nothing. */
		if
		:: skip; look(0); look(1)
		:: skip; look(1); look(0)
		fi;
		if
		:: found -> until = last; look(0); look(1)
		:: else
		fi;
		if
		:: rang || ((asked || (found & 1) && was_tcp[0] || (found & 2) && was_tcp[1]) &&
			    (moves[0] || moves[1])) -> find_rung()
		:: else
		fi;
		tell_found();
		if
		:: MEETS && some && !firstly && !asked -> ask_last()
		:: else
		fi;
		atomic { left_out[0] = (left_out[0] -> 2 : 0); left_out[1] = (left_out[1] -> 2 : 0);
			some = 0; firstly = 0; asked = 0; hears = 0; met = 0; met_since = 0;
			behind[0] = 0; behind[1] = 0 }
	od
}

init
{
	atomic {
		TAKE_PARAMETERS;
		if
		:: MEETS -> run manager()
		:: else -> tagged[0] = 1; managed[0] = 1; timed[0] = 1
		fi;
		tagged[1] = 1; managed[1] = 1; timed[1] = 1;
		if
		:: MEETS == 2 -> from[1] = 0; moved[1] = 1
		:: else
		fi;
		run waiter();
		run service();
		run writer()
	}
}
