#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# scripts/install.sh with a bundle, on a made-up machine of an ordinary Slurm; what it does beside
# the Debian packages is in packages_test.sh. The compilers are stand-ins, as in the test of
# install_hpctl.sh (tests/slurm/hyperpod_install_test.sh).
set -euo pipefail
repo=$(realpath "$(dirname "$0")/../..")
# shellcheck source=tests/support/checks.sh
. "$repo/tests/support/checks.sh"
work=$(mktemp -d "${TMPDIR:-/tmp}/hpctl-install.XXXXXX")
trap 'rm -rf "$work"' EXIT

# A bundle with the shape of one.
made=$work/made/hpctl
mkdir -p "$made"/{bin,lib,libexec,share/hpctl/src/{slurm-plugins,common}} \
  "$made"/share/man/man{1,8} "$made"/share/completion/{bash,zsh,fish}
printf '#!/bin/sh\necho runs\n' | tee "$made"/bin/{hpctl,hpagent} >/dev/null
chmod +x "$made"/bin/*
cp "$repo"/deploy/systemd/hp{ctl-tmpfiles.conf,controller.service} "$made/share/hpctl/"
touch "$made"/share/man/{man1/hpctl.1.gz,man8/hpcontroller.8.gz} \
  "$made"/share/completion/{bash/hpctl,bash/hpagent,zsh/_hpctl,fish/hpctl.fish}
bundle=$work/made/hpctl-bundle.tar.gz
tar -C "$work/made" -czf "$bundle" hpctl

# Both compilers: what they are to write is there, and no more.
mkdir "$work/stand_ins"
# shellcheck disable=SC2016  # its words
printf '#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\necho compiled >"$2"\nchmod +x "$2"\n' |
  tee "$work"/stand_ins/{cc,c++} >/dev/null
chmod +x "$work"/stand_ins/*

root=$work/root
mkdir -p "$root"/usr/{include/slurm,lib/x86_64-linux-gnu} \
  "$root"/etc/{slurm/plugstack.conf.d,tmpfiles.d}
touch "$root"/usr/include/slurm/{spank,slurm_version}.h \
  "$root"/usr/lib/x86_64-linux-gnu/libslurm.so "$root/etc/slurm/slurm.conf"
echo 'include /etc/slurm/plugstack.conf.d/*.conf' >"$root/etc/slurm/plugstack.conf"
mkdir "$root/etc/hpctl"
echo '# ours' >"$root/etc/hpctl/hpcontroller.env"
tree() {
  (cd "$root" && find . -printf '%p %m %l ' \( -type f -exec sha256sum {} \; -o -printf '\n' \) |
    sort)
}
install() {
  HPCTL_ROOT=$root SLURM_CONF='' PATH=$work/stand_ins:$PATH outcome "$repo/scripts/install.sh" "$@"
}
before=$(tree)

told=$(install --bundle "$bundle")
check_has "a compute node" "exit 0" "$told"
check_has "the plugin is built" "built for the Slurm in $root/usr" "$told"
check "Slurm loads it" "optional $root/opt/hpctl/lib/hpctl_auto_resume.so" \
  "$(cat "$root/etc/slurm/plugstack.conf.d/hpctl.conf")"
for text in man/man1/hpctl.1.gz man/man8/hpcontroller.8.gz bash-completion/completions/hpctl \
  bash-completion/completions/hpagent \
  zsh/site-functions/_hpctl fish/vendor_completions.d/hpctl.fish; do
  check "$text" yes "$([ -e "$root/usr/local/share/$text" ] && echo yes)"
done
check "no service" "" "$(find "$root/etc" -name '*.service')"
once=$(tree)
told=$(install --bundle "$bundle")
check_has "again" "no change besides" "$told"
check "it changes nothing" "$once" "$(tree)"

told=$(install --bundle "$bundle" --controller 10.0.0.1:7300 --cluster 10.0.0.1:7300,b:7300)
check_has "a head node" "exit 0" "$told"
check "its address, beside the lines of others" "# ours
HPCTL_LISTEN=10.0.0.1:7300" "$(cat "$root/etc/hpctl/hpcontroller.env")"
check "who asks it" "HPCTL_CLUSTER=10.0.0.1:7300,b:7300" "$(cat "$root/etc/hpctl/cluster.conf")"
check_has "the unit" "ExecStart=/opt/hpctl/bin/hpcontroller --cluster" \
  "$(cat "$root/etc/systemd/system/hpcontroller.service")"
once=$(tree)
install --bundle "$bundle" --controller 10.0.0.1:7300 --cluster 10.0.0.1:7300,b:7300 >/dev/null
check "again it changes nothing" "$once" "$(tree)"
install --bundle "$bundle" --controller 10.0.0.2:7300 >/dev/null
check "another address" "# ours
HPCTL_LISTEN=10.0.0.2:7300" "$(cat "$root/etc/hpctl/hpcontroller.env")"

printf -- '-----BEGIN CERTIFICATE-----\nQQ==\n-----END CERTIFICATE-----\n' >"$work/bundle.pem"
told=$(install --bundle "$bundle" --ca "$work/bundle.pem")
check_has "by whose certificates it is known" "exit 0" "$told"
check "beside its address" "HPCTL_CLUSTER=10.0.0.1:7300,b:7300
HPCTL_CLUSTER_CA=/etc/hpctl/ca.pem" "$(cat "$root/etc/hpctl/cluster.conf")"
check "their copy" "644 $(sha256sum <"$work/bundle.pem")" \
  "$(stat -c %a "$root/etc/hpctl/ca.pem") $(sha256sum <"$root/etc/hpctl/ca.pem")"
once=$(tree)
install --bundle "$bundle" --ca "$work/bundle.pem" >/dev/null
check "again it changes nothing" "$once" "$(tree)"
check_has "no certificate" "key.pem has no certificate in it" \
  "$(cd "$work" && echo key >key.pem && install --bundle "$bundle" --ca key.pem)"

mkdir -p "$root/var/lib/hpctl/jobs"
told=$(install --uninstall)
check_has "uninstalled" "exit 0" "$told"
rmdir -p "$root"/usr/local/share/{man/man1,man/man8,bash-completion/completions} \
  "$root"/usr/local/share/{zsh/site-functions,fish/vendor_completions.d} \
  "$root"/{opt,var/lib,usr/local/bin,etc/systemd/system} 2>/dev/null || true
check "as before" "$before" "$(tree)"
check_has "again" "nothing of hpctl is installed" "$(install --uninstall)"
check_has "an address without a port" "10.0.0.1 is not ADDRESS:PORT" \
  "$(install --bundle "$bundle" --controller 10.0.0.1)"
check_has "no bundle" "exit 1" "$(install --bundle "$work/none")"
check_has "wrong usage" "exit 2" "$(install --frist)"
check "nothing of that was done" "$before" "$(tree)"
finish_checks
