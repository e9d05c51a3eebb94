/* SPDX-License-Identifier: BSD-2-Clause */
/* The stream engine: how the two ends of one direction agree on which bytes go
 * into the memory of a receive and which through the ring
 * (docs/design/stream.md).
 *
 * Modelled: a sender of N bytes, and a receiver that posts receives of 1 to LEN
 * bytes, at most RECVS at once, with and without WAITALL, some of which may not
 * be advertised; reads the ring without a receive; cancels any of them; a FIFO
 * each way of limited room, and bytes that are written at once or at the last
 * moment before they are announced; the end of the stream; the move to TCP
 * while adverts are out, and back, with bytes that are unread in the ring sent
 * again. The policy is free: the sender may use the ring though it has adverts,
 * the receiver may save up ACKs.
 *
 * Abstractions: what happens under one lock and has one visible effect is one
 * atomic step. A byte is its place in the stream, from 1. Numbers do not wrap.
 * TAKEBACK and SWITCH go over another channel, in any order with the fabric's
 * messages. A receive that is over is reported at once. One pass: every
 * behaviour ends, so that no deadlock = everything finishes.
 *
 * Asserted: a byte is written only where memory is lent, nothing was written
 * before, and, in the ring, the earlier byte was read or given back; receives
 * and reads return the bytes in order, each once; the end is announced after
 * the last byte; no end sends what the other must refuse; a direction that was
 * given back is not written directly; and, by the search for invalid end
 * states, no end waits for ever, all N bytes and the end arrive, and all memory
 * is given back. */

#define PARAMETERS(P) \
	P(N, 3) \
	P(CANCELS, 0)	/* how often the receiver may cancel */ \
	P(DOWNS, 0)	/* it may give the direction back */ \
	P(UPS, 0)	/* the sender may come back */ \
	P(MIX, 2)	/* 0: no WAITALL, 1: all, 2: any */ \
	P(HIDDEN, 0)	/* receives that may not be advertised */ \
	P(READS, 0)	/* reads without a receive */ \
	P(QUIET, 0)	/* the sender says the end only when nothing is to be given back */ \
	P(BUG, 0)
#include "parameters.pml"

#define RING	2
#define LEN	2
#define RECVS	2		/* and adverts */
#define ROOM	3		/* messages under way, each way */
#define N_MOST	4

/* Planted bugs. */
#define NO_SEQ		1	/* a phase is entered wherever it began */
#define NO_DEAD		2	/* one that is not entered is not left behind */
#define EARLY		3	/* a cancelled receive is given back at once */
#define NO_ANSWER	4	/* a REVOKE is not answered */
#define KEEP		5	/* it is, but the adverts are used */
#define NO_FORGET	6	/* the sender leaves a phase, and keeps its adverts */
#define EARLY_ADVERT	7	/* with bytes in the ring */
#define NO_ACK		8	/* what was read is not acked */
#define EARLY_ACK	9	/* bytes are acked when they come */
#define LIVE_STOP	10	/* given back while adverts are out */
#define NO_SKIP		11	/* reading goes on where it stopped */
#define END_LENT	12	/* what is advertised at the end stays lent */
#define EARLY_END	13	/* receives end with bytes in the ring */
#define NO_ALL		14	/* the sender uses any advert to its end */
#define NOT_SENT	15	/* what was given back is not sent again */
#define NO_REVOKE	16	/* the receiver that stops waits, and does not ask */
#define EARLY_FREE	17	/* what was drained is free before it came */

#define DIRECT		1
#define INDIRECT	2
#define END		3
#define ADVERT		4
#define ACK		5
#define REVOKE		6

#define TCP	0		/* modes of an end */
#define FABRIC	1
#define DRAIN	2
#define LEFT	2
#define BACK	3

#define odd(p)	((p) % 2)

typedef Advert { byte slot; byte off; byte size; bit all };
typedef Recv { byte slot; byte size; byte filled; bit all; bit may; bit cancelled };

/* kind; slot; offset or place in the ring; bytes; first of them; written already */
chan s2r = [ROOM] of { byte, byte, byte, byte, byte, bit };
/* kind; phase; seq; slot; offset; bytes; WAITALL */
chan r2s = [ROOM] of { byte, byte, byte, byte, byte, byte, bit };
chan tcp = [N_MOST + 1] of { byte };
bit fin;
bit switching; byte sw_tcp; byte sw_head;
bit takeback; byte tb_pos;

/* Memory. */
byte cell[RECVS * LEN];
bit lent[RECVS];
byte ring[RING]; byte ring_at[RING];	/* which byte of the ring it is, from 1 */
byte mirror[RING];

/* The sender. */
byte s_phase, s_seq, s_began, s_head, s_acked, s_heard, s_sent, s_tcp, s_ups;
byte s_mode = FABRIC;
bit answer, ended;
Advert qa[RECVS]; byte na;

