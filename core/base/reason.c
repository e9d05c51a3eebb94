/* SPDX-License-Identifier: BSD-2-Clause */
/* The words for why a connection is where it is. */

#include <sys/exs_ext.h>

struct reason {
	const char *name;
	const char *text;
};

static const struct reason reasons[EXS_X_REASON_MAX_] = {
	[EXS_X_REASON_NONE] = { "none", "it goes over a fabric" },
	[EXS_X_REASON_UNDECIDED] = { "undecided",
				     "too little traffic so far, or it is "
				     "about to move" },
	[EXS_X_REASON_PLAIN_PEER] = { "plain-peer",
				      "nobody at the other end can be met: it "
				      "does not run libexs, or is kept on "
				      "TCP" },
	[EXS_X_REASON_PLAIN_SOCKET] = { "plain-socket",
					"made by plain calls; exs_x_adopt() "
					"upgrades it" },
	[EXS_X_REASON_CONFIG] = { "config", "EXS_UPGRADE is never" },
	[EXS_X_REASON_NO_PROVIDER] = { "no-provider",
				       "no fabric is usable at both ends; see "
				       "exs info" },
	[EXS_X_REASON_REMOTE] = { "remote", "the peer is on another host or in "
					    "another network namespace" },
	[EXS_X_REASON_NO_PROOF] = { "no-proof",
				    "it cannot be told here who the peer is; "
				    "exs info says what is missing" },
	[EXS_X_REASON_REFUSED] = { "refused", "somebody claimed the connection "
					      "without proof" },
	[EXS_X_REASON_VERSION] = { "version", "the ends speak different "
					      "protocol versions" },
	[EXS_X_REASON_TIMEOUT] = { "timeout", "the peer's library did not "
					      "answer in time, here or a "
					      "while ago" },
	[EXS_X_REASON_REQUESTED] = { "requested",
				     "exs_x_downgrade() was called here" },
	[EXS_X_REASON_PEER_REQUEST] = { "peer-request",
					"the peer asked for TCP" },
	[EXS_X_REASON_HALF_CLOSED] = { "half-closed", "a direction has ended" },
	[EXS_X_REASON_URGENT] = { "urgent", "urgent data was used" },
	[EXS_X_REASON_DESCRIPTORS] = { "descriptors", "descriptors are running "
						      "out; raise ulimit -n" },
	[EXS_X_REASON_MEMORY] = { "memory",
				  "memory ran out, or a limit of it: "
				  "EXS_MEMORY_LIMIT_MB, ulimit -f or -v" },
	[EXS_X_REASON_SHARED] = { "shared",
				  "several processes use the descriptor" },
	[EXS_X_REASON_KERNEL_TLS] = { "kernel-tls", "a protocol runs on the "
						    "socket in the kernel" },
	[EXS_X_REASON_MPTCP] = { "mptcp", "the socket is MPTCP" },
	[EXS_X_REASON_ZEROCOPY] = { "zerocopy", "SO_ZEROCOPY is set" },
	[EXS_X_REASON_TIMESTAMPS] = { "timestamps",
				      "the socket's timestamps are in use" },
	[EXS_X_REASON_REPAIR] = { "repair", "TCP_REPAIR is set" },
	[EXS_X_REASON_BPF] = { "bpf", "a filter is attached to the socket" },
	[EXS_X_REASON_O_ASYNC] = { "o-async", "O_ASYNC is set" },
	[EXS_X_REASON_SELF] = { "self", "the socket is connected to itself" },
	[EXS_X_REASON_IO_URING] = { "io-uring",
				    "a program uses io_uring of its own" },
	[EXS_X_REASON_SECCOMP] = { "seccomp", "a process has entered seccomp" },
	[EXS_X_REASON_ORPHAN] = { "orphan", "the peer is gone; its unread "
					    "bytes were saved" },
	[EXS_X_REASON_PEER_LOST] = { "peer-lost",
				     "the peer's library left without a word" },
	[EXS_X_REASON_PROTOCOL] = { "protocol", "the peer broke the protocol" },
	[EXS_X_REASON_NOT_TCP] = { "not-tcp", "not a TCP socket" },
	[EXS_X_REASON_NOT_CONNECTED] = { "not-connected",
					 "the socket is not connected" },
	[EXS_X_REASON_DUPLICATE] = { "duplicate", "the descriptor was "
						  "duplicated" },
	[EXS_X_REASON_EXEC] = { "exec", "it went to another program by exec" },
	[EXS_X_REASON_PASSED] = { "passed", "it was sent to a process" },
	[EXS_X_REASON_STDIO] = { "stdio", "a stdio stream was opened on it" },
	[EXS_X_REASON_SPLICE] = { "splice", "splice() was used on it" },
	[EXS_X_REASON_NAMESPACE] = { "namespace", "the process moved to "
						  "namespaces where it cannot "
						  "be served" },
	[EXS_X_REASON_NO_KEY] = { "no-key",
				  "an end has no usable key of upgrades "
				  "between hosts; exs key tells, at both" },
	[EXS_X_REASON_KEY_MISMATCH] = { "key-mismatch",
					"the hosts have different keys; exs "
					"key copy HOST makes them one" },
	[EXS_X_REASON_FABRIC_LOST] = { "fabric-lost",
				       "the fabric failed; the connection went "
				       "on over TCP" },
	[EXS_X_REASON_PEEK_OFF] = { "peek-off", "SO_PEEK_OFF is set" },
	[EXS_X_REASON_UNSEEN_WAIT] = { "unseen-wait",
				       "the program waits by system calls of "
				       "its own" },
};

static const struct reason *find(int reason)
{
	static const struct reason unknown = { "unknown", "unknown reason" };

	if (reason < 0 || reason >= EXS_X_REASON_MAX_ || !reasons[reason].name)
		return &unknown;
	return &reasons[reason];
}

/* Public as they are; api/exs.map names them. */
__attribute__((visibility("default"))) const char *exs_x_reason_name(int reason)
{
	return find(reason)->name;
}

__attribute__((visibility("default"))) const char *exs_x_reason_text(int reason)
{
	return find(reason)->text;
}
