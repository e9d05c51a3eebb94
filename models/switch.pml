/* SPDX-License-Identifier: BSD-2-Clause */
/* The switch: how the two directions of one connection move between TCP and the
 * ring, both ways (docs/design/wire-shm.md, section 3).
 *
 * Modelled: two ends, each with the program's calls (app) and the service
 * thread (svc, the only reader of the pair link); per direction a TCP queue of
 * limited room with FIN and RST, and a ring of records with slots that are
 * reused; the pair link as a FIFO per way with hang-up; half-close, close,
 * close with unread bytes, both ends leaving at once, an end that has left and
 * continues as a plain program, and the death of an end between any two steps.
 *
 * Abstractions: what happens under one lock and has one visible effect is one
 * atomic step. A byte is its place in the stream, so byte 3 must be the fourth
 * that arrives. Sleeping is a guard that waits: bell.pml checks for lost
 * wake-ups. A record holds one or two bytes. A reset, of a socket or of a dead
 * process, loses any part of what TCP still held in that direction. One pass:
 * every behaviour ends, so that no deadlock = everything finishes.
 *
 * Asserted: each byte received is the next of the stream; end of stream is
 * reported only when all that was sent has been received, crash or not; an
 * error only if that holds, too, or if TCP or an interrupted drain lost bytes;
 * bytes in a ring are never lost to an end that still runs the library; TCP is
 * not written after its FIN; an end that left and went plain needs nothing from
 * the ring or the link; no message comes in a wrong state; and, by the search
 * for invalid end states, no thread, least of all that of the end that leaves,
 * waits for ever.
 *
 * A scenario is a set of parameters: N0 N1 bytes sent by end 0, 1; DOWNS0
 * DOWNS1 how often an end may leave; UPS: it may come back; GOES: it may go
 * plain; CRASH0 CRASH1 HALF CLOSE0 CLOSE1 KRECV BLOCK ROOM RCAP: see below. */

#define PARAMETERS(P) \
	P(N0, 2) \
	P(N1, 1) \
	P(DOWNS0, 0) \
	P(DOWNS1, 0) \
	P(UPS, 0)	/* a leaver may say UP */ \
	P(GOES, 0)	/* a leaver may become a plain program */ \
	P(CRASH0, 0)	/* the end may be killed */ \
	P(CRASH1, 0) \
	P(HALF, 0)	/* half-close at any moment, not only after the last byte */ \
	P(CLOSE0, 0)	/* the end may close at any moment */ \
	P(CLOSE1, 0) \
	P(KRECV, 0)	/* at first a thread sleeps in the kernel's recv: GO must wait */ \
	/* An end that leaves makes no calls until it is done; end 1 sends all, then \
	 * receives. */ \
	P(BLOCK, 0) \
	P(ROOM, 0)	/* room that a drain finds in TCP beyond that of ordinary sends */ \
	P(RCAP, 2)	/* records in a ring, not counting END */ \
	P(BUG, 0)
#include "parameters.pml"

/* Planted bugs. */
#define NO_LEFT		1	/* the receiver enters the ring without regard to T */
#define CURSOR		2	/* TAKEBACK forgets the bytes used of the record */
#define EARLY_BACK	3	/* the leaver takes back before DOWN_ACK */
#define EARLY_FIN	4	/* half-close in the ring shuts TCP down at once */
#define OVERTAKE	5	/* newer bytes go to TCP before the drain is over */
#define EARLY_END	6	/* TCP's end is believed with a message unread on the link */
#define NO_ANSWER	7	/* the leaver does not wait for DRAINING */
#define FORGET		8	/* after TAKEBACK the receiver forgets the ring */
#define NO_HOLD		9	/* DOWN_ACK without holding one's own SWITCH */
#define SKIP_LEFT	10	/* TCP ended inside `left': go on in the ring */
#define NO_LINGER	11	/* a drain cut by death ends in FIN, not RST */
#define EARLY_UP	12	/* UP before the leaver is done */
#define NO_GO		13	/* SWITCH before the peer said GO */
#define HANGUP		14	/* hang-up is acted on before the messages in front of it */
#define DRAIN_FIN	15	/* half-close during the drain shuts TCP down at once */
#define LOST_FIN	16	/* END was read already: no FIN after the drain */
#define RING_FIRST	17	/* in the ring: look for a record, then for TCP's end */
#define OWN_HOLD	18	/* one's own DOWN does not hold one's own SWITCH */