/* The receiver. */
byte r_phase, r_seq, r_began, r_placed, r_taken, r_told, r_got, r_tcp, r_left;
byte r_mode = FABRIC;
bit stopping, given, wants, revoking, r_ended, over;
Recv q[RECVS]; byte nq, live;

#define least(a, b)	((a) < (b) -> (a) : (b))
#define room		(RING - (s_head - (BUG == EARLY_FREE -> s_acked : s_heard)))
#define freed		least(r_placed, r_taken)
#define rest		(N - s_sent)
#define draining	(s_mode == DRAIN && s_acked < s_head)
#define unread		((given || r_placed < r_taken) -> 0 : r_placed - r_taken)

inline place(k, slot, at, n, first)
{
	i = 0;
	do
	:: i < n ->
		if
		:: k == DIRECT ->
			assert(lent[slot] && at + i < LEN && cell[slot * LEN + at + i] == 0);
			cell[slot * LEN + at + i] = first + i
		:: else ->
			assert(ring[(at + i) % RING] == 0 || ring_at[(at + i) % RING] <= r_told);
			ring[(at + i) % RING] = first + i;
			ring_at[(at + i) % RING] = at + i + 1
		fi;
		i++
	:: else -> break
	od;
	i = 0
}

/* n bytes go out; they are written now, or when they are told. */
inline say(k, slot, at, n)
{
	if
	:: n > 0 -> place(k, slot, at, n, s_sent + 1); s2r!k,slot,at,n,s_sent + 1,1
	:: s2r!k,slot,at,n,s_sent + 1,0
	fi;
	s_seq = s_seq + n; s_sent = s_sent + n
}

inline forget()
{
	do
	:: na > 0 -> na--; qa[na].slot = 0; qa[na].off = 0; qa[na].size = 0; qa[na].all = 0
	:: else -> break
	od
}

inline pop()
{
	i = 1;
	do
	:: i < na -> qa[i - 1].slot = qa[i].slot; qa[i - 1].off = qa[i].off;
		qa[i - 1].size = qa[i].size; qa[i - 1].all = qa[i].all; i++
	:: else -> break
	od;
	na--; i = 0;
	qa[na].slot = 0; qa[na].off = 0; qa[na].size = 0; qa[na].all = 0
}

inline leave()
{
	s_phase++;
	if
	:: BUG == NO_FORGET || BUG == KEEP
	:: else -> forget()
	fi
}

inline keep()
{
	assert(na < RECVS);
	qa[na].slot = c; qa[na].off = d; qa[na].size = n; qa[na].all = w; na++;
	if
	:: ended -> forget()
	:: else
	fi
}

inline got_advert()
{
	assert(!odd(a));
	if
	:: a == s_phase -> assert(b == s_began && !draining); keep()
	:: a == s_phase + 1 ->
		assert(!answer && b <= s_seq && s_seq - b <= s_head - s_heard);
		if
		:: b == s_seq || BUG == NO_SEQ ->
			assert(!draining);
			s_phase = a; s_began = b; keep()
		:: else ->
			if
			:: BUG == NO_DEAD
			:: else -> s_phase = a + 1
			fi
		fi
	:: else -> assert(a + 1 == s_phase)
	fi
}

