#!/usr/bin/env bash
# Boots the Debian guest under QEMU and runs the files of tests/guest in it: what this machine's kernel may lack.
#
#   GUEST_TESTS  what pytest is to run inside; default: all of tests/guest
#   GUEST_S      seconds after which the guest is ended; default 1500
#
# Exit code: pytest's, or 3 where something is missing.
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
cd "$ROOT"

missing=()
have qemu-system-x86_64 || missing+=(qemu-system-x86)
have qemu-img || missing+=(qemu-utils)
have debootstrap || missing+=(debootstrap)
if [ "${#missing[@]}" -gt 0 ]; then
    complain "the guest needs ${missing[*]}: apt-get install ${missing[*]}"
    exit "$EXIT_SETUP"
fi
folder=$ROOT/.cache/guest
as_root scripts/guest/build.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/share"
"$VENV/bin/python" -m compileall -q esrally_ebs tests/support # emulated, compiling takes minutes
tar -cf "$work/share/checkout.tar" setup.cfg pyproject.toml esrally_ebs esrally_ebs.egg-info pipelines scripts tests
cp scripts/guest/inside.sh "$work/share/"
echo "${GUEST_TESTS:-$(echo tests/guest/*.py)}" >"$work/share/tests"
qemu-img create -q -f qcow2 -F raw -b "$folder/disk.img" "$work/root.qcow2"

# KVM must not only open: some hosts refuse to run a guest, which shows within a second
accel=tcg
if [ -w /dev/kvm ]; then
    code=0
    { timeout 2 qemu-system-x86_64 -accel kvm -cpu max -m 64 -display none -S || code=$?; } >/dev/null 2>&1
    [ "$code" -ne 124 ] || accel=kvm
fi
disks=()
disk() { # NAME SIZE SERIAL: an NVMe disk that is there from the start
    truncate -s "$2" "$work/$1"
    disks+=(-drive "file=$work/$1,if=none,id=$1,format=raw,discard=unmap" -device "nvme,drive=$1,serial=$3")
}
disk a 1G vol0123456789abcdef0
disk b 1G vol0123456789abcdef1
disk store0 1G AWS00000000000000001
disk store1 1G AWS00000000000000002
disk foreign 64M vol0fedcba9876543210
say "booting the guest ($accel)"
began=$SECONDS
timeout "${GUEST_S:-1500}" qemu-system-x86_64 -accel "$accel" -cpu max -m 2048 -smp 1 \
    -display none -nodefaults -net none -serial "file:$work/console" -kernel "$folder/vmlinuz" -initrd "$folder/initrd" \
    -append "root=/dev/vda rw console=ttyS0 quiet" \
    -drive "file=$work/root.qcow2,if=virtio,format=qcow2" \
    -virtfs "local,path=$work/share,mount_tag=share,security_model=none" \
    -smbios "type=1,manufacturer=Amazon EC2" -smbios type=3,asset=i-0123456789abcdef0 \
    "${disks[@]}" || complain "the guest ended with $?"
cat "$work/share/output" 2>/dev/null || tail -30 "$work/console"
mkdir -p "$folder/results"
cp "$work/share/results.xml" "$work/console" "$folder/results/" 2>/dev/null || true
say "the guest ran for $((SECONDS - began)) s; results are in .cache/guest/results"
exit "$(cat "$work/share/code" 2>/dev/null || echo 1)"
