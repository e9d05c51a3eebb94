# SPDX-License-Identifier: BSD-2-Clause
"""asyncio: ten connections at once in one loop. Usage: aio.py serve|talk
PORT"""
import asyncio
import signal
import sys


async def handle(reader, writer):
    while True:
        data = await reader.read(65536)
        if not data:
            break
        writer.write(data)
        await writer.drain()
    writer.close()


async def serve(port):
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    async with await asyncio.start_server(handle, '127.0.0.1', port):
        await ended.wait()


async def talk_one(port, who):
    reader, writer = await asyncio.open_connection('127.0.0.1', port)
    for i in range(150):
        message = b'%d:%d.' % (who, i) * (1 + i * 10 % 3000)
        writer.write(message)
        await writer.drain()
        assert await reader.readexactly(len(message)) == message
    writer.write_eof()
    assert await reader.read() == b''
    writer.close()
    await writer.wait_closed()
    return who


async def talk(port):
    print(await asyncio.gather(*[talk_one(port, i) for i in range(10)]))


asyncio.run({'serve': serve, 'talk': talk}[sys.argv[1]](int(sys.argv[2])))
