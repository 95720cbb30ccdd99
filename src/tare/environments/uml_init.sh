#!/bin/sh
# The first process of a User-Mode Linux whose root is the host's (hostfs, read-only). It makes a
# root of its own in memory, with the host's folders in it, and ends in the guest agent.
#
# The folder that this script is in also holds program.sh and `programs`, a link to the build
# directory. The console goes to a log; the second one to whoever waits for us.
#
# From the kernel's command line:
#   tare.address=ADDR/LEN    address of the one network interface
#   tare.neighbour=ADDR,MAC  a host that it need not ask for; may be repeated

PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export PATH

fail() {
  echo "tare: init failed: $*"
  exec halt -f
}

here=${0%/*}
root=/mnt # some folder that every host has: nothing can be made on a root that is read-only
mount -t tmpfs -o mode=755 tmpfs "$root" || fail "cannot mount a root"
for path in /*; do
  case ${path#/} in
    dev | proc | run | sys | tmp | lost+found) continue ;;
  esac
  if [ -h "$path" ]; then
    ln -s "$(readlink "$path")" "$root$path"
  elif [ -d "$path" ]; then
    mkdir "$root$path"
    mount --bind "$path" "$root$path" || fail "cannot show $path"
  fi
done
cd "$root" || fail "no root"
mkdir -p dev proc programs run sys tmp
mount --bind "$here/programs/" programs || fail "cannot show the programs"
cp "$here/program.sh" program.sh || fail "cannot copy program.sh"
mount -t proc -o nosuid,nodev,noexec proc proc
mount -t sysfs -o nosuid,nodev,noexec sysfs sys
mount -t devtmpfs -o nosuid devtmpfs dev
mkdir -p dev/shm
mount -t tmpfs -o nosuid,nodev tmpfs dev/shm # shared-memory transports of DDS

ip link set lo up || fail "no loopback interface"
# The name is part of what the lab promises: DDS is restricted to it.
ip link set vec0 name eth0 || fail "no vector interface"
ip link set eth0 up || fail "cannot set eth0 up"
read -r words <proc/cmdline
for word in $words; do
  case $word in
    tare.address=*) ip address add "${word#*=}" dev eth0 || fail "cannot have the address $word" ;;
  esac
done
for word in $words; do
  case $word in
    tare.neighbour=*)
      pair=${word#*=}
      ip neigh replace "${pair%,*}" lladdr "${pair#*,}" dev eth0 nud permanent ||
        fail "cannot introduce $pair"
      ;;
  esac
done
ip route add 224.0.0.0/4 dev eth0 || fail "cannot route multicast to eth0"

# Open before anybody hears that we are ready, and raw, so that no question is lost or echoed. The
# agent would set a serial line up by itself, and flush it: so it is told that this is a virtio port.
exec 3<>dev/ttyS0 || fail "no serial line for the guest agent"
stty raw -echo <&3
echo '{"event": "ready"}' >dev/tty1
exec chroot . qemu-ga --method virtio-serial --path /dev/ttyS0 --statedir /run \
  --logfile /run/qemu-ga.log
