# SPDX-License-Identifier: BSD-2-Clause
# echo.pl PORT: an echo server with AnyEvent.
use strict;
use warnings;
use AnyEvent;
use AnyEvent::Handle;
use AnyEvent::Socket;

my %all;
my $end = sub { my $h = shift; delete $all{$h}; $h->destroy };

tcp_server "127.0.0.1", $ARGV[0], sub {
	my $h = AnyEvent::Handle->new(
		fh => $_[0], on_error => $end,
		on_eof => sub { my $h = shift; $h->on_drain($end) },
		on_read => sub {
			my $h = shift;
			$h->push_write($h->rbuf);
			$h->rbuf = "";
		});
	$all{$h} = $h;
};
AnyEvent->condvar->recv;