#define TCAP	1		/* bytes in TCP */
#define RECMAX	2		/* bytes in a record */
#define SLOTS	(RCAP + 1)
#define TQ	(TCAP + ROOM)
#define SLOTS_MOST 3
#define TQ_MOST	3

/* tx: tcp, ring, drain.  rx: tcp, left, ring; back: taken back, TCP from here on, with
   the ring kept in case the drain breaks off; rest: it did, and the rest is read there. */
#define TCP	0
#define RING	1
#define DRAIN	2
#define LEFT	2
#define BACK	3
#define REST	4

#define GO		1
#define SWITCH		2	/* epoch, T, position */
#define DOWN		3
#define DOWN_ACK	4
#define TAKEBACK	5	/* epoch, position, used */
#define DRAINING	6	/* epoch: the answer to TAKEBACK */
#define UP		7

typedef Dir {			/* direction d is sent by end d, received by 1-d */
	byte q[TQ_MOST];	/* TCP */
	byte n;
	bit fin;
	bit rst;		/* the receiving end's socket was reset */
	bit lost;		/* TCP, or a dead drain, lost bytes */
	byte first[SLOTS_MOST];	/* the ring: records at position modulo SLOTS */
	byte size[SLOTS_MOST];	/* 0 is END */
	byte head;		/* the position after the last record published */
	byte sent;		/* bytes the program sent */
	byte put;		/* those up to the last that went into the ring */
};

typedef End {
	byte tx; byte T; byte epoch; byte base;
	byte dpos; byte dused;
	bit shut; bit broken;
	bit go; bit here; bit there;
	byte rx; byte left; byte R; byte cur; byte used; byte rT; byte repoch;
	byte rcvd; bit looked; byte told;	/* told: 1 end of stream, 2 error */
	byte leave;		/* 1 DOWN sent, 2 DOWN_ACK came, 3 done */
	byte downs; bit answered;
	bit kernel;		/* a thread sleeps in the kernel's recv alone */
	bit saidgo;
	bit hup; bit plain; bit dead; byte closing;
	bit sclosed; bit lclosed;
};

Dir D[2];
End E[2];
chan link[2] = [6] of { byte, byte, byte, byte };	/* link[e]: to end e */

#define peer	(1 - e)
#define me	E[e]
#define out	D[e]
#define inc	D[1 - e]
#define bytes	(e == 0 -> N0 : N1)
#define mortal	(e == 0 -> CRASH0 : CRASH1)
#define lingers	(me.tx == DRAIN && BUG != NO_LINGER)	/* SO_LINGER zero during a drain */
#define alive	(!me.dead)
#define tcp_end	(inc.n == 0 && (inc.rst || inc.fin))
#define quiet	(me.plain || BUG == EARLY_END || empty(link[e]))
#define ring	(me.rx == RING || me.rx == REST)
#define record	inc.size[me.cur % SLOTS]
#define taken	E[1 - e].cur
#define space	(out.head - (taken > me.base -> taken : me.base) < RCAP)
#define calls	(alive && me.closing == 0 && !(BLOCK && (me.leave == 1 || me.leave == 2)))
#define sends	(calls && !me.shut && !me.broken && out.sent < bytes)
#define receives (calls && me.told == 0 && !me.kernel && !(BLOCK && e == 1 && sends))

inline say(t, x, y, z)
{
	if
	:: E[1 - e].lclosed
	:: else -> assert(nfull(link[1 - e])); link[1 - e]!t,x,y,z
	fi
}

inline tcp_put(v)
{
	assert(!out.fin && out.n < TQ);
	out.q[out.n] = v; out.n++; me.T++
}

inline tcp_get(v)
{
	v = inc.q[0];
	i = 1;
	do
	:: i < inc.n -> inc.q[i - 1] = inc.q[i]; i++
	:: else -> break
	od;
	inc.n--; inc.q[inc.n] = 0; me.rT++; i = 0
}

/* The socket that receives x is reset; what TCP held for it may be lost. */
inline tcp_reset(x)
{
	do
	:: x.n > 0 -> x.n--; x.q[x.n] = 0; x.lost = 1
	:: break
	od;
	x.rst = 1
}

