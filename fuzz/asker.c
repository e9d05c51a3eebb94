/* SPDX-License-Identifier: BSD-2-Clause */
/* ofi's rendezvous (providers/ofi/ofi_sock.c): bytes that anyone on the network
 * sends to its port, in pieces, and the REQUEST in them (core/rma/request.c),
 * of either family, beside other connections that send almost nothing, and with
 * no free descriptor. A REQUEST reaches the core only from a holder of the
 * key. */
#include <errno.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <sys/exs_ext.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/base/util.h"
#include "core/fabric/provider.h"
#include "core/rma/domain.h"
#include "core/rma/door.h"
#include "core/rma/meet.h"
#include "core/rma/request.h"
#include "core/rma/rma.h"
#include "core/rma/wire.h"
#include "core/trust/key.h"
#include "core/trust/auth.h"
#include "fuzz/device.h"
#include "fuzz/fuzz.h"
#include "providers/ofi/ofi_int.h"

/* --- the module --------------------------------------------------------- */

static unsigned int asked, refused, strangers;

/* The core has no such connection. */
static int request(const struct exi_provider *p, const struct exi_tuple *t,
		   int link, void *arg)
{
	asked++;
	close(link);
	return EXS_X_REASON_NOT_CONNECTED;
}

static void stranger(const struct exi_tuple *t)
{
	strangers++;
}

static void reject(void *asker, const struct exi_auth_reject *r)
{
	struct ofip_asker *a = asker;

	refused++;
	ofip_sock_say(a->sock, r, sizeof(*r));
	ofip_asker_free(a);
}

/* One of each family. */
static struct sockaddr_in at;
static struct sockaddr_in6 at_six;

/* A free one. */
static uint16_t port_for(uint16_t tcp)
{
	return 0;
}

static int listen_at(const struct exi_listening *here, void **ret)
{
	int err = ofip_sock_listen(here, ret);

	if (!err && exi_rma_is_four(here->addr))
		at.sin_port = htons(ofip_sock_port_of(*ret));
	else if (!err)
		at_six.sin6_port = htons(ofip_sock_port_of(*ret));
	return err;
}

static void look(uint64_t now)
{
}

static int open_nothing(void)
{
	return 0;
}

static void close_nothing(void)
{
}

static const struct exi_provider provider = {
	.name = "asker",
	.domain_ops = &exi_rma_domain_ops,
};

const struct exi_rma_fabric exi_rma_fabric = {
	.provider = &provider,
	.link_size = sizeof(struct exi_rma_link),
	.reject = reject,
	.port_for = port_for,
	.listen = listen_at,
	.unlisten = ofip_sock_unlisten,
	.port_of = ofip_sock_port_of,
	.open = open_nothing,
	.close = close_nothing,
};

/* --- the port ----------------------------------------------------------- */

/* TCP's; listeners of the kernel's choice have others. */
#define PORT 77

static struct exi_domain *domain;
static const struct exi_key *key;
static bool no_descriptors;

/* As the library does where a process has none left. */
static int spare(int fd)
{
	if (!no_descriptors)
		return fd;
	fuzz_fd_close(fd);
	return -EMFILE;
}

/* The key that everybody has needs no file. */
static void setup(void)
{
	static const struct exi_rma_work work = { .look = look };
	static struct exi_host host = { .request = request,
					.stranger = stranger };
	const struct exi_listening here = {
		.addr = { [10] = 0xff, 0xff, 127, 0, 0, 1 },
		.port = PORT,
	};
	const struct exi_listening six = {
		.addr = { [15] = 1 },
		.port = PORT,
	};

	if (domain)
		return;
	fuzz_device(&host);
	host.fd_spare = spare;
	((struct exi_config *)(uintptr_t)exi_config())->trust = EXI_TRUST_HOSTS;
	FUZZ_TRUE(!exi_rma_domain_open(&work, &domain));
	FUZZ_TRUE(!exi_rma_door_listen(domain, &here));
	at.sin_family = AF_INET;
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	FUZZ_TRUE(at.sin_port);
	FUZZ_TRUE(!exi_rma_door_listen(domain, &six));
	at_six.sin6_family = AF_INET6;
	at_six.sin6_addr = in6addr_loopback;
	key = exi_rma_meet_key();
	FUZZ_TRUE(key);
}

