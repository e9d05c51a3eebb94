/* SPDX-License-Identifier: BSD-2-Clause */
/* The doorbell: how the two sides of one ring sleep and are woken
 * (docs/design/wire-shm.md, section 4).
 *
 * Modelled: a producer that sends N records through a ring of SLOTS, and sleeps
 * for space; a consumer that takes them, and sleeps for data; the service
 * thread of each process, which changes the state of its side once and kicks
 * the side. A side sleeps in futex_waitv on two words, which the kernel queues
 * and compares one after the other, or (CPKT, PPKT) in a poll for WAKE packets.
 *
 * Memory: each store that is not sequentially consistent waits in a buffer of
 * its thread and becomes visible later, also after younger stores to other
 * words unless those are releases. That is TSO and more (PSO). A sequentially
 * consistent store, a read-modify-write and each futex call wait until the
 * thread's buffer is empty. Loads are not reordered.
 *
 * With BIG the ring may grow once to that number of slots, when a record finds
 * no space: a GROW record takes its place, and the next record lies after the
 * end of the old ring, where there are words and payloads of earlier use.
 *
 * With GLANCES neither side sleeps. Another thread of the consumer's process
 * finds nothing that many times at the consumer's position, and then compares,
 * without a lock, the word and the position (docs/design/orders.md, "Nothing
 * still").
 *
 * Abstractions: one record per slot, so positions count slots; a record's word
 * is its position plus one; `a quarter of the ring' is QUARTER records, also
 * after it has grown; whether it grows is chance; spinning is SPIN looks more,
 * or fewer. A reader that requests a doorbell for what comes after unread
 * records does it like the consumer here.
 *
 * Asserted: word and payload are those of the next record; the producer does
 * not ring more often than it was asked to (a futex call that wakes no thread
 * is no doorbell); if a comparison says that nothing came, there was nothing
 * when it began; and, by the search for invalid end states, no side sleeps for
 * ever: all N records arrive, and each side learns of the change of its
 * state. */

#define PARAMETERS(P) \
	P(N, 4) \
	P(SLOTS, 3)	/* one of them always holds the zero word */ \
	P(BIG, now.SLOTS)	/* and this many when it has grown */ \
	P(SPIN, 1) \
	P(CPKT, 0)	/* the consumer asks for WAKE packets */ \
	P(PPKT, 0)	/* the producer does */ \
	P(CKICK, 0)	/* the state of the consumer's side changes once */ \
	P(PKICK, 0)	/* that of the producer's does */ \
	P(GLANCES, 0) \
	P(BUG, 0)
#include "parameters.pml"

#define QUARTER	2

/* Planted bugs. */
#define NO_RECHECK	1	/* the consumer does not look again before it sleeps */
#define NO_FENCE_WORD	2	/* word: a release store, then data_wait is read */
#define NO_FENCE_WAIT	3	/* data_wait: a release store, then word is read */
#define NO_FENCE_TAKEN	4	/* taken_seq: a release store, then space_wait is read */
#define NO_FENCE_SPACE	5	/* space_wait: a release store, then taken is read */
#define RELAXED_WORD	6	/* word may overtake the payload */
#define ZERO_AFTER	7	/* the next word is zeroed after this one is published */
#define ANY_POSITION	8	/* the producer rings whatever position is asked for */
#define COUNTER		9	/* data_wait counts requests; the one rung last is remembered */
#define NEW_TAKEN	10	/* space_wait is compared with the new `taken', not the old */
#define LATE_SEQ	11	/* the expected taken_seq is read after taken */
#define LATE_KICK	12	/* the expected kick word is read after the state */
#define WAKE_ONLY	13	/* the service wakes, but leaves the kick word alone */
#define OLD_PLACE	14	/* who finds a GROW behind its request does not ask again */
#define NO_BELL_GROW	15	/* a GROW does not ring */
#define OLD_WORDS	16	/* the word that follows a GROW is not zeroed */
#define BY_BYTES	17	/* a glance compares the count of data records, not POS */
#define POS_FIRST	18	/* the position is loaded before the word */
#define LATE_POS	19	/* the position is stored after `taken' */

#define P	0		/* the producer, the consumer */
#define C	1
#define PEND	3		/* stores that a thread can have pending */

