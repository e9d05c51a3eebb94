// SPDX-License-Identifier: BSD-2-Clause
// Echo.exe PORT: an echo server with tasks.
using System;
using System.Net;
using System.Net.Sockets;
using System.Threading.Tasks;

static class Echo
{
	static async Task Serve(TcpClient client)
	{
		using (client)
		using (var s = client.GetStream()) {
			var buf = new byte[65536];
			int n;

			while ((n = await s.ReadAsync(buf, 0, buf.Length)) > 0)
				await s.WriteAsync(buf, 0, n);
		}
	}

	static void Main(string[] args)
	{
		var l = new TcpListener(IPAddress.Loopback, int.Parse(args[0]));

		l.Start();
		for (;;) {
			var c = l.AcceptTcpClientAsync().Result;

			Task.Run(() => Serve(c));
		}
	}
}
