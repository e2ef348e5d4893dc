# The sequence "dh --with ehasm".
use strict;
use warnings;
use Debian::Debhelper::Dh_Lib;

# What dh_makeshlibs and dh_shlibdeps do for libraries is not for eh_elfs.
insert_after('dh_shlibdeps', 'dh_ehasm');

1;