/* Where position i lies in a ring of that many slots. */
#define WORD(i, slots)	((i) % (slots))
#define PAY(i, slots)	(BIG + (i) % (slots))
#define DATA_WAIT	(2 * BIG)
#define SPACE_WAIT	(2 * BIG + 1)
#define TAKEN		(2 * BIG + 2)
#define TAKEN_SEQ	(2 * BIG + 3)
#define STATE(t)	(2 * BIG + 4 + (t))
#define KICK(t)		(2 * BIG + 6 + (t))
#define POS		(2 * BIG + 8)
#define BYTES		(2 * BIG + 9)
#define WORDS_MOST	(2 * 4 + 10)
#define NONE		255
#define GROW		254	/* as a word */
#define OLD		253	/* of earlier days */

/* The first position behind a GROW at i that lies behind what was the ring. */
#define grown_at(i)	(((i) + BIG - SLOTS) / BIG * BIG + SLOTS)

typedef Buffer {
	byte n;
	byte addr[PEND];
	byte val[PEND];
	bit rel[PEND];
};

byte mem[WORDS_MOST];
Buffer buf[2];
byte data_q[2] = NONE;		/* futexes that a sleeper is queued on */
byte kick_q[2] = NONE;
bit woken[2];
byte packets[2];
byte sleeps, rings;		/* requests of the consumer, rings of the producer */

#define flushed(t)	(buf[t].n == 0)

/* A wait word. */
#define bits(v)		((v) & 3)
#define request(pos, pkt)	((pos) << 2 | (pkt -> 2 : 1))
#define asks(v, pos)	(bits(v) && (v) >> 2 == (pos))

inline store(t, a, v, r)
{
	atomic { buf[t].n < PEND ->
		buf[t].addr[buf[t].n] = a; buf[t].val[buf[t].n] = v; buf[t].rel[buf[t].n] = r;
		buf[t].n++ }
}

inline store_sc(t, a, v)
{
	atomic { flushed(t) -> mem[a] = v }
}

/* One queued on word a, if any, is woken, and hit says so. */
inline futex_wake(to, a, hit)
{
	if
	:: data_q[to] == a -> data_q[to] = NONE; woken[to] = 1; hit = 1
	:: else ->
		if
		:: kick_q[to] == a -> kick_q[to] = NONE; woken[to] = 1; hit = 1
		:: else -> hit = 0
		fi
	fi
}

inline futex_waitv(t, a, va, b, vb)
{
	if
	:: atomic { flushed(t) && mem[a] == va -> data_q[t] = a };
		if
		:: atomic { mem[b] == vb -> kick_q[t] = b };
			woken[t]
		:: atomic { mem[b] != vb -> skip }
		fi
	:: atomic { flushed(t) && mem[a] != va -> skip }
	fi;
	atomic { data_q[t] = NONE; kick_q[t] = NONE; woken[t] = 0 }
}

#define may(i)	(buf[t].n > i && !buf[t].rel[i])

inline commit(k)
{
	i = k;
	mem[buf[t].addr[i]] = buf[t].val[i];
	do
	:: i + 1 < buf[t].n -> buf[t].addr[i] = buf[t].addr[i + 1];
		buf[t].val[i] = buf[t].val[i + 1]; buf[t].rel[i] = buf[t].rel[i + 1]; i++
	:: else -> break
	od;
	buf[t].n--; buf[t].addr[i] = 0; buf[t].val[i] = 0; buf[t].rel[i] = 0; i = 0
}

/* Pending stores of a thread become visible. */
proctype memory(byte t)
{
	byte i;

end:	do
	:: atomic { buf[t].n > 0 -> commit(0) }
	:: atomic { may(1) && buf[t].addr[1] != buf[t].addr[0] -> commit(1) }
	:: atomic { may(2) && buf[t].addr[2] != buf[t].addr[1] &&
		buf[t].addr[2] != buf[t].addr[0] -> commit(2) }
	od
}

/* The service of a side: the state changes once. */
proctype service(byte t)
{
	bit hit;

	mem[STATE(t)] = 1;
	if
	:: (t == P -> PPKT : CPKT) -> packets[t]++	/* it sleeps on the link: that wakes it */
	:: else ->
		if
		:: BUG == WAKE_ONLY
		:: else -> mem[KICK(t)] = 1
		fi;
		atomic { futex_wake(t, KICK(t), hit); hit = 0 }
	fi
}