inline tcp_close(hard)
{
	me.sclosed = 1;
	if
	:: hard || inc.n > 0 ->
		tcp_reset(out);
		if
		:: me.tx == DRAIN -> out.lost = 1
		:: else
		fi
	:: else -> out.fin = 1
	fi
}

inline got(v)
{
	assert(v == me.rcvd);
	me.rcvd++; v = 0
}

inline report(err)
{
	assert(inc.sent == me.rcvd || (err && inc.lost));
	assert(me.left > 0 || me.rx == TCP || me.rcvd >= inc.put);
	me.told = 1 + err
}

inline publish(l)
{
	out.first[out.head % SLOTS] = out.sent;
	out.size[out.head % SLOTS] = l;
	out.head++; out.sent = out.sent + l; out.put = out.sent
}

inline end_record()
{
	out.first[out.head % SLOTS] = 0; out.size[out.head % SLOTS] = 0; out.head++
}

inline takeback()
{
	say(TAKEBACK, me.repoch, me.cur, (BUG == CURSOR -> 0 : me.used));
	me.R = 0; me.answered = 0;
	me.rx = (BUG == FORGET -> TCP : BACK)
}

/* What nobody looks at any more; fewer states. */
inline forget()
{
	me.T = 0; me.epoch = 0; me.base = 0; me.dpos = 0; me.dused = 0;
	me.shut = 0; me.broken = 0; me.go = 0; me.here = 0; me.there = 0; me.saidgo = 0;
	me.rx = 0; me.left = 0; me.R = 0; me.cur = 0; me.used = 0; me.rT = 0; me.repoch = 0;
	me.rcvd = 0; me.told = 0; me.looked = 0; me.leave = 0; me.downs = 0; me.answered = 0;
	me.kernel = 0; me.hup = 0; me.plain = 0
}

inline link_close()
{
	me.lclosed = 1;
	do
	:: len(link[e]) > 0 -> link[e]?v,_,_,_
	:: else -> v = 0; break
	od
}

