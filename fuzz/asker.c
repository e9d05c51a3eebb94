/* SPDX-License-Identifier: BSD-2-Clause */
/* ofi's rendezvous (providers/ofi/ofi_sock.c): what anybody on the network
 * sends to its port, in pieces, and the REQUEST in it (core/rma/request.c). A
 * REQUEST gets as far as the core only from a holder of the key. */
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

static unsigned int asked, refused;

/* The core has no such connection. */
static int request(const struct exi_provider *p, const struct exi_tuple *t,
		   int link, void *arg)
{
	asked++;
	close(link);
	return EXS_X_REASON_NOT_CONNECTED;
}

static void reject(void *asker, const struct exi_auth_reject *r)
{
	struct ofip_asker *a = asker;

	refused++;
	ofip_sock_say(a->sock, r, sizeof(*r));
	ofip_asker_free(a);
}

static struct sockaddr_in at;

/* A free one. */
static uint16_t port_for(uint16_t tcp)
{
	return 0;
}

static int listen_at(const struct exi_listening *here, void **ret)
{
	int err = ofip_sock_listen(here, ret);

	if (!err)
		at.sin_port = htons(ofip_sock_port_of(*ret));
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

/* The key that everybody has needs no file. */
static void setup(void)
{
	static const struct exi_rma_work work = { .look = look };
	static struct exi_host host = { .request = request };
	const struct exi_listening here = {
		.addr = { [10] = 0xff, 0xff, 127, 0, 0, 1 },
		.port = PORT,
	};

	if (domain)
		return;
	fuzz_device(&host);
	((struct exi_config *)(uintptr_t)exi_config())->trust = EXI_TRUST_HOSTS;
	FUZZ_TRUE(!exi_rma_domain_open(&work, &domain));
	FUZZ_TRUE(!exi_rma_door_listen(domain, &here));
	at.sin_family = AF_INET;
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	FUZZ_TRUE(at.sin_port);
	key = exi_rma_meet_key();
	FUZZ_TRUE(key);
}

static void serve(void)
{
	while (exi_rma_domain_ops.progress(domain))
		;
}

/* --- the asker ---------------------------------------------------------- */

/* What a holder of the key would say from there. */
static void make_request(int s, struct exi_auth_request *ret)
{
	struct exi_tuple t = { .peer_port = PORT, .local_port = 4000 };
	struct exi_auth auth;

	memcpy(t.local, (uint8_t[16]){ [10] = 0xff, 0xff, 127, 0, 0, 1 }, 16);
	memcpy(t.peer, t.local, 16);
	FUZZ_TRUE(!exi_rma_request_begin(&auth, key, EXI_AUTH_A, &t, t.local,
					 t.peer));
	FUZZ_TRUE(!exi_auth_request(&auth, t.local_port, ret));
	exi_auth_fini(&auth);
}

static size_t make(int s, struct fuzz_in *in, uint8_t *room, size_t len)
{
	uint8_t how = fuzz_byte(in), n;
	struct exi_auth_request *r = (struct exi_auth_request *)room;

	memset(room, 0, len);
	if (how & 1) {
		n = fuzz_byte(in);
		fuzz_copy(in, room, n);
		return n;
	}
	make_request(s, r);
	if (how & 2)
		r->head.kind = fuzz_byte(in) % 7;
	for (n = how >> 2 & 7; n; n--)
		room[fuzz_byte(in) % sizeof(*r)] ^= fuzz_byte(in);
	return how & 32 ? fuzz_byte(in) : sizeof(*r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_in in = { data, size };
	struct linger reset = { .l_onoff = 1 };
	uint8_t room[256];
	size_t len, done = 0, n;
	int s;

	setup();
	s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	FUZZ_TRUE(s >= 0);
	if (connect(s, (struct sockaddr *)&at, sizeof(at)) &&
	    errno != EINPROGRESS)
		abort();
	setsockopt(s, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
	len = make(s, &in, room, sizeof(room));
	while (done < len) {
		n = in.left ? 1 + fuzz_byte(&in) % (len - done) : len - done;
		if (send(s, room + done, n, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
			break;
		done += n;
		serve();
	}
	ofip_socks_tick(0);
	if (fuzz_byte(&in) & 1)
		shutdown(s, SHUT_WR);
	serve();
	close(s);
	serve();
	FUZZ_TRUE(asked <= refused);
	return 0;
}