static void serve(void)
{
	while (exi_rma_domain_ops.progress(domain))
		;
}

/* --- the asker ---------------------------------------------------------- */

static int come(bool six)
{
	struct linger reset = { .l_onoff = 1 };
	int s = socket(six ? AF_INET6 : AF_INET,
		       SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int err;

	FUZZ_TRUE(s >= 0);
	err = six ? connect(s, (struct sockaddr *)&at_six, sizeof(at_six))
		  : connect(s, (struct sockaddr *)&at, sizeof(at));
	FUZZ_TRUE(!err || errno == EINPROGRESS);
	setsockopt(s, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
	return s;
}

/* More than are kept (SILENT_MAX). */
#define CROWD 40

/* They say a byte each: who was silent longest has to go. */
static void come_in_crowds(int s[CROWD])
{
	for (int i = 0; i < CROWD; i++) {
		s[i] = come(false);
		if (send(s[i], "x", 1, MSG_DONTWAIT | MSG_NOSIGNAL) == 1)
			serve();
	}
}

/* What a holder of the key would say from there. */
static void make_request(bool six, struct exi_auth_request *ret)
{
	struct exi_tuple t = { .peer_port = PORT, .local_port = 4000 };
	struct exi_auth auth;

	exi_rma_from_sockaddr(six ? (struct sockaddr *)&at_six
				  : (struct sockaddr *)&at,
			      t.local);
	memcpy(t.peer, t.local, 16);
	FUZZ_TRUE(!exi_rma_request_begin(&auth, key, EXI_AUTH_A, &t, t.local,
					 t.peer));
	FUZZ_TRUE(!exi_auth_request(&auth, t.local_port, ret));
	exi_auth_fini(&auth);
}

static size_t make(uint8_t how, struct fuzz_in *in, uint8_t *room, size_t len)
{
	uint8_t n;
	struct exi_auth_request *r = (struct exi_auth_request *)room;

	memset(room, 0, len);
	if (how & 1) {
		n = fuzz_byte(in);
		fuzz_copy(in, room, n);
		return n;
	}
	make_request(how & 64, r);
	if (how & 2)
		r->head.kind = fuzz_byte(in) % 7;
	for (n = how >> 2 & 7; n; n--)
		room[fuzz_byte(in) % sizeof(*r)] ^= fuzz_byte(in);
	return how & 32 ? fuzz_byte(in) : sizeof(*r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_in in = { data, size };
	uint8_t room[256], how, beside;
	int s, others[CROWD], i = 0;
	size_t len, done = 0, n;

	setup();
	how = fuzz_byte(&in);
	beside = how & 128 ? fuzz_byte(&in) : 0;
	if (!at_six.sin6_port) /* the host has no such addresses */
		how &= (uint8_t)~64;
	s = come(how & 64);
	len = make(how, &in, room, sizeof(room));
	no_descriptors = beside & 2;
	while (done < len) {
		n = in.left ? 1 + fuzz_byte(&in) % (len - done) : len - done;
		if (send(s, room + done, n, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
			break;
		done += n;
		serve();
		if (beside & 1 && !i) {
			come_in_crowds(others);
			i = CROWD;
		}
	}
	/* Time passes, for a moment or for good. */
	ofip_socks_tick(beside & 4 ? UINT64_MAX - 1 : 0);
	if (fuzz_byte(&in) & 1)
		shutdown(s, SHUT_WR);
	serve();
	close(s);
	while (i)
		close(others[--i]);
	serve();
	no_descriptors = false;
	FUZZ_TRUE(asked <= refused && strangers <= refused);
	return 0;
}
