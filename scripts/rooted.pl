# Runs a command whose root folder, a chroot's, is the root of its mount namespace, as in a container: in a chroot no
# mount can be made private, and the kernel refuses user namespaces. To be run by: unshare --mount --propagation unchanged
use strict;
my ($bind, $detach, $private) = (0x5000, 2, 0x44000); # MS_BIND, MS_PRIVATE with MS_REC; MNT_DETACH: mount(2), umount(2)
my ($mount, $pivot_root, $umount2, $none) = (165, 155, 166, ""); # asm/unistd_64.h
opendir(my $root, "/") or die;
mkdir "/tmp/inner.$$" or die;
chroot("/tmp/inner.$$") or die "chroot: $!"; # whoever is outside of it may go up to the namespace's root
chdir($root) or die;
rmdir "tmp/inner.$$";
chdir("..") for 1 .. 64;
chroot(".") or die;
chdir($root) or die;
my $path = readlink("/proc/self/cwd") or die "no /proc outside: $!";
my ($slash, $here) = ("/", ".");
syscall($mount, $none, $slash, $none, $private, 0) == 0 or die "private: $!";
syscall($mount, $path, $path, $none, $bind, 0) == 0 or die "bind: $!";
chdir($path) && syscall($pivot_root, $here, $here) == 0 && syscall($umount2, $here, $detach) == 0 or die "pivot_root: $!";
chdir("/") && chdir(shift) && exec(@ARGV) or die "$!";
