#!/usr/bin/env bash
# several_hosts.sh HOSTS RANKS PROGRAM ARGUMENT…
#
# Starts PROGRAM with RANKS ranks on each of HOSTS network namespaces that stand for hosts: with an
# address, a boot id and a loopback of its own each, joined by a bridge. Run it in a network
# namespace of its own (unshare -n, or unshare -Urn). SIGUSR1 cuts the last host off.
# Ends when all ranks have, with "rank R ended with STATUS" for each.
set -euo pipefail

hosts=$1
ranks=$2
shift 2
port=29500
GANTRY_RDZV_TOKEN=$(cat /proc/sys/kernel/random/uuid)
export GANTRY_RDZV_TOKEN
holders=()
pids=()

trap 'kill "${pids[@]}" "${holders[@]}" 2>/dev/null || true' EXIT
trap 'ip link set "v$((hosts - 1))" down; echo "cut off"' USR1

ip link set lo up
ip link add br0 type bridge
ip link set br0 up
for ((host = 0; host < hosts; ++host)); do
  # The sleeper keeps the namespace; it has one of its own once it runs.
  unshare -n sleep infinity >/dev/null &
  holder=$!
  holders+=("$holder")
  until [[ "$(cat "/proc/$holder/comm")" == sleep ]]; do :; done
  ip link add "v$host" type veth peer name eth0 netns "$holder"
  ip link set "v$host" master br0 up
  nsenter -t "$holder" -n ip link set lo up
  nsenter -t "$holder" -n ip addr add "10.77.0.$((host + 1))/24" dev eth0
  nsenter -t "$holder" -n ip link set eth0 up
done

for ((host = 0; host < hosts; ++host)); do
  for ((local = 0; local < ranks; ++local)); do
    RANK=$((host * ranks + local)) WORLD_SIZE=$((hosts * ranks)) \
      LOCAL_RANK=$local LOCAL_WORLD_SIZE=$ranks GROUP_RANK=$host \
      GANTRY_RDZV="tcp:10.77.0.1:$port" GANTRY_BOOT_ID="host-$host" \
      nsenter -t "${holders[$host]}" -n "$@" &
    pids+=($!)
  done
done

for ((rank = 0; rank < ${#pids[@]}; ++rank)); do
  status=0
  # A signal interrupts the wait before the rank has ended.
  while :; do
    status=0
    wait "${pids[$rank]}" || status=$?
    kill -0 "${pids[$rank]}" 2>/dev/null || break
  done
  echo "rank $rank ended with $status"
done
