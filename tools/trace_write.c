/* SPDX-License-Identifier: BSD-2-Clause */
/* A capture as pcapng: each record becomes a TCP packet, made from the record,
 * in an interface named after its fabric. */
#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/exs_ext.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/sock/table.h"
#include "exi_build.h"
#include "tools/tool.h"
#include "tools/trace.h"

/* Block types and options of pcapng. */
enum {
	BLOCK_SECTION = 0x0a0d0d0a,
	BLOCK_INTERFACE = 1,
	BLOCK_STATISTICS = 5,
	BLOCK_PACKET = 6,
	OPTION_COMMENT = 1,
	OPTION_SECTION_APPLICATION = 4,
	OPTION_INTERFACE_NAME = 2,
	OPTION_INTERFACE_UNIT = 9,
	OPTION_PACKET_FLAGS = 2,
	OPTION_PACKET_DROPS = 4,
	OPTION_STATISTICS_DROPS = 5,
	LINK_RAW = 101, /* IPv4 or IPv6 */
};

enum {
	TCP_FIN = 1,
	TCP_SYN = 2,
	TCP_PSH = 8,
	TCP_ACK = 16,
};

#define PACKET_MAX (EXI_CAPTURE_PIECE + 128)
#define WAIT_MS	   100 /* until an interrupt is looked for */

/* A block that is being built; it has room for what is added. */
struct block {
	size_t n;
	_Alignas(8) unsigned char bytes[PACKET_MAX + 1024];
};

static void add(struct block *b, const void *from, size_t n)
{
	memcpy(b->bytes + b->n, from, n);
	b->n += n;
}

static void add32(struct block *b, uint32_t v)
{
	add(b, &v, sizeof(v));
}

static void pad(struct block *b)
{
	static const unsigned char zeros[4];

	add(b, zeros, -b->n & 3);
}

static void option(struct block *b, uint16_t code, const void *value, size_t n)
{
	uint16_t head[2] = { code, (uint16_t)n };

	add(b, head, sizeof(head));
	add(b, value, n);
	pad(b);
}

static void begin_block(struct block *b, uint32_t type)
{
	b->n = 0;
	add32(b, type);
	add32(b, 0); /* its length, at the end */
}

/* A writable pipe takes at least PIPE_BUF bytes: no write waits for the reader,
 * so an interrupt is noticed. */
int trace_write_flush(struct trace_writer *w)
{
	struct pollfd p = { .fd = w->out, .events = POLLOUT };
	size_t done = 0;
	int err = 0;

	while (!err && done < w->n) {
		size_t len = w->n - done < PIPE_BUF ? w->n - done : PIPE_BUF;
		bool waits = !atomic_load(w->interrupted);
		ssize_t n = poll(&p, 1, waits ? WAIT_MS : 0);

		if (n > 0)
			n = write(w->out, w->buf + done, len);
		else if (!n && !waits)
			err = -EINTR;
		if (n < 0 && errno != EINTR)
			err = -errno;
		done += n > 0 ? (size_t)n : 0;
	}
	w->n = 0;
	return err;
}

static int end_block(struct trace_writer *w, struct block *b)
{
	uint32_t n;
	int err = 0;

	add32(b, 0); /* the last option */
	n = (uint32_t)b->n + 4;
	add32(b, n);
	memcpy(b->bytes + 4, &n, sizeof(n));
	if (w->n + b->n > TRACE_BUFFER)
		err = trace_write_flush(w);
	if (err)
		return err;
	memcpy(w->buf + w->n, b->bytes, b->n);
	w->n += b->n;
	return 0;
}

int trace_write_head(struct trace_writer *w)
{
	static const char application[] =
		"exs trace, libexs " EXI_VERSION_STRING;
	static struct block b;
	uint64_t length = UINT64_MAX; /* of the section: not known */
	uint16_t version[2] = { 1, 0 };

	begin_block(&b, BLOCK_SECTION);
	add32(&b, 0x1a2b3c4d);
	add(&b, version, sizeof(version));
	add(&b, &length, sizeof(length));
	option(&b, OPTION_SECTION_APPLICATION, application,
	       sizeof(application) - 1);
	return end_block(w, &b);
}

/* The interface of the fabric, which is made at its first packet; from
 * TRACE_FABRICS on, the last one. */
static int interface_of(struct trace_writer *w, const char *fabric,
			uint32_t *ret)
{
	static struct block b;
	const uint8_t unit = 9; /* 10^-9 s */
	uint16_t link[2] = { LINK_RAW, 0 };

	for (*ret = 0; *ret < w->n_fabrics; ++*ret)
		if (!strcmp(w->fabrics[*ret], fabric))
			return 0;
	if (w->n_fabrics == TRACE_FABRICS) {
		*ret = TRACE_FABRICS - 1;
		return 0;
	}
	strcpy(w->fabrics[w->n_fabrics++], fabric);
	begin_block(&b, BLOCK_INTERFACE);
	add(&b, link, sizeof(link));
	add32(&b, 0); /* packets of any length */
	option(&b, OPTION_INTERFACE_NAME, fabric, strlen(fabric));
	option(&b, OPTION_INTERFACE_UNIT, &unit, sizeof(unit));
	return end_block(w, &b);
}

