#!/bin/sh
# Makes an ordinary Debian into the guest of the migration workload; runs inside the new system,
# with what it needs in /tare. What is made here is the same in every guest: the image's content.
set -eu

# An initrd of what this machine has, and no more: under emulation unpacking it costs seconds.
cat >/etc/initramfs-tools/conf.d/tare <<'END'
MODULES=list
COMPRESS=lz4
END
printf '%s\n' virtio_pci virtio_blk virtio_net ext4 >>/etc/initramfs-tools/modules
update-initramfs -u -k all

gcc -O2 -o /usr/local/bin/tare-memory /tare/memory.c
install -m 755 /tare/debian-start.sh /usr/local/sbin/tare-guest
cat >/etc/systemd/system/tare-guest.service <<'END'
[Unit]
Description=The workload that the kernel's command line names
[Service]
ExecStart=/usr/local/sbin/tare-guest
StandardOutput=tty
StandardError=tty
TTYPath=/dev/ttyS0
[Install]
WantedBy=multi-user.target
END
systemctl enable tare-guest.service
# What would run by the clock, and differ from guest to guest by when it does, and what nobody here
# logs in to.
systemctl disable nginx.service memcached.service
systemctl mask apt-daily.timer apt-daily-upgrade.timer fstrim.timer e2scrub_all.timer \
  systemd-timesyncd.service serial-getty@ttyS0.service getty@tty1.service
printf 'tare-guest\n' >/etc/hostname
printf '/dev/vda / ext4 noatime 0 1\n' >/etc/fstab

# A site of 16 MiB that does not compress, as pictures do not, and the pages that refer to them.
mkdir -p /srv/www
i=0
while [ $i -lt 64 ]; do
  tare-memory content $i 262144 >/srv/www/$i.jpg
  i=$((i + 1))
done
cat >/etc/nginx/sites-enabled/default <<'END'
server {
  listen 80 default_server;
  root /srv/www;
  access_log /var/log/nginx/access.log;
}
END

# A program of 40 files for the compile job.
mkdir -p /srv/build
i=0
while [ $i -lt 40 ]; do
  {
    printf '#include <math.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n'
    j=0
    while [ $j -lt 20 ]; do
      printf 'int f_%d_%d(int n, char *s)\n{\n' $i $j
      printf '  int sum = %d;\n  for (int k = 0; k < n; ++k)\n' $((i * j))
      printf '    sum += strlen(s) * k %% %d;\n' $((i + j + 2))
      printf '  if (sum > %d)\n    printf("%%d %%s\\n", sum, s);\n  return sum;\n}\n' $((i * 100 + j))
      j=$((j + 1))
    done
  } >/srv/build/part$i.c
  i=$((i + 1))
done
rm -rf /tare /var/lib/apt/lists/* /var/cache/apt/*.bin
