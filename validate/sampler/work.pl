# Work for the sampler.
use strict;
my (%h, $text);
for my $round (1 .. 40) {
    %h = map { $_ => $_ * 7919 % 10007 } 1 .. 8000;
    my @sorted = sort { $h{$a} <=> $h{$b} || $a cmp $b } keys %h;
    $text = join " ", @sorted;
    my $n = () = $text =~ /(\d)(?:\d*?)\1\b/g;
    (my $copy = $text) =~ s/(\d+)/sprintf "%x", $1/ge;
    my @parts = split /\s+/, $copy;
    my $deep = sub { my ($self, $d) = @_; $d ? [$self->($self, $d - 1)] : [] };
    $deep->($deep, 90) for 1 .. 20;
    my $packed = pack "N*", map { hex } @parts;
    my @back = unpack "N*", $packed;
}
