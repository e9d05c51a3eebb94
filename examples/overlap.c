/* SPDX-License-Identifier: BSD-2-Clause */
/* Computes while megabytes arrive into registered memory: receives are posted
 * ahead, and events are taken between two steps of the work.
 *	overlap ADDRESS BLOCKS	an address of this host, such as 127.0.0.1
 */
#include <arpa/inet.h>
#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/exs_ext.h>
#include <sys/wait.h>
#include <unistd.h>

#define WAIT EXS_QHANDLE_INVALID, NULL
enum {
	AHEAD = 4,
	BLOCK = 1048576
};

static char mem[AHEAD][BLOCK];
static exs_mhandle_t m;
static exs_qhandle_t q;
static double sum; /* of the work */

static void must(int good, const char *what)
{
	if (!good)
		err(1, "%s", what);
}

static double us(void)
{
	struct timeval t;

	gettimeofday(&t, NULL);
	return (double)t.tv_sec * 1e6 + (double)t.tv_usec;
}

static void post(int s, int i)
{
	must(!exs_recv(s, mem[i % AHEAD], BLOCK, MSG_WAITALL, q, NULL, m), "");
}

static void work(void)
{
	for (int i = 1; i < 20000; i++)
		sum += 1.0 / i;
}

static void receive(int s, int blocks)
{
	struct timeval now = { 0 };
	int posted = 0, done = 0, steps = 0;
	double from = us(), alone, beside;
	exs_x_sockinfo_t info;
	exs_event_t e;

	while (steps++ < 100)
		work();
	alone = (us() - from) / 100;
	while (posted < AHEAD && posted < blocks)
		post(s, posted++);
	for (from = us(), steps = 0; done < blocks; steps++) {
		work();
		for (; exs_qdequeue(q, &e, 1, &now) == 1; done++) {
			must(!e.exs_errno, "a block did not come");
			if (posted < blocks)
				post(s, posted++);
		}
	}
	beside = us() - from;
	exs_x_sockinfo(s, &info);
	printf("%d blocks over %s in %.0f us; a step took %.1f us, %.1f "
	       "alone\n",
	       done, info.exs_x_rx_fabric, beside, beside / steps, alone);
}

int main(int argc, char **argv)
{
	struct sockaddr_in a = { .sin_family = AF_INET };
	int l = socket(AF_INET, SOCK_STREAM, 0), sender;
	socklen_t len = sizeof(a);

	must(argc == 3 && inet_aton(argv[1], &a.sin_addr), "ADDRESS BLOCKS");
	must(!bind(l, (struct sockaddr *)&a, len) && !listen(l, 1), "address");
	getsockname(l, (struct sockaddr *)&a, &len);
	sender = fork();
	must(!exs_init(EXS_VERSION), "exs_init");
	m = exs_mregister(mem, sizeof(mem), 0);
	if (sender) {
		q = exs_qcreate(AHEAD);
		receive(exs_accept(l, NULL, 0, WAIT), atoi(argv[2]));
		return wait(NULL) != sender;
	}
	l = exs_socket(AF_INET, SOCK_STREAM, 0);
	must(!exs_connect(l, (struct sockaddr *)&a, len, 0, WAIT), "connect");
	for (int left = atoi(argv[2]); left; left--)
		must(exs_send(l, mem, BLOCK, 0, WAIT, m) == BLOCK, "send");
	return exs_close(l, WAIT);
}
