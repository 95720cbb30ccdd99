#!/bin/sh
# In a guest that has a user's tree at /tree: what of it tells of the kernel, and the harmless
# devices, as `trees/merged.py` makes them for programs of the host's own kernel.

set -e
cd /tree
mount -t proc -o nosuid,nodev,noexec proc proc
mount -t sysfs -o nosuid,nodev,noexec,ro sysfs sys
mount -t tmpfs -o nosuid,mode=755,size=64k tmpfs dev
cd dev
for device in null:1:3 zero:1:5 full:1:7 random:1:8 urandom:1:9 tty:5:0; do
  numbers=${device#*:}
  mknod "${device%%:*}" c "${numbers%:*}" "${numbers#*:}"
  chmod 666 "${device%%:*}"
done
ln -s /proc/self/fd fd
ln -s /proc/self/fd/0 stdin
ln -s /proc/self/fd/1 stdout
ln -s /proc/self/fd/2 stderr
ln -s pts/ptmx ptmx
mkdir pts shm
mount -t devpts -o nosuid,noexec,newinstance,ptmxmode=0666,mode=620 devpts pts
mount -t tmpfs -o nosuid,nodev,mode=1777 tmpfs shm
