/* SPDX-License-Identifier: BSD-2-Clause */
/* The interface as C++ uses it: a connection within this process, with a queue
 * and registered memory, both owned by objects. */
#include <array>
#include <cstring>
#include <netinet/in.h>
#include <stdexcept>
#include <string>
#include <sys/exs_ext.h>
#include <type_traits>

namespace {

/* No argument is silently taken for another. */
template <typename a, typename b> constexpr bool converts()
{
	return std::is_convertible<a, b>::value;
}
static_assert(!converts<int, exs_qhandle_t>(), "");
static_assert(!converts<int, exs_mhandle_t>(), "");
static_assert(!converts<exs_qhandle_t, exs_mhandle_t>(), "");
static_assert(!converts<exs_mhandle_t, exs_qhandle_t>(), "");
static_assert(sizeof(exs_qhandle_t) == sizeof(int), "passed as one");
static_assert(sizeof(exs_mhandle_t) == sizeof(int), "passed as one");

void must(bool good, const char *what)
{
	if (!good)
		throw std::runtime_error(what);
}

class queue {
    public:
	explicit queue(int depth) : handle_(exs_qcreate(depth))
	{
		must(handle_ != EXS_QHANDLE_INVALID, "exs_qcreate");
	}
	~queue() { exs_qdelete(handle_); }
	queue(const queue &) = delete;
	queue &operator=(const queue &) = delete;

	operator exs_qhandle_t() const { return handle_; }

	template <std::size_t N> std::array<exs_event_t, N> take() const
	{
		std::array<exs_event_t, N> events{};

		must(exs_qdequeue(handle_, events.data(), -static_cast<int>(N),
				  nullptr) == static_cast<int>(N),
		     "exs_qdequeue");
		return events;
	}

    private:
	exs_qhandle_t handle_;
};

class connection {
    public:
	explicit connection(int s) : s_(s) { must(s >= 0, "a socket"); }
	~connection() { exs_close(s_, EXS_QHANDLE_INVALID, nullptr); }
	connection(const connection &) = delete;
	connection &operator=(const connection &) = delete;

	operator int() const { return s_; }

    private:
	int s_;
};

void exchange()
{
	sockaddr_in at{};
	socklen_t len = sizeof(at);
	auto *address = reinterpret_cast<sockaddr *>(&at);
	connection listener(exs_socket(AF_INET, SOCK_STREAM, 0));
	connection a(exs_socket(AF_INET, SOCK_STREAM, 0));
	std::array<char, 16> room{};
	const std::string text("from C++");
	queue q(4);

	at.sin_family = AF_INET;
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	must(exs_bind(listener, address, len) == 0 &&
		     exs_listen(listener, 1) == 0 &&
		     exs_getsockname(listener, address, &len) == 0,
	     "a listener");
	must(exs_connect(a, address, len, 0, q, &at) == 0 &&
		     exs_accept(listener, nullptr, 0, q, nullptr) == 0,
	     "connecting");
	int accepted = -1;
	for (const auto &e : q.take<2>()) {
		must(e.exs_errno == 0, "a connection");
		if (e.exs_evt_type == EXS_EVT_ACCEPT)
			accepted = e.exs_evt_un.exs_evt_accept.exs_evt_newfd;
	}
	connection b(accepted);
	exs_mhandle_t m = exs_mregister(room.data(), room.size(), 0);
	must(exs_recv(b, room.data(), text.size(), MSG_WAITALL, q, nullptr,
		      m) == 0 &&
		     exs_send(a, text.data(), text.size(), 0, q, nullptr,
			      EXS_MHANDLE_UNREGISTERED) == 0,
	     "a transfer");
	q.take<2>();
	must(text == room.data(), "what came");
	must(exs_mderegister(m, 0) == 0, "exs_mderegister");

	exs_x_sockinfo_t info;
	must(exs_x_sockinfo(a, &info) == 0 &&
		     std::strlen(exs_x_reason_name(info.exs_x_reason)) > 0,
	     "exs_x_sockinfo");
}

} // namespace

int main()
{
	if (exs_init(EXS_VERSION))
		return 1;
	exchange();
	return 0;
}
