/* SPDX-License-Identifier: BSD-2-Clause */
/* exs stat: both ends of a connection, if both are seen. */
#include <stdlib.h>
#include <string.h>

#include "core/sock/table.h"
#include "tools/stat.h"

static int by_ends(const void *a, const void *b)
{
	const struct stat_tcp *x = &(*(struct stat_conn *const *)a)->tcp,
			      *y = &(*(struct stat_conn *const *)b)->tcp;
	int ret = memcmp(&x->netns, &y->netns, sizeof(x->netns));

	if (!ret)
		ret = memcmp(x->port, y->port, sizeof(x->port));
	return ret ? ret : memcmp(x->addr, y->addr, sizeof(x->addr));
}

/* If both ends are seen: the bytes that one sent and the other has not
 * received. A process that has the connection by fork may have moved more
 * since. */
static void compare_ends(struct stat_conn *c)
{
	const struct stat_dir *tx = &c->dir[EXI_TX];
	const struct stat_dir *rx = &c->peer->dir[EXI_RX];

	if (!c->name[0] || !c->peer->name[0])
		return;
	c->dir[EXI_TX].held =
		tx->fabric_bytes > rx->fabric_bytes
			? (int64_t)(tx->fabric_bytes - rx->fabric_bytes)
			: 0;
	rx = &c->dir[EXI_RX];
	tx = &c->peer->dir[EXI_TX];
	c->dir[EXI_RX].held =
		tx->fabric_bytes > rx->fabric_bytes
			? (int64_t)(tx->fabric_bytes - rx->fabric_bytes)
			: 0;
	c->dir[EXI_RX].ring = tx->ring;
}

void stat_find_peers(struct stat_view *v)
{
	struct stat_conn **all = calloc(v->n_conns + 1, sizeof(*all));

	if (!all)
		return;
	for (size_t i = 0; i < v->n_conns; i++)
		all[i] = &v->conns[i];
	qsort(all, v->n_conns, sizeof(*all), by_ends);
	for (size_t i = 0; i < v->n_conns; i++) {
		struct stat_conn *c = &v->conns[i], key = { .tcp = c->tcp },
				 *at = &key, **found;

		for (int e = 0; e < 2; e++) {
			key.tcp.port[e] = c->tcp.port[!e];
			memcpy(key.tcp.addr[e], c->tcp.addr[!e], 16);
		}
		found = bsearch(&at, all, v->n_conns, sizeof(*all), by_ends);
		if (found && *found != c)
			c->peer = *found;
	}
	free(all);
	for (size_t i = 0; i < v->n_conns; i++)
		if (v->conns[i].peer)
			compare_ends(&v->conns[i]);
}
