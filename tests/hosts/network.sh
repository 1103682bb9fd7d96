# shellcheck shell=bash
# network.sh - three hosts on this one, for tests to source: network and host-name namespaces h1, h2, h3, each with an
# eth0 at 10.77.0.1 ..., joined by veth pairs to a switch. All of it is inside namespaces of the script's own, with
# their own processes: when the script ends, however it does, nothing is left, and scripts run side by side.
#
#     . tests/hosts/network.sh
#     hosts_enter "$@"                # starts the script again inside; skips (77) where that is not allowed
#     hosts_make h1 h2 h3
#     on_host h1 ping h2
#     hosts_shape 100mbit 1ms         # each host's link, both ways
#     hosts_launch openmpi 1 build/cleave generate ... -tp 3      # a process on each host
#     hosts_sent                      # prints the bytes that the hosts have sent each other
#     hosts_cut h3                    # ip link set ... down, on the switch
launch_options=()
hosts_here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

hosts_skip() {
    echo "skipped: $*"
    exit 77
}

# Root may; others where the system lets them be root of a namespace of users.
hosts_enter() {
    [ -z "${CLV_HOSTS_INSIDE:-}" ] || return 0
    local as=()
    command -v unshare nsenter ip tc >/dev/null || hosts_skip "unshare, nsenter, ip and tc (iproute2) are needed"
    [ "$(id -u)" = 0 ] || as=(--user --map-root-user)
    unshare "${as[@]}" --net --mount --uts --pid --fork true 2>/dev/null ||
        hosts_skip "namespaces cannot be made here: that takes root (CAP_SYS_ADMIN, CAP_NET_ADMIN)"
    CLV_HOSTS_INSIDE=$(mktemp -d)
    export CLV_HOSTS_INSIDE
    trap 'rm -rf "$CLV_HOSTS_INSIDE"' EXIT
    trap 'exit 1' INT TERM HUP
    unshare "${as[@]}" --net --mount --uts --pid --fork --kill-child --mount-proc -- "$BASH" "$0" "$@"
    exit $?
}

# A host is what its first process has: it sleeps.
hosts_make() {
    local i=0 host pid
    mount -t tmpfs none /dev/shm # what MPI leaves behind goes with it
    ip link set lo up
    ip link add switch type bridge 2>/dev/null || hosts_skip "the kernel has no bridge"
    ip link set switch up
    cp /etc/hosts "$CLV_HOSTS_INSIDE/names"
    for host in "$@"; do
        i=$((i + 1))
        unshare --net --uts --mount sleep infinity &
        pid=$!
        disown "$pid" # it is not the script's to wait for
        until [ "$(readlink /proc/$pid/ns/net)" != "$(readlink /proc/$$/ns/net)" ]; do sleep 0.01; done
        until [ "$(readlink /proc/$pid/ns/mnt)" != "$(readlink /proc/$$/ns/mnt)" ]; do sleep 0.01; done
        echo "$pid" >"$CLV_HOSTS_INSIDE/$host"
        ip link add "port-$host" type veth peer name eth0 netns "$pid" 2>/dev/null ||
            hosts_skip "the kernel has no veth pairs"
        ip link set "port-$host" master switch up
        on_host "$host" sh -c "hostname $host; ip link set lo up; ip addr add 10.77.0.$i/24 dev eth0;
                               ip link set eth0 up"
        echo "10.77.0.$i $host" >>"$CLV_HOSTS_INSIDE/names"
    done
    for host in "$@"; do
        on_host "$host" mount --bind "$CLV_HOSTS_INSIDE/names" /etc/hosts
        on_host "$host" mount -t tmpfs none /dev/shm
    done
    hosts=("$@")
}

on_host() { # then a command, whose first word may be anything but an option
    nsenter --target "$(cat "$CLV_HOSTS_INSIDE/$1")" --net --uts --mount --wd="$PWD" -- "${@:2}"
}

# What is cut off agent.sh does not reach either.
hosts_cut() { ip link set "port-$1" down && touch "$CLV_HOSTS_INSIDE/$1.cut"; }
# Who was not reached is looked for again at once: a host remembers for seconds that there is no way to another.
hosts_mend() {
    local host
    ip link set "port-$1" up && rm -f "$CLV_HOSTS_INSIDE/$1.cut"
    for host in "${hosts[@]}"; do
        on_host "$host" ip neigh flush dev eth0
    done
}

