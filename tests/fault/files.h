/* SPDX-License-Identifier: BSD-2-Clause */
/* Messages with the descriptor of a file, which tells at which byte of the
 * stream its message begins; by plain calls. */
#ifndef TESTS_FAULT_FILES_H
#define TESTS_FAULT_FILES_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Sends all bytes. */
void t_send_plain(int s, const char *buf, size_t n);

/* Sends all bytes; the first of them is number pos of the stream. */
void t_send_file(int s, const char *buf, size_t n, uint64_t pos);

/* As recv(2). *pos: what the file that came tells; unchanged: none came. */
ssize_t t_recv_file(int s, char *buf, size_t n, uint64_t *pos);

#endif
