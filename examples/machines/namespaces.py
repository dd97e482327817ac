"""Two machines in one: network namespaces, each with a network of its own, joined by a wire of a chosen rate.

    one  10.0.0.1 [ wire ]================[ wire ] 10.0.0.2  two        tc's tbf lets so many bits pass each way

They are made inside of namespaces of this program, which therefore needs no root where users may make such, and ends
with all that it has started: no network, no limit and no process is left behind, however it ends.
"""

import os
import signal
import subprocess
import sys
from shutil import which

NAMES, ADDRESSES, PORT, WIRE = ("one", "two"), ("10.0.0.1", "10.0.0.2"), 29500, "wire"
ALONE = ["unshare", "--map-root-user", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]
INSIDE = "INSIDE_NAMESPACES"


def enter():
    """Run this program once more, inside, and end with its status. Inside, make the two machines."""
    if INSIDE not in os.environ:
        check()
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # unshare ignores it; run kills it if this ends
        sys.exit(subprocess.run([*ALONE, sys.executable, *sys.argv], env=os.environ | {INSIDE: "1"}).returncode)
    do("mount -t tmpfs none /run")  # for the names of namespaces, which are this program's own
    for name in NAMES:
        do(f"ip netns add {name}")
        do(f"ip -n {name} link set lo up")
    do(f"ip link add {WIRE} netns one type veth peer name {WIRE} netns two")
    for name, address in zip(NAMES, ADDRESSES):
        do(f"ip -n {name} address add {address}/30 dev {WIRE}")
        do(f"ip -n {name} link set {WIRE} up")


def check():
    """What this machine lacks, if anything, ends the program."""
    missing = [name for name in ("unshare", "ip", "tc") if not which(name)]
    if missing:
        sys.exit(f"two machines: Linux's {', '.join(missing)} is missing (Debian: util-linux, iproute2)")
    tried = subprocess.run([*ALONE, "true"], capture_output=True, text=True)
    if tried.returncode:
        sys.exit(f"two machines: this user may make no namespaces here: {tried.stderr.strip()}")


def do(line):
    done = subprocess.run(line.split(), capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"two machines: {line}: {done.stderr.strip()}")


def limit(rate, delay=None):
    """What the wire lets pass each way, and how late, as tc writes it: "100mbit", "1ms"; None: all, at once.

    The queue holds what TCP has on its way, or packets would be lost. Delays need a kernel with netem.
    """
    for name in NAMES:
        subprocess.run(f"tc -n {name} qdisc del dev {WIRE} root".split(), stderr=subprocess.DEVNULL)  # if there is one
        if delay:
            do(f"tc -n {name} qdisc add dev {WIRE} root handle 1: netem delay {delay} limit 100000")
        if rate:
            where = "parent 1:1" if delay else "root"
            do(f"tc -n {name} qdisc add dev {WIRE} {where} tbf rate {rate} burst 256kb limit 16mb")


def start(number, *words, nodes=2, **options):
    """torchrun with ``words`` on machine 0 or 1: a subprocess.Popen. The first one hosts the rendezvous.

    Each is told which address is its own, and whether it hosts: no name leads from a namespace to itself. gloo is told
    its interface, or it would take that of the host's name.
    """
    place = ["ip", "netns", "exec", NAMES[number]]
    meet = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"{ADDRESSES[0]}:{PORT}", "--local-addr", ADDRESSES[number]]
    meet += ["--rdzv-conf", f"is_host={int(number == 0)}"]
    environment = os.environ | {"GLOO_SOCKET_IFNAME": WIRE, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen([*place, *TORCHRUN, "--nnodes", str(nodes), *meet, *words], env=environment, **options)