/* --- packets ------------------------------------------------------------- */

/* The contents of one packet. */
struct packet {
	bool incoming;
	uint8_t flags;
	uint32_t seq, ack;
	const unsigned char *bytes;
	uint32_t stored, length;
	const char *comment; /* or null */
	uint64_t lost;
};

static uint32_t sum(uint32_t sum, const unsigned char *p, size_t n)
{
	uint64_t ret = sum;

	for (size_t i = 0; i + 1 < n; i += 2)
		ret += (uint32_t)p[i] << 8 | p[i + 1];
	if (n & 1)
		ret += (uint32_t)p[n - 1] << 8;
	while (ret >> 16)
		ret = (ret & 0xffff) + (ret >> 16);
	return (uint32_t)ret;
}

static void put16(unsigned char *at, uint32_t v)
{
	at[0] = (unsigned char)(v >> 8);
	at[1] = (unsigned char)v;
}

static void put32(unsigned char *at, uint32_t v)
{
	put16(at, v >> 16);
	put16(at + 2, v & 0xffff);
}

/* The addresses of the packet. A UNIX socket, or one without known addresses,
 * gets its descriptor and its number in the capture as ports. */
static uint32_t ends_of(const struct exi_capture_record *r,
			const uint8_t *addr[2], uint16_t port[2])
{
	static const uint8_t nowhere[2][4] = { { 127, 0, 0, 1 },
					       { 127, 0, 0, 2 } };
	bool known = r->family == AF_INET || r->family == AF_INET6;

	for (int i = 0; i < 2; i++) {
		addr[i] = known ? r->addr[i] : nowhere[i];
		port[i] = known ? r->port[i]
			  : i	? (uint16_t)r->serial
				: (uint16_t)r->fd;
	}
	return r->family == AF_INET6 ? 16 : 4;
}

static size_t ip_head(struct trace_writer *w, unsigned char *to,
		      const uint8_t *from_addr, const uint8_t *to_addr,
		      uint32_t addr_len, uint32_t length)
{
	if (addr_len == 16) {
		put32(to, 0x60000000);
		put16(to + 4, length);
		to[6] = IPPROTO_TCP;
		to[7] = 64;
		memcpy(to + 8, from_addr, 16);
		memcpy(to + 24, to_addr, 16);
		return 40;
	}
	put16(to, 0x4500);
	put16(to + 2, length + 20);
	put16(to + 4, w->id++);
	put16(to + 6, 0x4000); /* DF: not to be fragmented */
	to[8] = 64;
	to[9] = IPPROTO_TCP;
	put16(to + 10, 0);
	memcpy(to + 12, from_addr, 4);
	memcpy(to + 16, to_addr, 4);
	put16(to + 10, ~sum(0, to, 20) & 0xffff);
	return 20;
}

/* Writes the headers and the bytes of the packet, with a checksum if all bytes
 * are known. Returns its length. */
static size_t make_packet(struct trace_writer *w, unsigned char *to,
			  const struct exi_capture_record *r,
			  const struct packet *p)
{
	static const unsigned char scale[4] = { 1, 3, 3, 14 };
	uint32_t options = p->flags & TCP_SYN ? sizeof(scale) : 0;
	uint32_t tcp_len = 20 + options, addr_len, check;
	const uint8_t *addr[2];
	uint16_t port[2];
	unsigned char *tcp;

	addr_len = ends_of(r, addr, port);
	tcp = to + ip_head(w, to, addr[p->incoming], addr[!p->incoming],
			   addr_len, tcp_len + p->length);
	put16(tcp, port[p->incoming]);
	put16(tcp + 2, port[!p->incoming]);
	put32(tcp + 4, p->seq);
	put32(tcp + 8, p->flags & TCP_ACK ? p->ack : 0);
	put16(tcp + 12, tcp_len << 10 | p->flags);
	put16(tcp + 14, 65535);
	put32(tcp + 16, 0);
	memcpy(tcp + 20, scale, options);
	if (p->stored)
		memcpy(tcp + tcp_len, p->bytes, p->stored);
	check = sum(0, addr[0], addr_len);
	check = sum(check, addr[1], addr_len);
	check = sum(check + IPPROTO_TCP + tcp_len + p->length, tcp,
		    tcp_len + p->stored);
	if (p->stored == p->length)
		put16(tcp + 16, ~check & 0xffff);
	return (size_t)(tcp - to) + tcp_len + p->stored;
}