proctype app(byte e)
{
	byte v, i;

	do
	/* send */
	:: atomic { sends && me.tx == TCP && !inc.rst && !E[peer].sclosed && out.n < TCAP ->
		tcp_put(out.sent); out.sent++ }
	:: atomic { sends && me.tx == TCP && !inc.rst && E[peer].sclosed ->
		tcp_reset(inc) }		/* into the void: the answer is RST */
	:: atomic { sends && me.tx == TCP && inc.rst -> me.broken = 1 }
	:: atomic { sends && me.tx == RING && !me.hup && space -> publish(1) }
	:: atomic { RECMAX > 1 && sends && me.tx == RING && !me.hup && space && out.sent + 1 < bytes ->
		publish(2) }
	:: atomic { sends && me.tx == RING && me.hup -> me.broken = 1 }
	:: atomic { BUG == OVERTAKE && sends && me.tx == DRAIN && out.n < TCAP ->
		tcp_put(out.sent); out.sent++ }
	/* switch this direction up */
	:: atomic { calls && !me.plain && me.tx == TCP && !me.shut && !me.broken &&
		!me.hup && !E[peer].lclosed && !inc.rst && out.sent < bytes &&
		(me.go || BUG == NO_GO) && !(me.here && BUG != OWN_HOLD) && !me.there ->
		me.tx = RING; me.epoch++; me.base = out.head;
		say(SWITCH, me.epoch, me.T, out.head) }
	/* half-close */
	:: atomic { calls && !me.shut && (HALF || me.broken || out.sent == bytes) ->
		me.shut = 1;
		if
		:: me.broken || inc.rst
		:: else ->
			if
			:: me.tx == RING -> end_record();
				if
				:: BUG == EARLY_FIN -> out.fin = 1
				:: else
				fi
			:: me.tx == TCP || BUG == DRAIN_FIN -> out.fin = 1
			:: else		/* drain: FIN after it */
			fi
		fi }
	/* receive */
	:: atomic { alive && me.kernel && inc.n > 0 -> tcp_get(v); got(v); me.kernel = 0 }
	:: atomic { alive && me.kernel && tcp_end -> me.kernel = 0 }
	:: atomic { receives && inc.n > 0 && !ring ->
		tcp_get(v); got(v);
		if
		:: me.left > 0 -> me.left--;
			if
			:: me.left == 0 && me.rx == LEFT -> me.rx = RING
			:: else
			fi
		:: else ->
			if
			:: me.rx == BACK -> me.R++
			:: else
			fi
		fi }
	:: atomic { receives && tcp_end && me.rx == TCP && quiet -> report(inc.rst) }
	:: atomic { receives && tcp_end && me.rx == LEFT ->
		if
		:: BUG == SKIP_LEFT -> me.rx = RING
		:: else -> report(1)
		fi }
	:: atomic { receives && tcp_end && me.rx == BACK && quiet ->
		if
		:: me.left > 0 -> report(1)
		:: else ->
			do
			:: me.R > 0 && me.cur < inc.head && record > me.used -> me.used++; me.R--;
				if
				:: me.used == record -> me.used = 0; me.cur++
				:: else
				fi
			:: else -> me.R = 0; break
			od;
			if
			:: me.cur == inc.head -> report(inc.rst)
			:: me.cur < inc.head && record == 0 -> report(0)
			:: else -> me.rx = REST	/* the drain broke off */
			fi
		fi }
	:: atomic { receives && ring && me.cur < inc.head && record > 0 ->
		v = inc.first[me.cur % SLOTS] + me.used; got(v);
		me.used++;
		if
		:: me.used == record -> me.used = 0; me.cur++
		:: else
		fi }
	:: atomic { receives && ring && me.cur < inc.head && record == 0 -> report(0) }
	:: atomic { receives && ring && me.cur == inc.head && (tcp_end || me.hup) ->
		report(inc.rst) }
	:: atomic { BUG == RING_FIRST && receives && ring && me.cur == inc.head && !me.looked -> me.looked = 1 }
	:: atomic { me.looked && receives && ring && tcp_end -> report(inc.rst) }
	/* leave */
	:: atomic { calls && me.leave == 0 && me.downs > 0 && !me.hup && !me.plain ->
		me.downs--; me.leave = 1; me.here = 1; say(DOWN, 0, 0, 0);
		if
		:: BUG == EARLY_BACK && (me.rx == LEFT || me.rx == RING) -> takeback()
		:: else
		fi }
	:: atomic { alive && me.closing == 0 && me.tx != DRAIN && (me.leave == 1 || me.leave == 2) &&
		((me.leave == 2 && me.tx == TCP &&
		  (me.rx != BACK || me.answered || BUG == NO_ANSWER)) || me.hup) ->
		me.leave = 3 }
	:: atomic { UPS && calls && me.leave == 3 && !me.hup && !me.plain ->
		me.here = 0; me.leave = 0; say(UP, 0, 0, 0) }
	:: atomic { BUG == EARLY_UP && calls && me.leave == 1 ->
		me.here = 0; me.leave = 0; say(UP, 0, 0, 0) }
	:: atomic { GOES && calls && me.leave == 3 && !me.plain && me.tx == TCP &&
		(me.rx == TCP || (me.rx == BACK && (me.answered || BUG == NO_ANSWER)) ||
		 BUG == EARLY_BACK) ->
		me.plain = 1; link_close(); me.rx = TCP; me.left = 0; me.R = 0;
		me.told = 0 }		/* the new program asks again */
	/* close */
	:: atomic { calls && me.told != 0 && me.shut && (me.leave == 0 || me.leave == 3) ->
		me.closing = 1; break }
	:: atomic { (e == 0 -> CLOSE0 : CLOSE1) && alive && me.closing == 0 ->
		me.closing = 1; break }
	/* die */
	:: atomic { mortal && alive && !E[peer].dead && me.closing == 0 -> me.dead = 1; forget(); break }
	od;

	do
	/* the kernel closes for the dead, in any order */
	:: atomic { me.dead && !me.sclosed -> tcp_close(lingers) }
	:: atomic { me.dead && !me.lclosed -> link_close() }
	/* close: the drain first, then END, then TCP, then the link */
	:: atomic { alive && me.closing == 1 && me.tx != DRAIN ->
		me.closing = 2;
		if
		:: (ring || me.rx == LEFT) && me.told == 0 && me.cur < inc.head && record > 0 ->
			me.closing = 3		/* unread: reset */
		:: me.tx == RING && !me.shut && !me.hup -> end_record()
		:: else
		fi }
	:: atomic { (CLOSE0 || CLOSE1) && alive && me.closing == 1 && me.tx == DRAIN ->
		me.closing = 3 }		/* the bound is over: reset */
	:: atomic { alive && me.closing > 1 && !me.sclosed -> tcp_close(me.closing == 3 || lingers) }
	:: atomic { alive && me.sclosed && !me.lclosed -> link_close(); forget() }
	:: atomic { mortal && alive && !E[peer].dead && !me.lclosed -> me.dead = 1; me.closing = 0; forget() }
	:: atomic { me.sclosed && me.lclosed -> me.tx = TCP; break }
	od
}

