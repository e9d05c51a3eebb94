/* SPDX-License-Identifier: BSD-2-Clause */
/* Pairing heaps, with the node inside the element. The least key is at the
 * root, and adding or removing a node is cheap, however many there are. */
#ifndef EXI_CORE_BASE_HEAP_H
#define EXI_CORE_BASE_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A zeroed node is in no heap. The members are private. */
struct exi_heap {
	struct exi_heap *child; /* the first */
	struct exi_heap *next;	/* of the same parent */
	struct exi_heap *prev;	/* the one before, or the parent */
	uint64_t key;
	bool in;
};

/* Melds two heaps; either may be null. */
static inline struct exi_heap *exi_heap_meld(struct exi_heap *a,
					     struct exi_heap *b)
{
	struct exi_heap *least = b && (!a || b->key < a->key) ? b : a;
	struct exi_heap *other = least == a ? b : a;

	if (!other)
		return least;
	other->prev = least;
	other->next = least->child;
	if (other->next)
		other->next->prev = other;
	least->child = other;
	return least;
}

/* Melds a list of siblings into one heap: first in pairs, then all. */
static inline struct exi_heap *exi_heap_meld_all(struct exi_heap *first)
{
	struct exi_heap *pairs = NULL, *ret = NULL;

	while (first) {
		struct exi_heap *a = first, *b = a->next;

		first = b ? b->next : NULL;
		a->next = a->prev = NULL;
		if (b)
			b->next = b->prev = NULL;
		a = exi_heap_meld(a, b);
		a->next = pairs;
		pairs = a;
	}
	while (pairs) {
		struct exi_heap *a = pairs;

		pairs = a->next;
		a->next = NULL;
		ret = exi_heap_meld(ret, a);
	}
	return ret;
}

/* Removes n if it is in the heap. */
static inline void exi_heap_del(struct exi_heap **heap, struct exi_heap *n)
{
	struct exi_heap *below;

	if (!n->in)
		return;
	below = exi_heap_meld_all(n->child);
	if (!n->prev)
		*heap = NULL;
	else if (n->prev->child == n)
		n->prev->child = n->next;
	else
		n->prev->next = n->next;
	if (n->next)
		n->next->prev = n->prev;
	*heap = exi_heap_meld(*heap, below);
	*n = (struct exi_heap){ 0 };
}

/* Inserts n with this key; moves it if it is in the heap already. */
static inline void exi_heap_put(struct exi_heap **heap, struct exi_heap *n,
				uint64_t key)
{
	exi_heap_del(heap, n);
	n->key = key;
	n->in = true;
	*heap = exi_heap_meld(*heap, n);
}

#endif