static int write_packet(struct trace_writer *w,
			const struct exi_capture_record *r,
			const struct packet *p, uint32_t interface)
{
	static struct block b;
	uint32_t flags = p->incoming ? 1 : 2;
	size_t at, n;

	if (w->most && w->packets == w->most)
		return 0;
	begin_block(&b, BLOCK_PACKET);
	add32(&b, interface);
	add32(&b, (uint32_t)(r->at >> 32));
	add32(&b, (uint32_t)r->at);
	at = b.n;
	b.n += 8;
	n = make_packet(w, b.bytes + b.n, r, p);
	b.n += n;
	put32(b.bytes + at, htonl((uint32_t)n));
	put32(b.bytes + at + 4, htonl((uint32_t)n + p->length - p->stored));
	pad(&b);
	option(&b, OPTION_PACKET_FLAGS, &flags, sizeof(flags));
	if (p->lost)
		option(&b, OPTION_PACKET_DROPS, &p->lost, sizeof(p->lost));
	if (p->comment)
		option(&b, OPTION_COMMENT, p->comment, strlen(p->comment));
	w->packets++;
	return end_block(w, &b);
}

/* --- records ------------------------------------------------------------- */

/* The name of a fabric: letters, digits and "-". */
static void take_name(char to[16], const char from[16])
{
	memcpy(to, from, 16);
	to[15] = '\0';
	for (char *c = to; *c; c++)
		if (!((*c >= 'a' && *c <= 'z') || (*c >= '0' && *c <= '9') ||
		      *c == '-'))
			*c = '?';
}

static void comment(const struct trace_writer *w,
		    const struct exi_capture_record *r, const char *fabric,
		    char to[256])
{
	const char *verb = r->kind == EXI_CAPTURE_END ? "closes"
			   : r->dir == EXI_TX	      ? "sends by"
						      : "receives by";
	int n = snprintf(to, 256, "%s[%d] fd %d %s", w->name, (int)w->pid,
			 r->fd, verb);

	if (r->kind != EXI_CAPTURE_END)
		n += snprintf(to + n, (size_t)(256 - n), " %s", fabric);
	if (!strcmp(fabric, "tcp") && r->reason < EXS_X_REASON_MAX_ &&
	    r->reason != EXS_X_REASON_NONE)
		snprintf(to + n, (size_t)(256 - n), ": %s, %s",
			 exs_x_reason_name((int)r->reason),
			 exs_x_reason_text((int)r->reason));
}

/* The capture has the whole connection: writes its handshake. */
static int write_handshake(struct trace_writer *w,
			   const struct exi_capture_record *r, uint32_t i)
{
	bool theirs = r->role == EXI_ROLE_ACCEPT;
	struct packet p = { .incoming = theirs, .flags = TCP_SYN };
	int err = write_packet(w, r, &p, i);

	p = (struct packet){ .incoming = !theirs,
			     .flags = TCP_SYN | TCP_ACK,
			     .ack = 1 };
	if (!err)
		err = write_packet(w, r, &p, i);
	p = (struct packet){
		.incoming = theirs, .flags = TCP_ACK, .seq = 1, .ack = 1
	};
	return err ? err : write_packet(w, r, &p, i);
}

/* The process closed: writes its FIN, after the peer's if that had ended. */
static int write_close(struct trace_writer *w,
		       const struct exi_capture_record *r, uint32_t i,
		       const char *text)
{
	bool ended = r->flags & EXI_CAPTURE_ENDED;
	uint32_t here = 1 + (uint32_t)r->position;
	uint32_t there = 1 + (uint32_t)r->other;
	struct packet p = { .incoming = true,
			    .flags = TCP_FIN | TCP_ACK,
			    .seq = there,
			    .ack = here };
	int err = ended ? write_packet(w, r, &p, i) : 0;

	p = (struct packet){ .flags = TCP_FIN | TCP_ACK,
			     .seq = here,
			     .ack = there + ended,
			     .comment = text };
	return err ? err : write_packet(w, r, &p, i);
}

int trace_write(struct trace_writer *w, const struct exi_capture_record *r,
		const unsigned char *bytes, uint64_t lost)
{
	struct packet p = {
		.incoming = r->dir == EXI_RX,
		.flags = TCP_PSH | TCP_ACK,
		.seq = 1 + (uint32_t)r->position,
		.ack = 1 + (uint32_t)r->other,
		.bytes = bytes,
		.stored = r->stored,
		.length = r->length,
		.lost = lost,
	};
	char fabric[16], text[256];
	uint32_t interface;
	int err;

	w->lost += lost;
	take_name(fabric, r->fabric);
	err = interface_of(w, fabric, &interface);
	comment(w, r, fabric, text);
	if (!err && r->kind == EXI_CAPTURE_END)
		return write_close(w, r, interface, text);
	if (!err && (r->flags & EXI_CAPTURE_FIRST))
		err = write_handshake(w, r, interface);
	p.comment = r->flags & EXI_CAPTURE_NEWS ? text : NULL;
	return err ? err : write_packet(w, r, &p, interface);
}

int trace_write_end(struct trace_writer *w)
{
	static struct block b;
	int err = 0;

	/* The fabric of the lost records is unknown. */
	if (w->n_fabrics) {
		begin_block(&b, BLOCK_STATISTICS);
		add32(&b, 0);
		add32(&b, 0);
		add32(&b, 0);
		option(&b, OPTION_STATISTICS_DROPS, &w->lost, sizeof(w->lost));
		err = end_block(w, &b);
	}
	return err ? err : trace_write_flush(w);
}
