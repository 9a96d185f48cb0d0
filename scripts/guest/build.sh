#!/usr/bin/env bash
# Makes .cache/guest/: the kernel, its initrd and the disk image of a Debian guest with systemd, Docker, the image of
# Elasticsearch and a .venv where the checkout is going to lie. Does nothing when all of that is as it was.
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
cd "$ROOT"

SUITE=bookworm # its Python is 3.11, for which the host's pip takes the packages
PACKAGES=systemd-sysv,udev,dbus,sudo,python3,python3-venv,fio,xfsprogs,e2fsprogs,mdadm,lvm2,nfs-kernel-server,nfs-common
PACKAGES+=,linux-image-amd64,kmod,iproute2,procps,gdisk,make,docker.io,apparmor,ca-certificates
SHAPES_VENV=(requirements.txt setup.cfg setup.py pyproject.toml esrally_ebs.pth)
MAKES_VENV=(scripts/venv.sh scripts/common.sh)
IMAGE_IN_GUEST=guest/elasticsearch # a name that set-up asks no registry for, and does not build
folder=$ROOT/.cache/guest
image=$("$VENV/bin/python" -c 'import os; from esrally_ebs.node import choose_image; print(choose_image(os.environ))')
stamp=$(cat "${BASH_SOURCE[0]}" "${SHAPES_VENV[@]}" "${MAKES_VENV[@]}" <(docker image inspect --format '{{.Id}}' "$image") | sha256sum)

[ "$(cat "$folder/stamp" 2>/dev/null)" != "$stamp" ] || exit 0
"$VENV/bin/python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' ||
    { complain "the guest's Python is 3.11 and .venv has another: PYTHON=python3.11 make setup"; exit "$EXIT_SETUP"; }
root=$folder/root
# What configures packages or holds images may start services: all of them end with it, and see no network.
apart() { unshare --mount --net --pid --fork --kill-child "$@"; }
logged() {
    "$@" >>"$folder/build.log" 2>&1 && return
    complain "$1 failed; its last words are in $folder/build.log"
    exit "$EXIT_SETUP"
}

rm -rf "$root" "$folder/stamp" "$folder/build.log"
mkdir -p "$folder/packages"
logged debootstrap --foreign --variant=minbase --cache-dir="$folder/packages" --include="$PACKAGES" "$SUITE" "$root"
logged apart chroot "$root" /debootstrap/debootstrap --second-stage
chroot "$root" useradd --create-home --shell /bin/bash bench # root itself has no password
echo 'bench ALL=(ALL) NOPASSWD: ALL' >"$root/etc/sudoers.d/bench"
echo guest >"$root/etc/hostname"
printf '127.0.0.1 localhost guest\n' >"$root/etc/hosts"
echo '/dev/vda / ext4 defaults 0 1' >"$root/etc/fstab"
printf 'virtio_pci\nvirtio_blk\next4\n' >>"$root/etc/initramfs-tools/modules"
sed -i 's/^MODULES=.*/MODULES=list/; s/^COMPRESS=.*/COMPRESS=lz4/' "$root/etc/initramfs-tools/initramfs.conf"
logged chroot "$root" update-initramfs -u -k all

# .venv as scripts/venv.sh makes it, at its place, from what pip has taken here; inside.sh puts the checkout around it
logged "$VENV/bin/pip" download --quiet --no-deps --require-hashes -r requirements.txt -d "$folder/wheels"
mkdir "$root/home/bench/checkout" "$root/home/bench/wheels"
cp "$folder"/wheels/* "$root/home/bench/wheels"
tar -c "${SHAPES_VENV[@]}" README.md esrally_ebs scripts | tar -C "$root/home/bench/checkout" -x
chroot "$root" chown -R bench: /home/bench
logged chroot --userspec=bench:bench "$root" env -i HOME=/home/bench PATH=/usr/bin:/bin PIP_NO_INDEX=1 \
    PIP_FIND_LINKS=/home/bench/wheels bash /home/bench/checkout/scripts/venv.sh
mkdir "$root/home/bench/checkout.part"
mv "$root/home/bench/checkout/.venv" "$root/home/bench/checkout.part"
rm -rf "$root/home/bench/checkout" "$root/home/bench/wheels"
chroot "$root" chown bench: /home/bench/checkout.part

# An engine of its own lays the image where the guest's is going to look
load='mount -t tmpfs none /run; dockerd --data-root="$0" --bridge=none --iptables=false &
until docker info; do kill -0 %1 || exit; sleep 0.2; done; docker load && docker tag "$1" "$2" && docker rmi "$1"
code=$?; kill %1; wait %1; exit $code'
docker save "$image" | logged apart bash -c "$load" "$root/var/lib/docker" "$image" "$IMAGE_IN_GUEST"
install -D -t "$root/usr/local/lib/docker/cli-plugins" \
    "$(docker info --format '{{range .ClientInfo.Plugins}}{{if eq .Name "compose"}}{{.Path}}{{end}}{{end}}')"

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
for unit in nfs-server.service mdmonitor.service apt-daily.timer e2scrub_reap.service apparmor.service docker.service docker.socket \
    containerd.service; do
    chroot "$root" systemctl -q disable "$unit" 2>/dev/null || true
done
cp "$root"/boot/vmlinuz-* "$folder/vmlinuz"
cp "$root"/boot/initrd.img-* "$folder/initrd"
rm -rf "$root"/boot/* "$root"/var/cache/apt/archives/*.deb "$folder/disk.img"
mke2fs -q -t ext4 -d "$root" "$folder/disk.img" 8G
rm -rf "$root"
chown --reference="$ROOT" "$folder"
echo "$stamp" >"$folder/stamp"
