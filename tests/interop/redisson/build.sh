#!/bin/sh
# Builds the Java peer if its sources are newer than the result.
# usage: build.sh [redisson4|redisson3] [maven options, e.g. -o]
set -eu
cd "$(dirname "$0")"

profile=${1:-redisson4}
[ $# -eq 0 ] || shift
case $profile in
  redisson4) out=target; maven_profile= ;;
  redisson3) out=target-redisson3; maven_profile=-Predisson3 ;;
  *) echo "build.sh: unknown profile '$profile'; use redisson4 or redisson3" >&2; exit 2 ;;
esac
for tool in java mvn flock; do
  command -v $tool >/dev/null || { echo "build.sh: '$tool' is not installed" >&2; exit 2; }
done

# Succeeds if the stamp is newer than every source and every library is still in place.
fresh() {
  [ -f "$out/built" ] && [ -f "$out/classpath.txt" ] || return 1
  [ -z "$(find pom.xml build.sh src -newer "$out/built" | head -n 1)" ] || return 1
  tr ':' '\n' <"$out/classpath.txt" | while read -r jar; do [ -f "$jar" ] || exit 1; done
}

mkdir -p "$out"
exec 9>"$out/lock"
flock 9                                       # several test runs may ask for a build at once
if fresh; then
  echo "build.sh: $profile is up to date"
  exit 0
fi

echo "build.sh: building $profile in $out"
rm -rf "$out/built" "$out/classes" "$out/maven-status"
touch "$out/started"                          # an edit during the build must count as newer
if ! mvn -B -ntp $maven_profile "$@" package >"$out/build.log" 2>&1; then
  grep -E '^\[(ERROR|WARNING)\]' "$out/build.log" >&2 || cat "$out/build.log" >&2
  echo "build.sh: Maven failed for $profile; all it said is in $PWD/$out/build.log" >&2
  exit 1
fi
mv "$out/started" "$out/built"
echo "build.sh: $profile is built"
