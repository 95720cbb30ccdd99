#!/bin/sh
# The workload of one guest, as the kernel's command line asks:
#   tare.address=ADDR/LEN     of the one network interface
#   tare.neighbour=ADDR,MAC   a host that it need not ask for; may be repeated
#   tare.work=WHAT            idle, web, memcached, compile, spin
#   tare.own=MIB,ALIKE,SEED   memory filled once: MiB, of them ALIKE per mille the same in every
#                             guest, the rest from SEED and in no other
#   tare.dirty=BYTES,SEED     memory rewritten at so many bytes a second
# It says "tare: ready" on the console when everything is up.
set -u
work=idle own='' dirty='' address='' neighbours=''
read -r words </proc/cmdline
for word in $words; do
  case $word in
    tare.address=*) address=${word#*=} ;;
    tare.neighbour=*) neighbours="$neighbours ${word#*=}" ;;
    tare.work=*) work=${word#*=} ;;
    tare.own=*) own=${word#*=} ;;
    tare.dirty=*) dirty=${word#*=} ;;
  esac
done

fail() {
  echo "tare: failed: $*"
  exit 1
}

for path in /sys/class/net/*; do
  [ -e "$path/device" ] && interface=${path##*/}
done
ip link set lo up
ip link set "$interface" up || fail "no network interface"
ip address add "$address" dev "$interface" || fail "cannot take the address '$address'"
for neighbour in $neighbours; do
  ip neighbour replace "${neighbour%,*}" lladdr "${neighbour#*,}" dev "$interface" nud permanent
done

# One part every ten seconds, whether or not the last is done: a load that does not slow down with the
# machine. The quota makes it an even one: under emulation a part takes a processor for two seconds,
# so two such guests leave half of their host's idle.
compile() {
  cd /srv/build || exit 1
  i=0
  while :; do
    gcc -O1 -c -o /tmp/part$i.o part$i.c &
    sleep 10
    i=$(((i + 1) % 40))
  done
}

case $work in
  idle) ;;
  web) systemctl start nginx.service || fail "nginx does not start" ;;
  memcached)
    # Not as a daemon of its own: it would be gone as soon as nothing here is waited for.
    memcached -u nobody -l 0.0.0.0 -m 160 &
    tries=0
    until ss -Hltn 'sport = :11211' | grep -q .; do
      [ $((tries += 1)) -le 300 ] || fail "memcached does not start"
      sleep 0.2
    done
    ;;
  compile)
    systemctl set-property --runtime tare-guest.service CPUQuota=25% || fail "no quota"
    compile &
    ;;
  spin) tare-memory spin & ;;
  *) fail "nobody knows the work $work" ;;
esac
if [ -n "$own" ]; then
  rest=${own#*,}
  tare-memory fill "${own%%,*}" "${rest%%,*}" "${rest#*,}" &
  while ! [ -e /run/tare-filled ]; do sleep 0.2; done
fi
if [ -n "$dirty" ]; then
  tare-memory dirty "${dirty%%,*}" "${dirty#*,}" &
fi
echo "tare: ready"
wait
