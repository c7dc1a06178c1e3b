"""What importing a package and making a first tensor costs a process: import_cost.py gradus, import_cost.py torch. Prints processor time in
milliseconds and resident memory in megabytes above the interpreter's; the least of eight processes."""
import subprocess
import sys

CODE = """
import resource, time
def resident(): return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize() / 1e6
before, begun = resident(), time.process_time()
import {0} as package
imported = time.process_time() - begun
package.ones(2) + 1
print(imported * 1e3, resident() - before)
"""

if __name__ == "__main__":
    runs = [subprocess.run([sys.executable, "-c", CODE.format(sys.argv[1])], capture_output=True, text=True, check=True).stdout.split()
            for _ in range(8)]
    print(*(f"{min(float(run[i]) for run in runs):.1f} {unit}" for i, unit in enumerate(("ms", "MB"))))
