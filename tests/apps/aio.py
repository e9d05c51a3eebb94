# SPDX-License-Identifier: BSD-2-Clause
"""asyncio: ten connections at once in one loop, both ends."""
import asyncio


async def handle(reader, writer):
    while True:
        data = await reader.read(65536)
        if not data:
            break
        writer.write(data)
        await writer.drain()
    writer.close()


async def talk(port, who):
    reader, writer = await asyncio.open_connection('127.0.0.1', port)
    for i in range(500):
        message = b'%d:%d.' % (who, i) * (1 + i % 3000)
        writer.write(message)
        await writer.drain()
        assert await reader.readexactly(len(message)) == message
    writer.write_eof()
    assert await reader.read() == b''
    writer.close()
    await writer.wait_closed()
    return who


async def main():
    server = await asyncio.start_server(handle, '127.0.0.1', 0)
    port = server.sockets[0].getsockname()[1]
    print(await asyncio.gather(*[talk(port, i) for i in range(10)]))
    server.close()
    await server.wait_closed()


asyncio.run(main())
