#!/bin/sh
set -e
ask() {
    perl -MIO::Socket::INET -e '
        my $stock = IO::Socket::INET->new("127.0.0.1:4100") or die "no service: $@";
        print $stock "@ARGV\n";
        print <$stock>;
    ' "$@"
}
ask LIST | while read -r number; do
    count=$(ask COUNT "$number")
    [ "$count" -ge 10 ] || echo "$number $count"
done | sort -k2,2n -k1,1n > /app/reorder.txt
