// SPDX-License-Identifier: BSD-2-Clause
// Java: an echo server and its client, channels of a selector each. Usage:
// java Nio serve|talk PORT
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.*;

public class Nio {
	static final int CHANNELS = 8, MESSAGES = 100;

	public static void main(String[] args) throws IOException {
		InetSocketAddress at = new InetSocketAddress("127.0.0.1",
				Integer.parseInt(args[1]));
		if (args[0].equals("serve"))
			serve(at);
		else
			talk(at);
	}

	// What a connection has read and not yet sent back is its buffer.
	static void serve(InetSocketAddress at) throws IOException {
		Selector selector = Selector.open();
		ServerSocketChannel listener = ServerSocketChannel.open();
		listener.bind(at);
		listener.configureBlocking(false);
		listener.register(selector, SelectionKey.OP_ACCEPT);
		while (true) {
			selector.select();
			for (SelectionKey key : selector.selectedKeys()) {
				if (key.isAcceptable()) {
					SocketChannel c = listener.accept();
					if (c == null)
						continue;
					c.configureBlocking(false);
					c.register(selector, SelectionKey.OP_READ,
						ByteBuffer.allocateDirect(65536));
				} else {
					echo(key);
				}
			}
			selector.selectedKeys().clear();
		}
	}

	static void echo(SelectionKey key) throws IOException {
		SocketChannel c = (SocketChannel)key.channel();
		ByteBuffer b = (ByteBuffer)key.attachment();
		if (key.isReadable() && c.read(b) < 0) {
			c.close();
			return;
		}
		b.flip();
		c.write(b);
		key.interestOps(b.hasRemaining() ? SelectionKey.OP_WRITE
						 : SelectionKey.OP_READ);
		b.compact();
	}

	// One message of a channel is under way at a time.
	static class Talk {
		final int who;
		int message;
		ByteBuffer out, in;

		Talk(int who) {
			this.who = who;
			next();
		}

		void next() {
			int size = 1 + (message * 8 + who) * 997 % 200000;
			out = ByteBuffer.allocateDirect(size);
			for (int i = 0; i < size; i++)
				out.put((byte)(who + message + i * i));
			out.flip();
			in = ByteBuffer.allocateDirect(size);
		}

		// Whether there is more to say.
		boolean go(SocketChannel c) throws IOException {
			if (out.hasRemaining())
				c.write(out);
			if (c.read(in) < 0)
				throw new IOException("the server has ended");
			if (in.hasRemaining())
				return true;
			out.rewind();
			in.flip();
			if (!in.equals(out))
				throw new IOException("another message came back");
			if (++message == MESSAGES)
				return false;
			next();
			return true;
		}
	}

	static void talk(InetSocketAddress at) throws IOException {
		Selector selector = Selector.open();
		for (int i = 0; i < CHANNELS; i++) {
			SocketChannel c = SocketChannel.open(at);
			c.configureBlocking(false);
			c.register(selector, SelectionKey.OP_WRITE, new Talk(i));
		}
		int open = CHANNELS;
		while (open > 0) {
			selector.select();
			for (SelectionKey key : selector.selectedKeys()) {
				Talk t = (Talk)key.attachment();
				if (!t.go((SocketChannel)key.channel())) {
					key.channel().close();
					open--;
					continue;
				}
				key.interestOps(SelectionKey.OP_READ |
					(t.out.hasRemaining()
						? SelectionKey.OP_WRITE : 0));
			}
			selector.selectedKeys().clear();
		}
		System.out.println(CHANNELS + " channels, " + MESSAGES +
				   " messages each");
	}
}