proctype sender()
{
	byte i, k, a, b, c, d, n;
	bit w;

end:	do
	:: atomic { s_mode == FABRIC && rest > 0 && na > 0 && nfull(s2r) ->
		n = least(rest, qa[0].size);
		if
		:: n > 1 -> n = 1
		:: skip
		fi;
		assert(!odd(s_phase) || BUG == NO_FORGET || BUG == KEEP);
		c = qa[0].slot; d = qa[0].off;
		say(DIRECT, c, d, n);
		qa[0].off = qa[0].off + n; qa[0].size = qa[0].size - n;
		if
		:: qa[0].size == 0 || (!qa[0].all && BUG != NO_ALL) -> pop()
		:: else
		fi;
		n = 0; c = 0; d = 0 }
	:: atomic { s_mode == FABRIC && rest > 0 && room > 0 && nfull(s2r) ->
		n = least(rest, room);
		n = least(n, RING - s_head % RING);
		if
		:: n > 1 -> n = 1
		:: skip
		fi;
		if
		:: odd(s_phase)
		:: else -> leave()
		fi;
		answer = 0;
		do
		:: i < n -> mirror[(s_head + i) % RING] = s_sent + 1 + i; i++
		:: else -> i = 0; break
		od;
		d = s_head;
		say(INDIRECT, 0, d, n);
		s_head = s_head + n;
		n = 0; d = 0 }
	:: atomic { answer && !ended && nfull(s2r) ->
		answer = 0; s2r!INDIRECT,0,0,0,0,0 }
	:: atomic { s_mode == FABRIC && rest == 0 && !ended && nfull(s2r) &&
		!(QUIET && (wants || revoking || stopping)) ->
		ended = 1; answer = 0; forget(); s2r!END,0,s_seq,0,0,0 }
	/* what comes */
	:: atomic { r2s?k,a,b,c,d,n,w ->
		if
		:: k == ADVERT -> got_advert()
		:: k == ACK ->
			assert(a >= s_heard && a <= (draining -> s_acked : s_head));
			s_heard = a;
			s_acked = (s_acked < a -> a : s_acked)
		:: k == REVOKE ->
			assert(!odd(a) && (a == s_phase || a + 1 == s_phase));
			if
			:: a == s_phase && !ended -> leave(); answer = (BUG != NO_ANSWER)
			:: else
			fi
		fi;
		k = 0; a = 0; b = 0; c = 0; d = 0; n = 0; w = 0 }
	/* the core: TCP, and moving */
	:: atomic { s_mode == TCP && rest > 0 -> s_sent++; tcp!s_sent; s_tcp++ }
	:: atomic { s_mode == TCP && rest == 0 && !fin -> ended = 1; fin = 1 }
	:: atomic { s_mode == TCP && !ended && !switching && s_ups < UPS ->
		s_ups++; s_mode = FABRIC; switching = 1; sw_tcp = s_tcp; sw_head = s_head }
	:: atomic { takeback ->
		takeback = 0;
		assert(s_acked <= tb_pos && tb_pos <= s_head && na == 0);
		s_acked = (BUG == NOT_SENT -> s_head : tb_pos); tb_pos = 0; s_mode = DRAIN }
	:: atomic { s_mode == DRAIN && s_acked < s_head ->
		tcp!mirror[s_acked % RING]; s_tcp++; s_acked++ }
	:: atomic { s_mode == DRAIN && s_acked == s_head ->
		s_mode = TCP; fin = ended }
	od
}

/* A byte of the stream reaches the program. */
inline got(v)
{
	assert(v == r_got + 1);
	r_got++
}

/* Receive x is over: its bytes are looked at, its memory is its owner's. */
inline finish(x)
{
	j = 0;
	do
	:: j < q[x].filled -> got(cell[q[x].slot * LEN + j]); j++
	:: else -> break
	od;
	lent[q[x].slot] = 0;
	j = 0;
	do
	:: j < LEN -> cell[q[x].slot * LEN + j] = 0; j++
	:: else -> break
	od;
	j = x + 1;
	do
	:: j < nq -> q[j - 1].slot = q[j].slot; q[j - 1].size = q[j].size;
		q[j - 1].filled = q[j].filled; q[j - 1].all = q[j].all;
		q[j - 1].may = q[j].may; q[j - 1].cancelled = q[j].cancelled; j++
	:: else -> break
	od;
	nq--; j = 0;
	q[nq].slot = 0; q[nq].size = 0; q[nq].filled = 0; q[nq].all = 0; q[nq].may = 0;
	q[nq].cancelled = 0
}

inline finish_at_end()
{
	do
	:: r_ended && nq > live && (unread == 0 || BUG == EARLY_END) ->
		assert(r_got + q[live].filled == N); finish(live)
	:: else -> break
	od
}

inline reclaim()
{
	live = 0; wants = 0; revoking = 0; x = 0;
	do
	:: x < nq && q[x].cancelled -> finish(x)
	:: x < nq && !q[x].cancelled -> x++
	:: else -> break
	od;
	x = 0
}

inline cancel(x)
{
	if
	:: x >= live -> finish(x)
	:: else ->
		if
		:: BUG == EARLY -> live--; finish(x)
		:: else -> q[x].cancelled = 1; wants = (BUG != NO_REVOKE)
		fi
	fi
}

inline read_ring(v)
{
	assert(ring_at[r_taken % RING] == r_taken + 1);
	v = ring[r_taken % RING]; ring[r_taken % RING] = 0; r_taken++
}

#define reads	(r_mode == FABRIC && !over)

