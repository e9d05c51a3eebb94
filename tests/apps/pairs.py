# SPDX-License-Identifier: BSD-2-Clause
"""multiprocessing: pipes of both kinds, and what a manager keeps. Usage:
pairs.py fork|spawn"""
import hashlib
import multiprocessing
import sys


def answer(end):
    while True:
        text = end.recv_bytes()
        if not text:
            return
        end.send_bytes(text[::-1])


def ask(context, said):
    """A pipe whose other end a child has."""
    here, there = context.Pipe()
    child = context.Process(target=answer, args=(there,))
    child.start()
    there.close()
    for i in range(3000):
        here.send_bytes(b'%d' % i * (i % 100 + 1))
        said.update(here.recv_bytes())
    for i in range(4):
        here.send_bytes(bytes([i + 1]) * (3 << 20))
        said.update(here.recv_bytes())
    here.send_bytes(b'')
    child.join()


def fill(kept, first):
    for i in range(first, first + 300):
        kept[i] = str(i) * (i % 50)


def keep(context, said):
    """A child and this process have a dictionary at a third."""
    with context.Manager() as manager:
        kept = manager.dict()
        child = context.Process(target=fill, args=(kept, 0))
        child.start()
        fill(kept, 300)
        child.join()
        for i in range(600):
            said.update(kept[i].encode())
        queue = manager.Queue()
        for i in range(300):
            queue.put(i)
        said.update(b'%d' % sum(queue.get() for _ in range(300)))


if __name__ == '__main__':
    how, sums = multiprocessing.get_context(sys.argv[1]), hashlib.sha256()
    ask(how, sums)
    keep(how, sums)
    print(sums.hexdigest())
