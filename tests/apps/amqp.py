# SPDX-License-Identifier: BSD-2-Clause
"""RabbitMQ by pika: a queue, messages through it, their bytes. Usage: amqp.py PORT"""
import hashlib
import sys

import pika

said = hashlib.sha256()
with pika.BlockingConnection(pika.ConnectionParameters(
        '127.0.0.1', int(sys.argv[1]), blocked_connection_timeout=60)) as c:
    channel = c.channel()
    channel.queue_declare('q', auto_delete=True)
    for i in range(500):
        channel.basic_publish('', 'q', b'%d ' % i * (1000 if i % 50 == 0 else 1))
    for method, _, body in channel.consume('q', inactivity_timeout=20):
        assert method, 'nothing comes'
        said.update(body)
        channel.basic_ack(method.delivery_tag)
        if method.delivery_tag == 500:
            break
print(said.hexdigest())
