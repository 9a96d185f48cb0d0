#!/bin/bash
# Runs inside the guest, once its services are up: what the host has written to `command`, as a user with sudo; then
# powers off. The directory that host and guest share has the checkout, too, and takes output and exit code.
export PYTHONPATH=/home/bench/checkout:/home/bench/checkout/tests/support PYTEST_DISABLE_PLUGIN_AUTOLOAD=1
ip address add 10.0.2.15/24 dev eth0 && ip link set eth0 up # the host is 10.0.2.2; there is no way further
if [ ! -d /home/bench/checkout ]; then
    runuser -u bench -- tar -C /home/bench/checkout.part -xf /mnt/checkout.tar # it has .venv already
    mv /home/bench/checkout.part /home/bench/checkout
    sync
fi
echo 'Amazon Elastic Block Store' >/run/model-vol
echo 'Amazon EC2 NVMe Instance Storage' >/run/model-AWS
# QEMU's NVMe disks have a fixed model; what Amazon's say is laid over it, by the serial. No programs: emulated, they cost
name_disks() {
    local model serial now
    for model in /sys/class/nvme/nvme*/model; do
        read -r now <"$model" && read -r serial <"${model%model}serial" || continue
        [[ $now == QEMU* && -f /run/model-${serial:0:3} ]] && mount --bind "/run/model-${serial:0:3}" "$(realpath "$model")"
    done
} 2>/dev/null
name_disks
mkfifo /run/never
while ! read -rt 0.3 <>/run/never; do name_disks; done &
cd /home/bench/checkout || poweroff -ff
runuser -u bench -- bash /mnt/command >/mnt/output 2>&1
echo $? >/mnt/code
dmesg >/mnt/kernel
sync
poweroff -ff
