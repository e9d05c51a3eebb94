// SPDX-License-Identifier: BSD-2-Clause
// node.js: requests with bodies, eight connections that stay; cluster: a
// process that accepts passes them to two that serve. Usage:
// node http.js serve|cluster|talk PORT
'use strict';
const cluster = require('cluster');
const http = require('http');
const crypto = require('crypto');
const [role, port] = [process.argv[2], Number(process.argv[3])];
const host = '127.0.0.1';

function serve() {
	const server = http.createServer((request, response) => {
		const parts = [];
		request.on('data', part => parts.push(part));
		request.on('end', () => response.end(Buffer.concat(parts)));
	});
	server.listen(port, host);
	process.on('SIGTERM', () => process.exit(0));
}

function manage() {
	cluster.fork();
	cluster.fork();
	process.on('SIGTERM', () => {
		let left = 2;
		for (const id in cluster.workers) {
			const worker = cluster.workers[id];
			worker.on('exit', () => --left || process.exit(0));
			worker.process.kill('SIGTERM');
		}
	});
}

async function talk() {
	const agent = new http.Agent({ keepAlive: true, maxSockets: 8 });
	const hash = crypto.createHash('sha256');

	function post(body) {
		return new Promise((resolve, reject) => {
			const options = { host, port, agent, method: 'POST' };
			const request = http.request(options, response => {
				const parts = [];
				response.on('data', part => parts.push(part));
				response.on('end', () =>
					resolve(Buffer.concat(parts)));
				response.on('error', reject);
			});
			request.on('error', reject);
			request.end(body);
		});
	}

	for (let i = 0; i < 80; i++) {
		const bodies = [];
		for (let k = 0; k < 8; k++)
			bodies.push(Buffer.alloc(1 + (i * 8 + k) * 997 % 200000,
				`${i},${k};`));
		const answers = await Promise.all(bodies.map(post));
		answers.forEach((answer, k) => {
			if (!answer.equals(bodies[k]))
				throw new Error(`answer ${i},${k} is another`);
			hash.update(answer);
		});
	}
	agent.destroy();
	console.log(hash.digest('hex'));
}

if (role === 'cluster' && cluster.isPrimary)
	manage();
else if (role !== 'talk')
	serve();
else
	talk();