proctype svc(byte e)
{
	byte t, x, y, z, i;

	do
	:: atomic { alive && !me.saidgo && !me.kernel && me.closing < 2 && !me.plain ->
		me.saidgo = 1; say(GO, 0, 0, 0) }
	:: atomic { alive && me.closing < 2 && !me.plain && nempty(link[e]) -> link[e]?t,x,y,z;
		if
		:: t == GO -> me.go = 1
		:: t == SWITCH ->
			assert(me.rx == TCP || me.rx == BACK);
			assert(y >= me.rT && !me.there && me.leave < 2);
			me.left = y - me.rT; me.R = 0; me.cur = z; me.used = 0; me.repoch = x;
			me.rx = ((me.left == 0 || BUG == NO_LEFT) -> RING : LEFT)
		:: t == DOWN ->
			me.there = (BUG != NO_HOLD);
			if
			:: me.rx == LEFT || me.rx == RING -> takeback()
			:: else
			fi;
			say(DOWN_ACK, 0, 0, 0)
		:: t == DOWN_ACK ->
			if
			:: me.leave == 1 -> me.leave = 2
			:: else
			fi;
			if
			:: (me.rx == LEFT || me.rx == RING) && BUG != EARLY_BACK -> takeback()
			:: else
			fi
		:: t == TAKEBACK ->
			assert(x == me.epoch && me.tx == RING);
			me.tx = DRAIN; me.dpos = y; me.dused = z;
			say(DRAINING, x, 0, 0)
		:: t == DRAINING -> me.answered = 1
		:: t == UP -> me.there = 0
		fi;
		t = 0; x = 0; y = 0; z = 0 }
	/* the peer's end of the link is closed */
	:: atomic { alive && !me.hup && !me.plain && me.closing < 2 && E[peer].lclosed &&
		(empty(link[e]) || BUG == HANGUP) ->
		me.hup = 1;
		do
		:: len(link[e]) > 0 -> link[e]?t,x,y,z
		:: else -> break
		od;
		t = 0; x = 0; y = 0; z = 0 }
	/* drain */
	:: atomic { alive && me.tx == DRAIN && me.closing < 2 &&
		(inc.rst || E[peer].sclosed || me.dpos == out.head || out.size[me.dpos % SLOTS] == 0 || out.n < TQ) ->
		if
		:: inc.rst -> me.tx = TCP; me.broken = 1
		:: !inc.rst && E[peer].sclosed -> tcp_reset(inc)
		:: else ->
			if
			:: me.dpos == out.head || out.size[me.dpos % SLOTS] == 0 ->
				me.tx = TCP;
				if
				:: me.shut && !(BUG == LOST_FIN && me.dpos == out.head) -> out.fin = 1
				:: else
				fi;
				me.dpos = 0; me.dused = 0
			:: else ->
				tcp_put(out.first[me.dpos % SLOTS] + me.dused);
				me.dused++;
				if
				:: me.dused == out.size[me.dpos % SLOTS] -> me.dused = 0; me.dpos++
				:: else
				fi
			fi
		fi }
	:: atomic { me.lclosed || me.dead || me.closing >= 2 -> break }
	od
}

init {
	atomic {
		TAKE_PARAMETERS;
		E[0].downs = DOWNS0; E[1].downs = DOWNS1;
		if
		:: KRECV -> E[0].kernel = 1; E[1].kernel = 1
		:: else -> E[0].go = 1; E[1].go = 1; E[0].saidgo = 1; E[1].saidgo = 1
		fi;
		run app(0); run svc(0); run app(1); run svc(1)
	}
}
