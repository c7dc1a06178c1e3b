"""What the benches in Python (bench_*.py) share: rows as those of bench/measure.c, and our side of a comparison in one process.

tools/run-bench starts them with the peers' Python, which finds our package by PYTHONPATH.
"""
import json
import os
import pathlib
import platform
import re
import sys

PEERS = pathlib.Path(__file__).resolve().parent / "peers"
sys.path.insert(0, str(PEERS))
try:
    import problem
except (ImportError, SystemExit):  # it needs NumPy
    print(f"{pathlib.Path(sys.argv[0]).stem}: skipped, there is no NumPy (BENCH_PEERS_PYTHON)", file=sys.stderr)
    sys.exit(0)

QUICK = os.environ.get("BENCH_QUICK") == "1"
all_verified = True
_printed = False


def print_machine():
    import gradus as gd
    text = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8")
    model = re.search(r"^model name\s*:\s*(.*)$", text, re.M)
    print(json.dumps({"machine": {"processor": model.group(1) if model else platform.machine(), "processors": os.cpu_count(), "isa": gd.isa()}}))


def print_row(suite, case, metric, ours, peer, peer_name, verified, more_is_better=False, threads=1, peer_how=None, clock="processor"):
    """ours and peer: (median, spread)."""
    global all_verified, _printed
    if not _printed:
        print_machine()
        _printed = True
    all_verified = all_verified and verified
    ratio = ours[0] / peer[0] if more_is_better else peer[0] / ours[0]
    print(json.dumps({"suite": suite, "case": case, "threads": threads, "metric": metric, "more_is_better": more_is_better,
                      "ours": ours[0], "ours_spread": ours[1], "peer": peer[0], "peer_spread": peer[1], "peer_name": peer_name,
                      "peer_how": peer_how, "ratio": ratio, "bound_fraction": None, "bound": None, "clock": clock, "verified": bool(verified)}),
          flush=True)
    print(f"{case}, {threads} threads: {ours[0]:.4g} {metric}, {peer_name} {peer[0]:.4g}, ratio {ratio:.2f}"
          + ("" if verified else ", NOT VERIFIED"), file=sys.stderr, flush=True)


def median(samples):
    """(median, the distance of the quartiles over it)"""
    samples = sorted(samples)
    middle, last = samples[len(samples) // 2], len(samples) - 1
    return middle, (samples[3 * last // 4] - samples[last // 4]) / middle