proctype receiver()
{
	byte i, j, x, k, a, d, n, f, cancels, downs;
	bit w;

	do
	/* the program */
	:: atomic { reads && !stopping && nq < RECVS ->
		x = 0;
		do
		:: lent[x] -> x++
		:: else -> break
		od;
		lent[x] = 1; q[nq].slot = x; x = 0;
		q[nq].size = LEN;
		if
		:: LEN > 1 -> q[nq].size = 1
		:: skip
		fi;
		if
		:: MIX != 1 && !r_ended -> q[nq].all = 0
		:: MIX != 0 -> q[nq].all = 1
		:: MIX == 0 && r_ended -> q[nq].all = 0
		fi;
		if
		:: HIDDEN -> q[nq].may = 0
		:: q[nq].may = 1
		fi;
		nq++; finish_at_end() }
	:: atomic { reads && nq > 0 && live == 0 && unread > 0 ->
		read_ring(n);
		cell[q[0].slot * LEN + q[0].filled] = n; n = 0;
		q[0].filled++;
		if
		:: q[0].filled == q[0].size || (!q[0].all && unread == 0) -> finish(0)
		:: else
		fi;
		finish_at_end() }
	:: atomic { READS && reads && nq == 0 && unread > 0 -> read_ring(n); got(n); n = 0 }
	:: atomic { reads && nq > 0 && cancels < CANCELS ->
		if
		:: skip
		:: nq > 1 -> x = 1
		fi;
		if
		:: !q[x].cancelled -> cancels++; cancel(x)
		:: else
		fi;
		x = 0 }
	:: atomic { reads && r_ended && unread == 0 && nq == 0 ->
		assert(r_got == N); over = 1 }
	/* what is told */
	:: atomic { live < nq && live < RECVS && q[live].may && !given && !stopping && !r_ended &&
		(r_placed == r_taken || BUG == EARLY_ADVERT) && !wants && !revoking && nfull(r2s) ->
		if
		:: odd(r_phase) -> r_phase++; r_began = r_seq
		:: else
		fi;
		r2s!ADVERT,r_phase,r_began,q[live].slot,q[live].filled,q[live].size - q[live].filled,
			q[live].all;
		live++ }
	:: atomic { wants && !revoking && nfull(r2s) -> revoking = 1; r2s!REVOKE,r_phase,0,0,0,0,0 }
	:: atomic { !r_ended && nfull(r2s) && BUG != NO_ACK &&
		(BUG == EARLY_ACK -> r_told < r_placed : r_told < freed) ->
		r_told = (BUG == EARLY_ACK -> r_placed : freed);
		r2s!ACK,r_told,0,0,0,0,0 }
	/* what comes */
	:: atomic { s2r?k,a,d,n,f,w ->
		assert(!r_ended);
		if
		:: k != END && n > 0 && !w -> place(k, a, d, n, f)
		:: else
		fi;
		if
		:: k == DIRECT ->
			assert(live > 0 && n > 0 && n <= q[0].size - q[0].filled);
			q[0].filled = q[0].filled + n; r_seq = r_seq + n;
			if
			:: q[0].filled == q[0].size || !q[0].all ->
				finish(0); live--;
				if
				:: live == 0 && !revoking -> wants = 0
				:: else
				fi
			:: else
			fi
		:: k == INDIRECT ->
			assert(n > 0 || revoking);
			assert(r_placed + n <= r_told + RING);
			if
			:: odd(r_phase)
			:: else -> reclaim(); r_phase++
			fi;
			r_placed = r_placed + n; r_seq = r_seq + n
		:: k == END ->
			assert(d == r_seq);
			if
			:: BUG == END_LENT
			:: else -> reclaim()
			fi;
			r_ended = 1; finish_at_end()
		fi;
		k = 0; a = 0; d = 0; n = 0; f = 0; w = 0 }
	/* the core: TCP, and moving */
	:: atomic { reads && !stopping && downs < DOWNS ->
		downs++; stopping = 1;
		do
		:: nq > live -> finish(live)
		:: else -> break
		od;
		x = 0;
		do
		:: x < live && BUG != LIVE_STOP -> cancel(x); x++
		:: else -> break
		od;
		x = 0 }
	:: atomic { reads && stopping && (live == 0 || BUG == LIVE_STOP) ->
		stopping = 0; given = 1; r_mode = BACK; takeback = 1; tb_pos = r_taken }
	:: atomic { r_mode != FABRIC && len(tcp) > 0 ->
		tcp?n; got(n); n = 0; r_tcp++;
		if
		:: r_mode == LEFT -> r_left--;
			if
			:: r_left == 0 -> r_mode = FABRIC
			:: else
			fi
		:: else
		fi }
	:: atomic { switching && !takeback && r_mode == BACK ->
		switching = 0; given = 0;
		assert(r_taken <= sw_head && sw_head <= r_told + RING);
		assert(!(r_ended && r_placed < sw_head));
		if
		:: BUG == NO_SKIP
		:: else -> r_taken = sw_head
		fi;
		r_left = sw_tcp - r_tcp; sw_tcp = 0; sw_head = 0;
		r_mode = (r_left > 0 -> LEFT : FABRIC) }
	:: atomic { r_mode == BACK && fin && len(tcp) == 0 && !switching && !over ->
		assert(r_got == N); over = 1 }
	:: over && nq == 0 -> break
	od
}

init {
	atomic { TAKE_PARAMETERS; run sender(); run receiver() }
}