/* The record at head is there: its word says so. */
inline tell(word)
{
	if
	:: BUG == NO_FENCE_WORD -> store(P, WORD(head, slots), word, 1)
	:: BUG == RELAXED_WORD -> store(P, WORD(head, slots), word, 0); flushed(P)
	:: else -> store_sc(P, WORD(head, slots), word)
	fi
}

inline ring()
{
	v = mem[DATA_WAIT];
	if
	:: (BUG == COUNTER -> bits(v) && v != rung :
		(BUG == ANY_POSITION -> bits(v) : asks(v, head))) ->
		rung = (BUG == COUNTER -> v : 0);
		atomic { flushed(P) ->
			if
			:: v & 2 -> packets[C]++; hit = 1
			:: else -> futex_wake(C, WORD(head, slots), hit)
			fi;
			rings = rings + hit; hit = 0;
			assert(rings <= sleeps) }
	:: else
	fi;
	v = 0
}

/* After a growth, not into what was the ring before while that is being read. */
#define room	(head + 1 < (taken >= grown -> taken + slots : grown + slots - SLOTS))

proctype producer()
{
	byte head, left = N, slots = SLOTS, grown, taken, seq, kick, told, v, rung, spin;
	bit hit;

	do
	:: left || told < PKICK ->
look:		/* the words to sleep on first, then what they stand for */
		if
		:: BUG == LATE_KICK -> told = mem[STATE(P)]; kick = mem[KICK(P)]
		:: else -> kick = mem[KICK(P)]; told = mem[STATE(P)]
		fi;
		seq = mem[TAKEN_SEQ];
		taken = mem[TAKEN];
		if
		:: left && room -> goto send
		:: left && !room && slots < BIG -> goto grow
		:: left && !room
		:: !left && told == PKICK -> break
		:: !left && told < PKICK
		fi;
		if
		:: GLANCES -> goto look
		:: !GLANCES && spin < SPIN -> spin++; goto look
		:: !GLANCES -> spin = 0
		fi;
		v = taken;
		if
		:: BUG == NO_FENCE_SPACE -> store(P, SPACE_WAIT, request(v, PPKT), 1)
		:: else -> store_sc(P, SPACE_WAIT, request(v, PPKT))
		fi;
		taken = mem[TAKEN];
		if
		:: BUG == LATE_SEQ -> seq = mem[TAKEN_SEQ]
		:: else
		fi;
		if
		:: taken != v || (left && room)
		:: else ->
			if
			:: PPKT -> atomic { flushed(P) && packets[P] > 0 -> packets[P]-- }
			:: else -> futex_waitv(P, TAKEN_SEQ, seq, KICK(P), kick)
			fi
		fi;
		if
		:: PPKT		/* the request stays */
		:: else -> store(P, SPACE_WAIT, v << 2, 0)
		fi;
		v = 0;
		goto look;
grow:		spin = 0;
		if
		:: BUG == OLD_WORDS
		:: else -> store(P, WORD(SLOTS, BIG), 0, 0)
		fi;
		tell(GROW);
		if
		:: BUG == NO_BELL_GROW
		:: else -> ring()
		fi;
		slots = BIG; head = grown_at(head); grown = head;
		goto look;
send:		spin = 0;
		if
		:: BUG == ZERO_AFTER
		:: else -> store(P, WORD(head + 1, slots), 0, 0)
		fi;
		store(P, PAY(head, slots), head + 1, 0);
		tell(head + 1);
		if
		:: BUG == ZERO_AFTER -> store(P, WORD(head + 1, slots), 0, 0)
		:: else
		fi;
		ring();
		head++; left--
	:: else -> break
	od
}

byte cur, slots_in;	/* the consumer's */
#define slots slots_in

/* The consumer goes on at cur. */
inline move(bytes)
{
	if
	:: GLANCES && BUG != LATE_POS -> store(C, POS, cur, 0)
	:: else
	fi;
	if
	:: GLANCES && bytes -> store(C, BYTES, N - left, 0)
	:: else
	fi
}

/* Position cur is that of a GROW. */
inline pass_grow()
{
	assert(slots == SLOTS && BIG > SLOTS);
	atomic { slots = BIG; cur = grown_at(cur) }
	move(0)
}

/* What the consumer would find. */
#define something	(mem[WORD(cur, slots)] != 0)

