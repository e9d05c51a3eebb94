/* SPDX-License-Identifier: BSD-2-Clause */
/* Modules: fabrics with large libraries are in files of their own,
 * <libdir>/exs/NAME.so. A module is opened when its fabric is first needed, so
 * a program whose peers are all on its host never loads it.
 *
 * A module exports one symbol, exi_module, and imports none of the library's:
 * it gets the library's functions in a table. */
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
	void (*stranger)(const struct exi_tuple *t);
	int (*met)(int link, int reason);
};

/* Whether this copy of the library is the program's own while the shim has
 * loaded a second one. */
bool exi_module_twice(void);

/* The type of exi_module. Returns the module's table, which stays valid for
 * ever; null if the module's ABI differs from the host's. */
typedef const struct exi_provider *exi_module_fn(const struct exi_host *host);

/* Sets the modules' upcalls: request, stranger, met, accept, close_socket and
 * close_listener of this table. Called once, when the core starts: before that
 * there is no connection for which a module could make them. */
void exi_module_serve(const struct exi_host *upcalls);

/* Opens the module of a fabric. It stays open while the process lives, except
 * in a forked child. 0, or -errno with the reason as text in why; -ENOENT:
 * there is no such file. */
int exi_module_open(const char *name, const struct exi_provider **ret,
		    void **ret_handle, char *why, size_t len);

/* Whether the code at this address belongs to a module, or to the library that
 * its provider.afresh names. Sockets that such code opens always stay plain,
 * because otherwise a fabric's own connections would use fabrics. */
EXI_SHIM bool exi_module_calls(const void *code);

/* Unloads a module from a forked child, where none of its code runs, together
 * with the library that provider.afresh names. The next exi_module_open() then
 * finds both as in a new process. -EBUSY: something else uses that library; the
 * reason is in why. */
int exi_module_close(void *handle, const char *afresh, char *why, size_t len);

#endif
