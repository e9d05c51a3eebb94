/* SPDX-License-Identifier: BSD-2-Clause */
/* Doubly linked circular lists, with the node inside the element. */
#ifndef EXI_CORE_BASE_LIST_H
#define EXI_CORE_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct exi_list {
	struct exi_list *next;
	struct exi_list *prev;
};

#define EXI_LIST_INIT(l)                                                       \
	{                                                                      \
		.next = &(l), .prev = &(l)                                     \
	}

#define exi_container(ptr, type, member)                                       \
	((type *)((char *)(ptr)-offsetof(type, member)))

#define exi_list_for_each(pos, head)                                           \
	for ((pos) = (head)->next; (pos) != (head); (pos) = (pos)->next)

#define exi_list_for_each_safe(pos, tmp, head)                                 \
	for ((pos) = (head)->next, (tmp) = (pos)->next; (pos) != (head);       \
	     (pos) = (tmp), (tmp) = (pos)->next)

/* Makes an empty list, or an entry that is in no list. */
static inline void exi_list_init(struct exi_list *l)
{
	l->next = l;
	l->prev = l;
}

/* Whether the list is empty, or the entry in no list. */
static inline bool exi_list_empty(const struct exi_list *l)
{
	return l->next == l;
}

/* Adds n at the end of the list, or before an entry. */
static inline void exi_list_add_tail(struct exi_list *l, struct exi_list *n)
{
	n->prev = l->prev;
	n->next = l;
	l->prev->next = n;
	l->prev = n;
}

/* Adds n at the beginning of the list, or after an entry. */
static inline void exi_list_add_head(struct exi_list *l, struct exi_list *n)
{
	exi_list_add_tail(l->next, n);
}

/* Leaves n empty, so that removing twice is harmless. */
static inline void exi_list_del(struct exi_list *n)
{
	n->prev->next = n->next;
	n->next->prev = n->prev;
	exi_list_init(n);
}

/* Moves the entries of `from`, from the first up to `last`, in front of `at`,
 * which is an entry or the head of another list. */
static inline void exi_list_move(struct exi_list *from, struct exi_list *last,
				 struct exi_list *at)
{
	struct exi_list *first = from->next;

	from->next = last->next;
	last->next->prev = from;
	first->prev = at->prev;
	at->prev->next = first;
	last->next = at;
	at->prev = last;
}

/* Removes and returns the first entry; null if the list is empty. */
static inline struct exi_list *exi_list_pop(struct exi_list *l)
{
	struct exi_list *n = l->next;

	if (n == l)
		return NULL;
	exi_list_del(n);
	return n;
}

#endif
