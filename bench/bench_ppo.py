"""examples/python/ppo.py against the same program in PyTorch (peers/ppo_torch.py): steps of the environments a second, everything included.

Each run is a process of its own, on one processor. Verified: over the seeds, the mean return of the last 20 episodes is not below PyTorch's by
more than two standard errors of the difference.
"""
import pathlib
import subprocess
import sys
import time

import python_side as side

ROOT = pathlib.Path(__file__).resolve().parent.parent
SEEDS = 3 if side.QUICK else 5
STEPS = {"CartPole-v1": 100_000, "Pendulum-v1": 150_000}


def ours(name, seed, steps):
    """One run, printed as the peer does."""
    sys.path.insert(0, str(ROOT / "examples" / "python"))
    import numpy as np
    import gradus as gd
    import ppo
    gd.set_threads(1)
    begin = time.process_time()
    _, returns = ppo.train(name, seed, steps=steps)
    print(f"run {steps / (time.process_time() - begin):.1f} {np.mean(returns[-20:]):.2f}")


def run(*words):
    """(name, speed, return) of a process; None: it cannot run here."""
    done = subprocess.run([sys.executable, *map(str, words)], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode == 3:
        return None
    done.check_returncode()
    found = dict(line.split(" ", 1) for line in done.stdout.splitlines() if line.startswith(("name ", "run ")))
    return (found.get("name"), *map(float, found["run"].split()))


def main():
    side.problem.use_processors(1)
    try:
        import gymnasium  # noqa: F401
        import numpy as np
    except ImportError:
        print("ppo: skipped, there is no gymnasium (BENCH_PEERS_PYTHON)", file=sys.stderr)
        return 0
    for name, steps in STEPS.items():
        mine, theirs = [], []
        for seed in range(SEEDS):  # in turns
            mine.append(run(__file__, "--ours", name, seed, steps))
            theirs.append(run(side.PEERS / "ppo_torch.py", name, seed, steps))
            if theirs[-1] is None:
                print("ppo: skipped, there is no PyTorch (BENCH_PEERS_PYTHON)", file=sys.stderr)
                return 0
            print(f"{name}, seed {seed}: {mine[-1][1]:,.0f} steps/s, return {mine[-1][2]:.1f}; PyTorch {theirs[-1][1]:,.0f} steps/s, "
                  f"return {theirs[-1][2]:.1f}", file=sys.stderr, flush=True)
        a, b = (np.array([one[2] for one in runs]) for runs in (mine, theirs))
        error = float(np.sqrt((a.var(ddof=1) + b.var(ddof=1)) / SEEDS))
        side.print_row("ppo", f"{name}, {steps:,} steps", "steps/s", side.median([m[1] for m in mine]), side.median([t[1] for t in theirs]),
                       theirs[0][0], a.mean() >= b.mean() - 2 * error - 1e-9, more_is_better=True, clock="processor")
    return 0 if side.all_verified else 1


if sys.argv[1:2] == ["--ours"]:
    ours(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
else:
    sys.exit(main())
