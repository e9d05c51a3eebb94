/* SPDX-License-Identifier: BSD-2-Clause */
/* gRPC with protobuf. Usage: rpc serve|talk PORT, or rpc time PORT BYTES SECONDS,
 * which prints the median of a call's time in us, and how many calls it made. */
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <grpcpp/grpcpp.h>
#include <iostream>
#include <pthread.h>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "rpc.grpc.pb.h"

namespace {

constexpr int large = 1 << 20;

class service final : public Echo::Service {
	grpc::Status Once(grpc::ServerContext *, const Load *in,
		Load *out) override
	{
		out->set_body(in->body());
		return grpc::Status::OK;
	}

	grpc::Status Stream(grpc::ServerContext *,
		grpc::ServerReaderWriter<Load, Load> *stream) override
	{
		for (Load load; stream->Read(&load);)
			stream->Write(load);
		return grpc::Status::OK;
	}
};

void serve(const std::string &address)
{
	sigset_t end;
	int signal;

	/* All threads of gRPC leave the signal to this one. */
	sigemptyset(&end);
	sigaddset(&end, SIGTERM);
	pthread_sigmask(SIG_BLOCK, &end, nullptr);

	service echo;
	grpc::ServerBuilder builder;
	builder.SetMaxReceiveMessageSize(2 * large);
	builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
	builder.AddListeningPort(address, grpc::InsecureServerCredentials());
	builder.RegisterService(&echo);
	auto server = builder.BuildAndStart();
	if (!server)
		throw std::runtime_error("cannot listen on " + address);
	sigwait(&end, &signal);
	server->Shutdown();
}

class client {
    public:
	explicit client(const std::string &address)
	{
		grpc::ChannelArguments args;

		args.SetMaxReceiveMessageSize(2 * large);
		stub_ = Echo::NewStub(grpc::CreateCustomChannel(address,
			grpc::InsecureChannelCredentials(), args));
	}

	std::string once(const std::string &body)
	{
		grpc::ClientContext context;
		Load in, out;

		limit(context);
		in.set_body(body);
		must(stub_->Once(&context, in, &out));
		return out.body();
	}

	void stream(int count, const std::function<std::string(int)> &body,
		const std::function<void(const std::string &)> &got)
	{
		grpc::ClientContext context;

		limit(context);
		auto both = stub_->Stream(&context);
		std::thread writer([&] {
			Load in;

			for (int i = 0; i < count; i++) {
				in.set_body(body(i));
				both->Write(in);
			}
			both->WritesDone();
		});
		for (Load out; both->Read(&out);)
			got(out.body());
		writer.join();
		must(both->Finish());
	}

    private:
	static void limit(grpc::ClientContext &context)
	{
		context.set_deadline(std::chrono::system_clock::now() +
				     std::chrono::seconds(20));
	}

	static void must(const grpc::Status &status)
	{
		if (!status.ok())
			throw std::runtime_error(status.error_message());
	}

	std::unique_ptr<Echo::Stub> stub_;
};

/* FNV-1a of all bytes and lengths. */
class digest {
    public:
	void add(const std::string &s)
	{
		for (unsigned char c : s)
			value_ = (value_ ^ c) * 0x100000001b3;
		value_ = (value_ ^ s.size()) * 0x100000001b3;
	}

	uint64_t value() const { return value_; }

    private:
	uint64_t value_ = 0xcbf29ce484222325;
};

void talk(const std::string &address)
{
	client echo(address);
	digest said;
	int parts = 0;

	for (int i = 0; i < 300; i++)
		said.add(echo.once(std::to_string(i)));
	for (char c = 'a'; c < 'i'; c++)
		said.add(echo.once(std::string(large, c)));
	echo.stream(
		200,
		[](int i) { return std::string(9000, static_cast<char>(i)); },
		[&](const std::string &s) { said.add(s), parts++; });
	std::cout << parts << ' ' << std::hex << said.value() << '\n';
}

void time_calls(const std::string &address, size_t size, double seconds)
{
	using clock = std::chrono::steady_clock;
	using us = std::chrono::duration<double, std::micro>;
	client echo(address);
	const std::string body(size, 'x');
	std::vector<double> times;

	/* The first call connects. */
	echo.once(body);
	for (auto begin = clock::now(), now = begin;
		us(now - begin).count() < seconds * 1e6;) {
		auto last = now;

		echo.once(body);
		now = clock::now();
		times.push_back(us(now - last).count());
	}
	std::nth_element(times.begin(), times.begin() + times.size() / 2,
		times.end());
	std::cout << times[times.size() / 2] << ' ' << times.size() << '\n';
}

} /* namespace */

int main(int argc, char **argv)
try {
	const std::string what(argc > 2 ? argv[1] : "");
	const std::string address("127.0.0.1:" +
				  std::string(argc > 2 ? argv[2] : ""));

	if (what == "serve")
		serve(address);
	else if (what == "talk")
		talk(address);
	else if (what == "time" && argc == 5)
		time_calls(address, std::stoul(argv[3]), std::stod(argv[4]));
	else
		throw std::runtime_error("usage: rpc serve|talk PORT, or "
					 "rpc time PORT BYTES SECONDS");
	return 0;
} catch (const std::exception &e) {
	std::cerr << "rpc: " << e.what() << '\n';
	return 1;
}
