"""What tools/run-bench and tools/run-proofs share: what was measured, on what, and what else the machine did meanwhile."""
import os
import pathlib
import re
import resource
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent


def cpu_text():
    return pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8") if os.path.exists("/proc/cpuinfo") else ""


def processor():
    """As its maker calls it."""
    name = re.search(r"^model name\s*:\s*(.*)$", cpu_text(), re.M)
    return re.sub(r"\((R|TM)\)", "", name.group(1)) if name else os.uname().machine


def commit(*results):
    """The commit that is checked out. Files of results, which are not committed yet, do not change what was measured."""
    ask = lambda *words: subprocess.run(["git", *words], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False).stdout.strip()
    changed = ask("status", "--porcelain", "--untracked-files=no", "--", ".", *(f":!{path}" for path in results))
    return ask("rev-parse", "--short", "HEAD") + (" with changes" if changed else "")


class Others:
    """How many processors' worth of time other programs took while this runs, and the host of a virtual machine."""

    def __init__(self):
        self.begin, self.busy, self.own = time.monotonic(), self.busy_now(), self.own_now()

    @staticmethod
    def busy_now():
        if not os.path.exists("/proc/stat"):
            return 0.0
        user, nice, system, _, _, irq, soft, steal = map(int, pathlib.Path("/proc/stat").read_text(encoding="ascii").split()[1:9])
        return (user + nice + system + irq + soft + steal) / os.sysconf("SC_CLK_TCK")

    @staticmethod
    def own_now():
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return children.ru_utime + children.ru_stime + time.process_time()

    def share(self):
        taken = self.busy_now() - self.busy - (self.own_now() - self.own)
        return round(max(0.0, taken) / (time.monotonic() - self.begin), 2)
