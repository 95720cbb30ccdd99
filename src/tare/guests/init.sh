#!/bin/sh
# The first process of a guest. It ends in the guest agent, through which everything else is asked.
#
# From the kernel's command line:
#   tare.probe               only show that this kernel boots, then power off
#   tare.address=ADDR/LEN    address of the one network interface
#   tare.neighbour=ADDR,MAC  a host that it need not ask for; may be repeated

say() {
  echo "tare: $*"
}

fail() {
  say "init failed: $*"
  poweroff -f
}

mount -t proc -o nosuid,nodev,noexec proc /proc
mount -t sysfs -o nosuid,nodev,noexec sysfs /sys
mount -t devtmpfs -o nosuid devtmpfs /dev
mkdir -p /dev/shm /tmp /run /var/run
mount -t tmpfs -o nosuid,nodev tmpfs /dev/shm # shared-memory transports of DDS
say "kernel $(uname -r) is up"

address=
neighbours=
read -r words </proc/cmdline
for word in $words; do
  case $word in
    tare.probe) poweroff -f ;;
    tare.address=*) address=${word#*=} ;;
    tare.neighbour=*) neighbours="$neighbours ${word#*=}" ;;
  esac
done

# Numbered in the order in which they must go in: there is no depmod here.
for module in /modules/*.ko; do
  insmod "$module" || fail "cannot load $module"
done

ip link set lo up || fail "no loopback interface"
interface=
for path in /sys/class/net/*; do
  [ -e "$path/device" ] && interface=${path##*/}
done
[ -n "$interface" ] || fail "virtio-net gave no interface"
# The name is part of what the lab promises: DDS is restricted to it.
[ "$interface" = eth0 ] || ip link set "$interface" name eth0 || fail "cannot rename $interface"
ip link set eth0 up || fail "cannot set eth0 up"
ip address add "$address" dev eth0 || fail "cannot give eth0 the address '$address'"
for neighbour in $neighbours; do
  arp -s "${neighbour%,*}" "${neighbour#*,}" || fail "cannot introduce $neighbour"
done
ip route add 224.0.0.0/4 dev eth0 || fail "cannot route multicast to eth0"
# The kernel counts it as running up to a second after it is up (linkwatch). Fast DDS passes over one
# that does not run, and then nobody finds it.
said=
while read -r state </sys/class/net/eth0/operstate && [ "$state" = down ]; do
  [ -n "$said" ] || say "eth0 does not run yet"
  said=1
  sleep 0.02
done

# Without udev a port is known by its number alone.
for port in /dev/vport*p1; do
  [ -c "$port" ] || fail "virtio-serial gave no port"
  say "ready"
  qemu-ga --method virtio-serial --path "$port" --statedir /run --logfile /run/qemu-ga.log
  fail "the guest agent ended: $(tail -n 3 /run/qemu-ga.log)"
done
