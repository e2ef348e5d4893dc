#!/bin/bash
# Records tracepoints and probes in a virtual machine, and compares counts and stacks with perf's there:
#   bench/probes.sh [KERNEL]
# KERNEL is a vmlinuz; by default Debian's, of the package linux-image-amd64, which is downloaded and unpacked, not
# installed. Needs qemu-system-x86, busybox-static, cpio, perf, gcc and Go. Takes some minutes, as the guest is emulated.
set -eu
cd "$(dirname "$0")"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
kernel=${1:-}
if [ -z "$kernel" ]; then
	package=$(apt-cache depends linux-image-amd64 | awk '$1 == "Depends:" { print $2; exit }')
	(cd "$dir" && apt-get -qq download "$package" && dpkg-deb --fsys-tarfile ./*.deb | tar x --wildcards './boot/vmlinuz-*')
	kernel=$(echo "$dir"/boot/vmlinuz-*)
fi

root=$dir/root
mkdir -p "$root"/{bin,dev,proc,sys,tmp,root,etc}
(cd .. && CGO_ENABLED=0 go build -o "$root/bin/ehasm" ./cmd/ehasm && CGO_ENABLED=0 go test -c -o "$root/bin/bpfunwind" ./bpfunwind)
gcc -g -O1 -fomit-frame-pointer -pthread -o "$root/bin/calls" probes/calls.c
cp "$(command -v busybox)" "$root/bin/busybox"
"$root/bin/busybox" --install -s "$root/bin" && find "$root/bin" -type l -exec ln -sf busybox {} \;
perf=$(command -v perf)
ldd "$perf" | grep -q . || perf=$(echo /usr/bin/perf_*) # Debian's perf is a script
cp -L "$perf" "$root/bin/perf"
for file in "$perf" "$root/bin/calls"; do
	ldd "$file" | grep -o '/[^ ]*' | while read -r library; do
		mkdir -p "$root$(dirname "$library")" && cp -L "$library" "$root$library"
	done
done
cp probes/guest.sh "$root/init"
echo 'root:x:0:0::/root:/bin/sh
user:x:1000:1000::/tmp:/bin/sh' >"$root/etc/passwd"
(cd "$root" && find . | cpio -o -H newc --quiet | gzip -1) >"$dir/initramfs"

timeout 1200 qemu-system-x86_64 -accel tcg,thread=multi -cpu max -smp 2 -m 2G -nic none -no-reboot -display none -monitor none \
	-kernel "$kernel" -initrd "$dir/initramfs" -append 'console=ttyS0 quiet panic=-1 nokaslr' -serial "file:$dir/out"
tr -d '\r' <"$dir/out"
grep -q '^DONE' "$dir/out" && ! grep -q '^FAIL' "$dir/out"
