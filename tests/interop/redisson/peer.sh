#!/bin/sh
# Becomes the Java peer: commands on stdin, answers on stdout (PROTOCOL.md). Build it first with build.sh.
# usage: peer.sh [redisson4|redisson3]
# environment: PEER_JAVA_OPTS  more JVM options, e.g. "-Xmx1g -XX:TieredStopAtLevel=4"
#              PEER_LOG        log level on stderr: off, error, warn, info, debug; default error
here=$(cd "$(dirname "$0")" && pwd)

case ${1:-redisson4} in
  redisson4) out=$here/target ;;
  redisson3) out=$here/target-redisson3 ;;
  *) echo "peer.sh: unknown profile '$1'; use redisson4 or redisson3" >&2; exit 2 ;;
esac
if [ ! -f "$out/classes/lockson/peer/Main.class" ] || [ ! -f "$out/classpath.txt" ]; then
  echo "peer.sh: ${1:-redisson4} is not built; run $here/build.sh ${1:-redisson4}" >&2
  exit 2
fi

# exec: the JVM keeps the pid of this script, so kill -9 hits the JVM.
# DisplayVMOutputToStderr: stdout belongs to the protocol.
# shellcheck disable=SC2086
exec java -Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData -Xshare:auto \
  -XX:+DisplayVMOutputToStderr -XX:+ExitOnOutOfMemoryError \
  -Dorg.slf4j.simpleLogger.defaultLogLevel="${PEER_LOG:-error}" \
  -Dorg.slf4j.simpleLogger.showDateTime=true -Dorg.slf4j.simpleLogger.log.org.redisson.Redisson=off \
  $PEER_JAVA_OPTS \
  -cp "$out/classes:$(cat "$out/classpath.txt")" lockson.peer.Main
