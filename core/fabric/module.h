/* SPDX-License-Identifier: BSD-2-Clause */
/* Fabrics that live in a module of their own, <libdir>/exs/NAME.so, because
 * their libraries are large: opened when the fabric is first asked for, so that
 * a program whose peers are all on its host never loads them.
 *
 * A module has one symbol, exi_module, and needs none of the library's: what it
 * uses of the library comes in a table. */
#ifndef EXI_CORE_FABRIC_MODULE_H
#define EXI_CORE_FABRIC_MODULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/util.h"

struct exi_config;
struct exi_provider;
struct exi_tuple;

/* The calls that a module may make, from any thread, at any time. */
struct exi_host {
	uint32_t abi; /* EXI_PROVIDER_ABI */
	const struct exi_config *(*config)(void);
	const int *log_level;
	void (*log)(int level, const char *fmt, ...)
		__attribute__((format(printf, 2, 3)));
	int (*futex_wake)(const uint32_t *addr, int count);
	int (*fd_keep)(int fd);
	int (*fd_spare)(int fd);
	void (*fd_close)(int fd);
	int (*accept)(int listener, bool spare);
	void (*close_socket)(int fd, bool sole);
	void (*close_listener)(int fd, bool sole);
	bool (*fds_short)(void);
	void (*fds_begin)(void);
	void (*fds_end)(void);
	int (*request)(const struct exi_provider *p, const struct exi_tuple *t,
		       int link, void *arg);
	int (*met)(int link, int reason);
};

/* Whether this code is the program's own, and the shim has brought the library
 * once more. */
bool exi_module_twice(void);

/* The symbol. Returns the module's table, which stays valid for ever; null
 * when it is of another abi than the host. */
typedef const struct exi_provider *exi_module_fn(const struct exi_host *host);

/* Gives modules their upward calls: request, met, accept, close_socket and
 * close_listener of this table. Called once, where the core starts: before that
 * there is no connection for which a module could call them. */
void exi_module_serve(const struct exi_host *upcalls);

/* Opens the module of a fabric. It stays open while the process lives, but in a
 * forked child. 0, or -errno and the reason in words: -ENOENT when there is no
 * such file. */
int exi_module_open(const char *name, const struct exi_provider **ret,
		    void **ret_handle, char *why, size_t len);

/* Whether the code at this address is a module's, or of the library that its
 * provider.afresh names: what such code opens is the kernel's, for ever, or a
 * fabric's own connections would use fabrics. */
EXI_SHIM bool exi_module_calls(const void *code);

/* Takes it out of a forked child, where none of its code runs, together with
 * the library that provider.afresh names: the next exi_module_open() finds both
 * as in a new process. -EBUSY: something else uses that library; say why. */
int exi_module_close(void *handle, const char *afresh, char *why, size_t len);

#endif
