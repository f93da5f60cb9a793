# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors

# shellcheck shell=bash
#
# Builds for arm64 on a machine of another kind: Debian's cross compiler, and a root with arm64's libraries. The root is made
# of packages that are fetched and unpacked, so nothing of this machine's package state changes, and nobody has to be root.
# Sourced, after packages.sh and build.sh.

weftArm64Root() { echo "$1/build-arm64-root"; } # TOP

weftArm64Names() { weftArm64Libraries | cut -d ' ' -f 1; }

# weftArm64AptFolder FOLDER MIRROR RELEASE: what an apt needs that knows arm64 only and no package that is installed.
weftArm64AptFolder() {
  mkdir -p "$1/lists/partial" "$1/cache/archives/partial"
  : >"$1/status"
  echo "deb $2 $3 main" >"$1/sources.list"
  cat >"$1/apt.conf" <<SETTINGS
APT::Architecture "arm64";
APT::Architectures { "arm64"; };
APT::Sandbox::User "$(id -un)";
Debug::NoLocking "1";
Dir::Cache "$1/cache";
Dir::Etc::SourceList "$1/sources.list";
Dir::Etc::SourceParts "-";
Dir::State::Lists "$1/lists";
Dir::State::extended_states "$1/extended_states";
Dir::State::status "$1/status";
pkgCacheGen::ForceEssential "none";
pkgCacheGen::ForceImportant "none";
SETTINGS
}

# weftUnpack ROOT PACKAGE...: /lib and the like become a part of /usr, whether the packages know that or not. Links that begin
# at / begin at the root.
weftUnpack() {
  local root=$1 name package link
  shift
  for name in bin lib sbin; do mkdir -p "$root/usr/$name" && ln -s "usr/$name" "$root/$name" || return 1; done
  for package in "$@"; do
    dpkg-deb --fsys-tarfile "$package" | tar --extract --keep-directory-symlink --directory="$root" || return 1
  done
  while read -r link; do
    ln -sfn "$(realpath -ms --relative-to="${link%/*}" "$root$(readlink "$link")")" "$link" || return 1
  done < <(find "$root" -type l -lname '/*')
}

# weftMakeArm64Root ROOT: nothing is left of one that was not finished.
weftMakeArm64Root() {
  local work=$1.unfinished from release names
  from=$(weftMirror) || return 1
  release=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
  mapfile -t names < <(weftArm64Names)
  echo "== makes a root of arm64's libraries in $1: 30 MiB of packages from $from"
  rm -rf "$work"
  weftArm64AptFolder "$work/apt" "$from" "$release" || return 1
  APT_CONFIG=$work/apt/apt.conf apt-get update -q || return 1
  APT_CONFIG=$work/apt/apt.conf apt-get install -qq -y --no-install-recommends --download-only "${names[@]}" || return 1
  weftUnpack "$work/tree" "$work"/apt/cache/archives/*.deb || return 1
  weftArm64Names >"$work/tree/packages"
  rm -rf "$1"
  mv "$work/tree" "$1" && rm -rf "$work"
}

# weftHaveArm64Root TOP: makes the root unless it is there with all that is wanted. One caller at a time; others wait.
weftHaveArm64Root() {
  local root lock status=0
  root=$(weftArm64Root "$1")
  mkdir -p "$1/.cache"
  exec {lock}>"$1/.cache/${root##*/}.lock"
  flock --timeout 1800 "$lock" || { echo "error: another run has been making $root for half an hour" >&2; return 1; }
  if [[ $(cat "$root/packages" 2>/dev/null) != "$(weftArm64Names)" ]]; then
    weftMakeArm64Root "$root" || { rm -rf "$root.unfinished"; echo "error: arm64's libraries could not be had, see above" >&2; status=1; }
  fi
  exec {lock}>&-
  return "$status"
}

# weftArm64CrossFile TOP: prints what Meson wants to know.
weftArm64CrossFile() {
  local root tool cache=''
  root=$(weftArm64Root "$1")
  ! command -v ccache >/dev/null || cache="'ccache', "
  echo '[binaries]'
  echo "c = [$cache'aarch64-linux-gnu-gcc', '--sysroot=$root']"
  echo "cpp = [$cache'aarch64-linux-gnu-g++', '--sysroot=$root']"
  for tool in ar nm objcopy readelf strip; do echo "$tool = 'aarch64-linux-gnu-$tool'"; done
  cat <<SETTINGS
pkg-config = 'pkg-config'
pkgconfig = 'pkg-config' # as Meson before 1.3 calls it
exe_wrapper = '$1/scripts/lib/arm64_run'

[properties]
needs_exe_wrapper = true
sys_root = '$root'
pkg_config_libdir = ['$root/usr/lib/aarch64-linux-gnu/pkgconfig', '$root/usr/lib/pkgconfig', '$root/usr/share/pkgconfig']

[host_machine]
system = 'linux'
cpu_family = 'aarch64'
cpu = 'aarch64'
endian = 'little'
SETTINGS
}

# weftConfigureArm64 TOP BUILD [meson options...]: as weftConfigureRelease. What CC and the like name compiles for this machine.
weftConfigureArm64() (
  unset CC CXX CFLAGS CXXFLAGS CPPFLAGS LDFLAGS
  file=$1/.cache/arm64.ini
  mkdir -p "$1/.cache"
  weftArm64CrossFile "$1" >"$file.new"
  # Meson reads that file only once.
  if [[ -n $(weftStale "$1" "$2") ]] || ! cmp -s "$file.new" "$file"; then rm -rf "$2"; fi
  mv "$file.new" "$file"
  mapfile -t options < <(weftReleaseOptions aarch64-linux-gnu-g++)
  [[ -d $2 ]] || options+=(--cross-file "$file")
  weftConfigure "$@" "${options[@]}"
)
