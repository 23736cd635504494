use strict;
use warnings;
use IO::Socket::INET;

my %count = (
    1007 => 12, 1013 => 0, 1020 => 9, 1031 => 44, 1042 => 3, 1055 => 10, 1068 => 3, 1071 => 250
);
sleep 1;    # it takes a while to come up, as services do
my $server = IO::Socket::INET->new(
    LocalAddr => '127.0.0.1', LocalPort => 4100, Listen => 16, ReuseAddr => 1
) or die "port 4100: $!";
$SIG{PIPE} = 'IGNORE';
while (my $client = $server->accept) {
    my $asked = <$client> // '';
    if ($asked =~ /^LIST$/) { print $client "$_\n" for sort keys %count }
    elsif ($asked =~ /^COUNT (\d+)$/ && exists $count{$1}) { print $client "$count{$1}\n" }
    elsif ($asked =~ /^PING$/) { print $client "PONG\n" }
    else { print $client "what?\n" }
    close $client;
}
