# Prints what each package wrote when it ends, from the output of go test -json.
use strict;
$| = 1;
my (%wrote, %escapes);
%escapes = (n => "\n", t => "\t", r => "\r", b => "\b", f => "\f");
while (my $line = <STDIN>) {
	my ($action) = $line =~ /^\{.*?"Action":"([a-z-]+)"/;
	my ($package) = $line =~ /"Package":"([^"]*)"/;
	my ($text) = $line =~ /"Output":"((?:[^"\\]|\\.)*)"/;
	if (defined $text) {
		$text =~ s/\\(?:u([0-9a-f]{4})|(.))/defined $1 ? unicode($1) : $escapes{$2} || $2/ge;
	}
	if (!defined $action) { # go's own words
		print $line;
	} elsif (!defined $package) { # of a build
		print $text if defined $text;
	} else {
		$wrote{$package} .= $text if defined $text;
		print delete $wrote{$package} if $action =~ /^(pass|fail|skip)$/ && $line !~ /"Test":/;
	}
}
print values %wrote; # of what was killed

sub unicode {
	my $c = chr hex shift;
	utf8::encode($c);
	return $c;
}
