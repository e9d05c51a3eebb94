# SPDX-License-Identifier: BSD-2-Clause
"""dask.distributed: work for a worker, by way of the scheduler. Usage: crunch.py PORT"""
import hashlib
import sys

from distributed import Client


def square(x):
    return x * x


def reverse(x):
    return x[::-1]


with Client('tcp://127.0.0.1:' + sys.argv[1], timeout=30) as c:
    c.wait_for_workers(1, timeout=30)
    print(sum(c.gather(c.map(square, range(200)))))
    big = c.submit(reverse, bytes(range(256)) * 8192)
    print(hashlib.sha256(big.result(30)).hexdigest())
