#!/bin/bash
# Runs inside the guest, once its services are up: the tests of tests/guest, then power off. The host shares a directory
# with the checkout and takes the results from it.
export PYTHONPATH=/home/bench/checkout:/opt/packages PYTEST_DISABLE_PLUGIN_AUTOLOAD=1
if [ ! -d /home/bench/checkout ]; then
    mkdir /home/bench/checkout
    tar -C /home/bench/checkout -xf /mnt/checkout.tar
    chown -R bench: /home/bench
fi
# QEMU's NVMe disks have a fixed model; what Amazon's say is laid over it, by the serial
while sleep 0.1; do
    for model in /sys/class/nvme/nvme*/model; do
        case $(cat "${model%model}serial" "$model" 2>/dev/null | tr -d ' \n') in
            vol*QEMU*) name='Amazon Elastic Block Store' ;;
            AWS*QEMU*) name='Amazon EC2 NVMe Instance Storage' ;;
            *) continue ;;
        esac
        echo "$name" >/run/model-"${name//[^A-Z]/}"
        mount --bind /run/model-"${name//[^A-Z]/}" "$(realpath "$model")"
    done
done 2>/dev/null &
cd /home/bench/checkout || poweroff -f
read -ra tests </mnt/tests
runuser -u bench -- sudo --preserve-env=PYTHONPATH,PYTEST_DISABLE_PLUGIN_AUTOLOAD \
    python3 -m pytest -p no:cacheprovider -v --color=no --durations=0 --confcutdir=tests/guest --junitxml=/mnt/results.xml "${tests[@]}" >/mnt/output 2>&1
echo $? >/mnt/code
sync
poweroff -f
