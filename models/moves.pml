/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The order in which an epoll set tells of connections that move from TCP to a ring
 * (the head of preload/epoll_look.c; docs/design/wire-shm.md, section 4, `tcp'). What
 * order.pml has of connections in rings is left out here.
 *
 * Modelled: one set with two connections, which are on TCP at first; the thread that
 * waits in it, and receives all that it sees of what it is told of; its process'
 * service thread, which reads links as the waiter does; and the peer's writer. The
 * writer sends SENDS records in turn on connections that the search chooses, and moves
 * a connection when it likes: SWITCH is in the link then, and what follows in the ring.
 * The kernel's list of the set has a connection when bytes came to it on TCP, or a
 * message to its link, once, in the order in which that was first so.
 *
 * Time is counted by what the writer does, so each record has its own.
 *
 * Asserted: when a connection is told, all records that were written before its first
 * unread one were told before, in this call or an earlier one.
 *
 * The parameters of a scenario come from the environment, as in order.pml.
 */

#define SENDS	p_sends
#define BUG	p_bug

local byte SENDS;
local byte BUG;

/* Planted bugs. */
#define NO_HEAR		1	/* links are not read by who found bytes on TCP */
#define NO_ASK		2	/* bytes on TCP are told before the kernel told of them */
#define BY_LOOK		3	/* those on TCP are told in the order of the looks */
#define NO_TIMES	4	/* the peer does not say when it sent over TCP */
#define NO_WAIT		5	/* who reads a link does not wait for another reader */

c_decl {
	static int param(const char *name, int otherwise)
	{
		const char *text = getenv(name);

		return text ? atoi(text) : otherwise;
	}

	static int bug(void)
	{
		static const char *const names[] = { "", "NO_HEAR", "NO_ASK", "BY_LOOK",
			"NO_TIMES", "NO_WAIT" };
		const char *name = getenv("BUG");
		int i = 0;

		while (name && strcmp(names[i], name))
			if (++i == sizeof(names) / sizeof(names[0]))
				exit(1);
		return i;
	}
}

#define TAKE_PARAMETERS	c_code { \
		now.p_sends = param("SENDS", 3); \
		now.p_bug = bug(); \
	}

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
				there[c]++; sends++; enlist(c)
			};
			atomic { clock++; sent = clock }
		:: else ->
			atomic {
				clock++;
				made[rec(c, there[c])] = clock;
				kern[rec(c, there[c])] = sent;
				count[rec(c, there[c])] = sends;
				there[c]++
			}
		fi
	:: left && from[0] == NONE ->
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

/* The kernel is asked at a moment, and answers later. */
inline ask()
{
	began = clock;
	d_step {
		asked_before = asked_at; asked_at = began; began = 0;
		do
		:: nempty(list) ->
			list?x; listed[x] = 0;
			if
			:: x < CONNS ->
				heard[x] = 1;
				if
				:: !position[x] ->
					turns++;
					position[x] = turns; since[x] = asked_before
				:: else
				fi
			:: x >= CONNS && link[x - CONNS] ->
				link[x - CONNS] = 0; moved[x - CONNS] = 1
			:: else
			fi
		:: empty(list) -> break
		od;
		x = 0
	}
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

/* A look at c, unless it was found. */
inline look(c)
{
	atomic {
		moves[c] = !moved[c];
		if
		:: !(found & bit_of(c)) && visible(c) > told[c] ->
			at = made[rec(c, told[c])];
			tcp = on_tcp(c);
			rang = (rang || (tcp && !heard[c] && BUG != NO_ASK) ||
				(!tcp && kern[rec(c, told[c])] > asked_at));
			/* What is left keeps its news for the wait that tells it. */
			if
			:: at <= until ->
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
		:: !(found & bit_of(c)) && visible(c) <= told[c] ->
			position[c] = 0; heard[c] = 0
		:: else
		fi;
		at = 0; tcp = 0
	}
}

/* Something may be on TCP, or in a ring of which this end does not know, that was
 * written before what was found. */
inline find_rung()
{
	ask();
	if
	:: BUG != NO_HEAR -> hear_all()
	:: else
	fi;
	atomic { look(0); look(1) }
}

#define precedes(c)	(made[rec(c, told[c])] <= emptied || kern[rec(c, told[c])] <= emptied)
#define before(a, b)	(made[rec(a, told[a])] < made[rec(b, told[b])])

/* Whether c goes before the other one, d. */
inline compare(c, d)
{
	if
	:: was_tcp[c] && was_tcp[d] ->
		first = (BUG == BY_LOOK -> order == c : position[c] < position[d])
	:: !was_tcp[c] && !was_tcp[d] -> first = before(c, d)
	:: !was_tcp[c] && was_tcp[d] ->
		first = precedes(c) || (BUG != NO_TIMES && before(c, d))
	:: was_tcp[c] && !was_tcp[d] ->
		first = !(precedes(d) || (BUG != NO_TIMES && before(d, c)))
	fi
}

inline tell(c)
{
	assert(told[1 - c] >= there[1 - c] ||
	       made[rec(1 - c, told[1 - c])] > made[rec(c, told[c])]);
	do
	:: told[c] < visible(c) ->
		made[rec(c, told[c])] = 0; kern[rec(c, told[c])] = 0;
		count[rec(c, told[c])] = 0; told[c]++
	:: else -> break
	od;
	position[c] = 0; was_tcp[c] = 0;
	/* The kernel's own list keeps c, and the place, for what comes next. */
	if
	:: listed[c] -> list??eval(c); listed[c] = 0
	:: else
	fi;
	heard[c] = 0
}

inline tell_found()
{
	atomic {
		emptied = asked_at;
		emptied = ((found & 1) && was_tcp[0] && position[0] && since[0] < emptied ->
			   since[0] : emptied);
		emptied = ((found & 2) && was_tcp[1] && position[1] && since[1] < emptied ->
			   since[1] : emptied);
		if
		:: found == 3 ->
			compare(0, 1);
			if
			:: first -> tell(0); tell(1)
			:: else -> tell(1); tell(0)
			fi
		:: found == 1 -> tell(0)
		:: found == 2 -> tell(1)
		:: else
		fi;
		turns = (position[0] || position[1] -> turns : 0);
		found = 0; order = NONE; rang = 0; last = 0; emptied = 0; first = 0;
		since[0] = (position[0] -> since[0] : 0);
		since[1] = (position[1] -> since[1] : 0);
		until = EVER
	}
}

proctype waiter()
{
	byte began, x, at, until = EVER, last, found, emptied, order = NONE;
	bit rang, tcp, first;
	bit was_tcp[CONNS];

end:	do
	::	if
		:: ask()
		:: skip
		fi;
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
		:: rang || (found && ((found & 1) && was_tcp[0] || (found & 2) && was_tcp[1]) &&
			    (moves[0] || moves[1])) -> find_rung()
		:: else
		fi;
		tell_found()
	od
}

init
{
	atomic {
		TAKE_PARAMETERS;
		run waiter();
		run service();
		run writer()
	}
}