proctype glancer()
{
	byte at, pos, bytes, w, p, times;
	bit had;

	do
	:: times < GLANCES ->
		times++;
		/* With the direction's lock: what it guards is whole. */
		atomic { !something && flushed(C) -> at = WORD(cur, slots); pos = mem[POS];
			bytes = mem[BYTES] }
		if
		:: BUG == POS_FIRST -> p = mem[POS]
		:: else
		fi;
		atomic { w = mem[at]; had = something }
		if
		:: BUG == POS_FIRST
		:: else -> p = (BUG == BY_BYTES -> mem[BYTES] : mem[POS])
		fi;
		if
		:: BUG == BY_BYTES -> p = (p == bytes -> pos : pos + 1)
		:: else
		fi;
		assert(w != 0 || p != pos || !had);
		at = 0; pos = 0; bytes = 0; w = 0; p = 0; had = 0
	:: break
	od
}

proctype consumer()
{
	byte left = N, pub, seq, wait, at, kick, told, w, v, spin;
	bit hit;

	do
	:: left || told < CKICK ->
look:		if
		:: BUG == LATE_KICK -> told = mem[STATE(C)]; kick = mem[KICK(C)]
		:: else -> kick = mem[KICK(C)]; told = mem[STATE(C)]
		fi;
		w = mem[WORD(cur, slots)];
		if
		:: w == GROW -> pass_grow(); goto look
		:: left && w != 0 && w != GROW ->
			assert(w == cur + 1 && mem[PAY(cur, slots)] == cur + 1);
			cur++; left--; spin = 0;
			move(1);
			if
			:: cur - pub >= QUARTER -> goto publish
			:: else -> goto next
			fi
		:: !left && told == CKICK -> break
		:: else
		fi;
		if
		:: spin < SPIN -> spin++; goto look
		:: spin = 0
		fi;
		if
		:: pub != cur -> goto publish	/* and back here */
		:: pub == cur && GLANCES -> goto look
		:: else
		fi;
		wait = (BUG == COUNTER -> wait + 1 : cur);
		at = WORD(cur, slots);
		sleeps++;
		if
		:: BUG == NO_FENCE_WAIT -> store(C, DATA_WAIT, request(wait, CPKT), 1)
		:: else -> store_sc(C, DATA_WAIT, request(wait, CPKT))
		fi;
		if
		:: BUG == NO_RECHECK -> w = 0
		:: else -> w = mem[WORD(cur, slots)]
		fi;
		if
		:: w == GROW -> pass_grow(); w = mem[WORD(cur, slots)]
		:: else
		fi;
		if
		:: w != 0 && left
		:: w == 0 && at != WORD(cur, slots) && BUG != OLD_PLACE	/* asks again */
		:: else ->
			if
			:: CPKT -> atomic { flushed(C) && packets[C] > 0 -> packets[C]-- }
			:: else -> futex_waitv(C, at, 0, KICK(C), kick)
			fi
		fi;
		at = 0;
		if
		:: CPKT		/* the request stays */
		:: else -> store(C, DATA_WAIT, wait << 2, 0)
		fi;
		goto look;
publish:	v = (BUG == NEW_TAKEN -> cur : pub);
		pub = cur; seq++;
		store(C, TAKEN, cur, 1);
		if
		:: BUG == NO_FENCE_TAKEN -> store(C, TAKEN_SEQ, seq, 1)
		:: else -> store_sc(C, TAKEN_SEQ, seq)
		fi;
		if
		:: GLANCES && BUG == LATE_POS -> store(C, POS, cur, 0)
		:: else
		fi;
		w = mem[SPACE_WAIT];
		if
		:: asks(w, v) ->
			atomic { flushed(C) ->
				if
				:: w & 2 -> packets[P]++
				:: else -> futex_wake(P, TAKEN_SEQ, hit); hit = 0
				fi }
		:: else
		fi;
		v = 0;
next:		w = 0
	:: else -> break
	od
}

init {
	byte i;

	atomic {
		TAKE_PARAMETERS;
		slots_in = SLOTS;
		for (i : SLOTS .. BIG - 1) {
			mem[WORD(i, BIG)] = OLD; mem[PAY(i, BIG)] = OLD
		}
		i = 0;
		run memory(P); run memory(C);
		if
		:: PKICK -> run service(P)
		:: else
		fi;
		if
		:: CKICK -> run service(C)
		:: else
		fi;
		if
		:: GLANCES -> run glancer()
		:: else
		fi;
		run producer(); run consumer()
	}
}