# All that runs on them, as when the power goes; the hosts stay.
hosts_kill() {
    local host first space process
    for host in "$@"; do
        first=$(cat "$CLV_HOSTS_INSIDE/$host")
        space=$(readlink "/proc/$first/ns/uts")
        for process in /proc/[0-9]*; do
            [ "${process#/proc/}" = "$first" ] || [ "$(readlink "$process/ns/uts" 2>/dev/null)" != "$space" ] ||
                kill -KILL "${process#/proc/}" 2>/dev/null
        done
    done
    return 0
}

# By all hosts until now, less what Ethernet (14 bytes a packet), IP (20) and TCP (20, and 12 of time stamps) put in
# front: large packets are counted before they are cut.
hosts_sent() {
    local host sum=0 bytes packets
    for host in "${hosts[@]}"; do
        read -r bytes packets < <(on_host "$host" ip -j -s link show eth0 |
            sed 's/.*"tx":{"bytes":\([0-9]*\),"packets":\([0-9]*\).*/\1 \2/')
        sum=$((sum + bytes - 66 * packets))
    done
    echo "$sum"
}

# What the kernel can shape with: "netem" delays and paces, "tbf" paces, "" nothing.
hosts_shaper() {
    local how
    for how in "netem delay 1ms" "tbf rate 1gbit burst 64kb latency 100ms"; do
        # shellcheck disable=SC2086 # words
        if tc qdisc add dev switch root $how 2>/dev/null; then
            tc qdisc del dev switch root
            echo "${how%% *}"
            return
        fi
    done
}

# hosts_shape RATE [DELAY]: every host's link, both ways; the delay where there is netem. hosts_shape off: as it was.
# RATE is Nmbit or Ngbit. A burst is what passes in a millisecond: with 4 KiB the kernel's timers let only a quarter of
# 1gbit pass.
hosts_shape() {
    local host rate=${1/off/0mbit} how
    rate=${rate/gbit/000mbit}
    how=("tbf" "rate" "$1" "burst" "$((${rate%mbit} / 8 + 4))kb" "limit" "16mb")
    if [ "$(hosts_shaper)" = netem ] && [ -n "${2:-}" ]; then
        how=("netem" "rate" "$1" "delay" "$2" "limit" "10000")
    fi
    for host in "${hosts[@]}"; do
        tc qdisc del dev "port-$host" root 2>/dev/null
        on_host "$host" tc qdisc del dev eth0 root 2>/dev/null
        [ "$1" = off ] && continue
        tc qdisc add dev "port-$host" root "${how[@]}" && on_host "$host" tc qdisc add dev eth0 root "${how[@]}" ||
            return 1
    done
    return 0
}

# What keeps an MPI to the hosts' links; else MPICH's UCX finds memory that these hosts share.
openmpi_links="--mca btl tcp,self --mca pml ob1 --mca btl_tcp_if_include eth0 --mca oob_tcp_if_include eth0"
mpich_links="-iface eth0"
export UCX_TLS=tcp,self UCX_NET_DEVICES=eth0
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

# hosts_launch MPI EACH COMMAND...: EACH processes on every host, in order, by Open MPI's or MPICH's mpirun on the
# first. Options of the launcher: the array launch_options.
hosts_launch() {
    local mpi=$1 each=$2 list
    shift 2
    list=$(printf ",%s:$each" "${hosts[@]}")
    case $mpi in
    openmpi)
        # shellcheck disable=SC2086 # words
        on_host "${hosts[0]}" mpirun.openmpi --mca plm_rsh_agent "$hosts_here/agent.sh" --host "${list:1}" \
            $openmpi_links --bind-to none "${launch_options[@]}" -np $((each * ${#hosts[@]})) "$@"
        ;;
    mpich)
        # shellcheck disable=SC2086 # words
        on_host "${hosts[0]}" mpirun.mpich -launcher ssh -launcher-exec "$hosts_here/agent.sh" -hosts "${list:1}" \
            $mpich_links "${launch_options[@]}" -np $((each * ${#hosts[@]})) "$@"
        ;;
    esac
}
