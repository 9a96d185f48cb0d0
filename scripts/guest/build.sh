#!/usr/bin/env bash
# Makes .cache/guest/: the kernel, its initrd and the disk image of a Debian guest with systemd and the checkout's
# packages. Does nothing when the image was built of this very file and these packages.
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"

SUITE=bookworm # its Python is 3.11, so a .venv of 3.11 can be copied in
PACKAGES=systemd-sysv,udev,dbus,sudo,python3,fio,xfsprogs,e2fsprogs,mdadm,lvm2,nfs-kernel-server,nfs-common
PACKAGES+=,linux-image-amd64,kmod,iproute2,procps,gdisk
folder=$ROOT/.cache/guest
site=$("$VENV/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
stamp=$(cat "${BASH_SOURCE[0]}" <(ls "$site") | sha256sum)

[ "$(cat "$folder/stamp" 2>/dev/null)" != "$stamp" ] || exit 0
"$VENV/bin/python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' ||
    { complain "the guest's Python is 3.11 and .venv has another: PYTHON=python3.11 make setup"; exit "$EXIT_SETUP"; }
root=$folder/root
rm -rf "$root" "$folder/stamp"
mkdir -p "$folder/packages"
debootstrap --variant=minbase --cache-dir="$folder/packages" --include="$PACKAGES" "$SUITE" "$root" \
    >"$folder/debootstrap.log" ||
    { complain "debootstrap failed; its last words are in $folder/debootstrap.log"; exit "$EXIT_SETUP"; }
chroot "$root" useradd --create-home --shell /bin/bash bench # root itself has no password
echo 'bench ALL=(ALL) NOPASSWD: ALL' >"$root/etc/sudoers.d/bench"
echo guest >"$root/etc/hostname"
printf '127.0.0.1 localhost guest\n' >"$root/etc/hosts"
echo '/dev/vda / ext4 defaults 0 1' >"$root/etc/fstab"
printf 'virtio_pci\nvirtio_blk\next4\n' >>"$root/etc/initramfs-tools/modules"
sed -i 's/^MODULES=.*/MODULES=list/; s/^COMPRESS=.*/COMPRESS=lz4/' "$root/etc/initramfs-tools/initramfs.conf"
chroot "$root" update-initramfs -u -k all >>"$folder/debootstrap.log" 2>&1
mkdir "$root/opt/packages"
tar -C "$site" --exclude='./mypy*' --exclude='./ruff*' --exclude='./*/tests' --exclude='./pip' -c . |
    tar -C "$root/opt/packages" -x
cat >"$root/etc/systemd/system/guest-test.service" <<'UNIT'
[Unit]
After=multi-user.target
[Service]
Type=oneshot
ExecStart=/bin/sh -c "mount -t 9p -o trans=virtio,version=9p2000.L share /mnt && bash /mnt/inside.sh; poweroff -f"
[Install]
WantedBy=default.target
UNIT
chroot "$root" systemctl -q enable guest-test.service
chroot "$root" systemctl -q disable nfs-server.service mdmonitor.service apt-daily.timer e2scrub_reap.service 2>/dev/null || true
cp "$root"/boot/vmlinuz-* "$folder/vmlinuz"
cp "$root"/boot/initrd.img-* "$folder/initrd"
rm -rf "$root"/boot/* "$root"/var/cache/apt/archives/*.deb "$folder/disk.img"
mke2fs -q -t ext4 -d "$root" "$folder/disk.img" 6G
rm -rf "$root"
chown --reference="$ROOT" "$folder"
echo "$stamp" >"$folder/stamp"
