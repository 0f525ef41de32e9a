#!/bin/bash
# scripts/netns.sh - to be sourced: network namespaces on one bridge, for tests and benchmarks of slow and broken networks.
#
#   . scripts/netns.sh
#   netns_begin                      root only; everything is removed again when the shell ends
#   netns_add syncer                 namespace with address $(netns_address syncer), 10.77.R.N
#   netns_add a; netns_add b
#   netns_rate a 25mbit              both ways, by tbf: what leaves a and what goes to a
#   netns_rate a off
#   netns_cut a [in|out]             nothing passes, both ways or one way, by nft; packets vanish as on a dead line
#   netns_heal a
#   netns_run a COMMAND...           runs it in there
#   netns_end
#
# Latency is not made here, since small kernels have no netem: put `pelago chaos proxy` into the path. Names are letters,
# digits and -, at most 9 of them. Several shells may do this at once: names carry the shell's process number, and the
# third number of the addresses is free when it is taken.

# "1" says why this machine cannot; 0 and nothing otherwise.
netns_check() {
    local tool
    [ "$(id -u)" = 0 ] || { echo "network namespaces need root" && return 1; }
    for tool in ip tc nft; do
        command -v $tool >/dev/null || { echo "$tool is not installed (Debian: iproute2, nftables)" && return 1; }
    done
}

# The namespace, and its end of the cable on our side, of a short name.
netns_name() { echo "pl$$-$1"; }
netns_cable() { echo "v$((NETNS_ID))-$1"; }

netns_address() { echo "10.77.$NETNS_NET.${NETNS_NUMBER[$1]:?there is no namespace $1}"; }

netns_begin() {
    netns_check >&2 || return 1
    declare -gA NETNS_NUMBER=()
    NETNS_ID=$(($$ % 100000))
    NETNS_BRIDGE=plbr$NETNS_ID
    # Bridges of other shells show which networks are taken.
    local net
    for net in $(shuf -i 1-250 -n 250); do
        ip -4 -o addr show to "10.77.$net.0/24" | grep -q . || break
    done
    NETNS_NET=$net
    trap netns_end EXIT
    ip link add "$NETNS_BRIDGE" type bridge
    ip addr add "10.77.$NETNS_NET.254/24" dev "$NETNS_BRIDGE"
    ip link set "$NETNS_BRIDGE" up
}

netns_add() {
    local name=$1 ns cable
    [[ $name =~ ^[a-z0-9-]{1,9}$ ]] || { echo "netns_add: '$name' is no name of 1 to 9 letters" >&2 && return 1; }
    [ -z "${NETNS_NUMBER[$name]:-}" ] || { echo "netns_add: there is a '$name' already" >&2 && return 1; }
    ns=$(netns_name "$name") cable=$(netns_cable "$name")
    NETNS_NUMBER[$name]=$((${#NETNS_NUMBER[@]} + 1))
    ip netns add "$ns"
    ip link add "$cable" type veth peer name eth0 netns "$ns"
    ip link set "$cable" master "$NETNS_BRIDGE" up
    ip -n "$ns" addr add "$(netns_address "$name")/24" dev eth0
    ip -n "$ns" link set eth0 up
    ip -n "$ns" link set lo up
}

netns_run() {
    local name=$1
    shift
    ip netns exec "$(netns_name "$name")" "$@"
}

# A burst of 10 ms, at least two packets of 64 kB, since the kernel hands large ones down; a queue of 100 ms.
netns_rate() {
    local name=$1 rate=$2
    if [ "$rate" = off ]; then
        tc -n "$(netns_name "$name")" qdisc del dev eth0 root 2>/dev/null || true
        tc qdisc del dev "$(netns_cable "$name")" root 2>/dev/null || true
        return 0
    fi
    # Segments of one packet: otherwise a burst of 64 kB is most of what a slow line carries in its queue.
    netns_run "$name" ip link set eth0 gso_max_size 16384 gso_max_segs 8
    ip link set "$(netns_cable "$name")" gso_max_size 16384 gso_max_segs 8
    tc -n "$(netns_name "$name")" qdisc replace dev eth0 root tbf rate "$rate" burst 32kb latency 100ms
    tc qdisc replace dev "$(netns_cable "$name")" root tbf rate "$rate" burst 32kb latency 100ms
}

netns_cut() {
    local name=$1 way=${2:-both} chain
    netns_run "$name" nft add table inet pelago
    for chain in input output; do
        case $way-$chain in in-output | out-input) continue ;; esac
        netns_run "$name" nft add chain inet pelago $chain "{ type filter hook $chain priority 0; policy accept; }"
        netns_run "$name" nft add rule inet pelago $chain meta iifname != lo meta oifname != lo drop
    done
}

netns_heal() {
    netns_run "$1" nft delete table inet pelago 2>/dev/null || true
}

# Ends what still runs in the namespaces, then removes them.
netns_end() {
    local name
    [ -n "${NETNS_BRIDGE:-}" ] || return 0
    for name in "${!NETNS_NUMBER[@]}"; do
        ip netns pids "$(netns_name "$name")" 2>/dev/null | xargs -r kill -KILL 2>/dev/null || true
        ip netns del "$(netns_name "$name")" 2>/dev/null || true
        ip link del "$(netns_cable "$name")" 2>/dev/null || true
    done
    ip link del "$NETNS_BRIDGE" 2>/dev/null || true
    unset NETNS_BRIDGE
}
