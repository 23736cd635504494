use strict;
use warnings;
use IO::Socket::INET;

alarm 10;    # a server that accepts and never answers
my @asked = (
    [ 'Japan', 'Tokyo' ], [ 'New Zealand', 'Wellington' ], [ 'Atlantis', 'unknown' ],
    [ 'Ghana', 'Accra' ], [ 'Japan', 'Tokyo' ], [ '', 'unknown' ],
);
for (@asked) {
    my ($country, $capital) = @$_;
    my $server = IO::Socket::INET->new('127.0.0.1:7070') or die "no server on port 7070: $@\n";
    print $server "$country\n";
    my $answer = join '', <$server>;
    die "$country: got '$answer', not '$capital'\n" if $answer ne "$capital\n";
}
