use strict;
use warnings;
use IO::Socket::INET;

open my $file, '<', '/app/capitals.tsv' or die "capitals.tsv: $!";
my %capital = map { chomp; split /\t/ } <$file>;
my $server = IO::Socket::INET->new(
    LocalAddr => '127.0.0.1', LocalPort => 7070, Listen => 16, ReuseAddr => 1
) or die "port 7070: $!";
$SIG{PIPE} = 'IGNORE';
while (my $client = $server->accept) {
    my $country = <$client> // '';
    $country =~ s/\r?\n$//;
    print $client $capital{$country} // 'unknown', "\n";
    close $client;
}
