/* SPDX-License-Identifier: BSD-2-Clause */
/* REQUEST, the first message of a handshake: which connection it asks for, and
 * how it is refused; addresses as bytes. */
#include "core/rma/request.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

#include "core/base/config.h"
#include "core/base/log.h"
#include "core/base/proof.h"
#include "core/fabric/module.h"
#include "core/rma/rma.h"
#include "core/rma/watch.h"
#include "core/rma/wire.h"
#include "core/trust/key.h"
#include "core/trust/auth.h"
#include "core/trust/auth_wire.h"

static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

bool exi_rma_is_four(const uint8_t ip[16])
{
	return !memcmp(ip, mapped, sizeof(mapped));
}

void exi_rma_sockaddr(const uint8_t ip[16], uint16_t port, uint32_t scope,
		      struct sockaddr_storage *ret)
{
	struct sockaddr_in *four = (struct sockaddr_in *)ret;
	struct sockaddr_in6 *six = (struct sockaddr_in6 *)ret;

	memset(ret, 0, sizeof(*ret));
	if (exi_rma_is_four(ip)) {
		four->sin_family = AF_INET;
		four->sin_port = htons(port);
		memcpy(&four->sin_addr, ip + 12, 4);
		return;
	}
	six->sin6_family = AF_INET6;
	six->sin6_port = htons(port);
	six->sin6_scope_id = scope;
	memcpy(&six->sin6_addr, ip, 16);
}

void exi_rma_from_sockaddr(const struct sockaddr *a, uint8_t ret[16])
{
	if (a->sa_family == AF_INET) {
		memcpy(ret, mapped, sizeof(mapped));
		memcpy(ret + 12, &((const struct sockaddr_in *)a)->sin_addr, 4);
		return;
	}
	memcpy(ret, &((const struct sockaddr_in6 *)a)->sin6_addr, 16);
}

/* Reads the key when it is first needed, and again while there is none. The
 * service lock is held. */
const struct exi_key *exi_rma_meet_key(void)
{
	const struct exi_config *cfg = exi_rma_host->config();
	const struct exi_key_search search = {
		.file = cfg->key_file,
		.config_home = cfg->config_home,
		.home = cfg->home,
		.system = EXI_KEY_SYSTEM,
	};
	static struct exi_key *key;
	static bool told; /* why there is none: once */
	char why[EXI_KEY_WHY] = "";
	int err;

	if (key)
		return key;
	err = cfg->trust == EXI_TRUST_HOSTS ? exi_key_open(&key)
					    : exi_key_load(&search, &key, why);
	if (!err)
		return key;
	if (!told)
		exi_rma_log(EXI_LOG_WARN, "no key: %s",
			    why[0] ? why : strerror(-err));
	told = true;
	return NULL;
}

int exi_rma_request_begin(struct exi_auth *p, const struct exi_key *key,
			  enum exi_auth_side side, const struct exi_tuple *t,
			  const uint8_t local_ip[16], const uint8_t peer_ip[16])
{
	struct sockaddr_storage local, peer;
	const struct exi_auth_ends ends = {
		.tcp = t,
		.fabric_local = (struct sockaddr *)&local,
		.fabric_local_len = sizeof(struct sockaddr_in6),
		.fabric_peer = (struct sockaddr *)&peer,
		.fabric_peer_len = sizeof(struct sockaddr_in6),
	};

	exi_rma_sockaddr(local_ip, 0, 0, &local);
	exi_rma_sockaddr(peer_ip, 0, 0, &peer);
	return exi_auth_init(p, key, side, &ends);
}

void exi_rma_meet_no(struct exi_auth *auth, int why,
		     struct exi_auth_reject *ret)
{
	const struct exi_key *key = exi_rma_meet_key();
	struct exi_auth_refusal no = { .why = why };

	if (key)
		memcpy(no.key_id, key->id, sizeof(no.key_id));
	exi_auth_reject(auth, &no, ret);
}

void exi_rma_meet_refuse(void *asker, struct exi_auth *auth, int why)
{
	struct exi_auth_reject r;

	exi_rma_meet_no(auth, why, &r);
	exi_rma_fabric.reject(asker, &r);
}

int exi_rma_meet_check(const struct exi_rma_asked *asked, struct exi_tuple *ret,
		       struct exi_auth *ret_auth)
{
	const struct exi_key *key = exi_rma_meet_key();
	struct exi_auth_claim claim;
	uint16_t flags;
	int err;

	if (!key)
		return EXI_AUTH_WHY_NO_KEY;
	err = exi_auth_read_claim(asked->request, sizeof(asked->request),
				  &claim);
	if (err)
		return exi_auth_why(err);
	*ret = (struct exi_tuple){ .local_port = asked->port,
				   .peer_port = claim.flags };
	memcpy(ret->local, asked->local, sizeof(ret->local));
	memcpy(ret->peer, asked->peer, sizeof(ret->peer));
	if (memcmp(claim.key_id, key->id, sizeof(key->id))) {
		exi_rma_host->stranger(ret);
		return exi_auth_why(-EKEYREJECTED);
	}
	err = exi_rma_request_begin(ret_auth, key, EXI_AUTH_B, ret,
				    asked->local, asked->peer);
	if (!err)
		err = exi_auth_take_request(ret_auth, asked->request,
					    sizeof(asked->request), &flags);
	if (err) {
		exi_rma_host->stranger(ret);
		exi_auth_fini(ret_auth);
	}
	return err ? exi_auth_why(err) : 0;
}
