"""What the machine code of a product or convolution of f32 with large tiles can reach of the rate of FFMA, without a GPU: a model for
tools/check-kernels.

Looked at is the loop over tiles: the innermost one that has both FFMAs and loads from global memory. A turn of it takes each
scheduler of a multiprocessor, with W warps resident on it, the longest of

  - issue: a cycle for each instruction of each warp. An FFMA keeps its unit for 1 cycle, where a multiprocessor has 128
    lanes of f32, and for 2, where it has 64: other instructions are issued meanwhile;
  - arithmetic: those 1 or 2 cycles for each FFMA of each warp;
  - shared memory: 128 bytes a cycle for the four schedulers together. A load or store of 4, 8 or 16 bytes an item takes 1, 2 or
    4 cycles, as if no two items of a warp read the same: less is reached where they do. Conflicts of banks are not counted;
  - latency: one warp's issue and 60 cycles, of the barrier and the first loads behind it; and 800 cycles, which a load from
    global memory is taken to need, since it is stored a turn later.

The share is arithmetic over that. W comes from the registers, the shared memory and the items of a group. What it leaves out:
the memory's bandwidth, clocks, and groups that are too few to fill the device. Loads of a convolution's steps, which all
items of a warp read alike, are counted as if they did not.
"""
import collections
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

# The least share that is good, by what is multiplied and the rows and columns of a tile. Below are tiles of 16 and 32 rows, whose
# loads from shared memory the model counts double.
LARGE = 0.80  # of product_large
LEAST = {"matmul": {(128, 128): 0.78, (64, 256): 0.76}, "conv": {(128, 128): 0.70, (64, 256): 0.68}}
ITEMS = 256  # of a product's group
SCHEDULERS = 4
REGISTERS, GROUPS = 65536, 16  # of a multiprocessor
BARRIER, GLOBAL = 60, 800  # cycles
# Bytes of shared memory for groups, items, lanes of f32: CUDA C++ Programming Guide, "Compute Capabilities".
Multiprocessor = collections.namedtuple("Multiprocessor", "shared items lanes")
MULTIPROCESSORS = {"sm_80": Multiprocessor(164 << 10, 2048, 64), "sm_86": Multiprocessor(100 << 10, 1536, 128),
                   "sm_89": Multiprocessor(100 << 10, 1536, 128), "sm_90": Multiprocessor(228 << 10, 2048, 128),
                   "sm_100": Multiprocessor(228 << 10, 2048, 128), "sm_120": Multiprocessor(100 << 10, 1536, 128)}


def least_of(source):
    """The least share that is good of the text's kernel, or None: it is no product of f32, or its tile is small."""
    defined = dict(re.findall(r"^#define (\w+) (\S+)$", source, re.MULTILINE))
    if re.search(r"^KERNEL\(product_large,", source, re.MULTILINE):
        return LARGE
    if not re.search(r"^KERNEL\(product,", source, re.MULTILINE) or defined.get("T") != "float":
        return None
    down = int(defined["DOWN"])
    tile = down * int(defined["WORK_M"]), ITEMS // down * int(defined["WORK_N"])
    return LEAST[defined["PIECE"].split("_")[0]].get(tile)


def find_disassembler(build):
    """The path of nvdisasm, or None."""
    places = [*build.glob("nvrtc/lib/python3*/site-packages/nvidia/*/bin/nvdisasm"), pathlib.Path("/usr/local/cuda/bin/nvdisasm")]
    given = os.environ.get("NVDISASM") or shutil.which("nvdisasm")
    return given or next((str(place) for place in places if os.access(place, os.X_OK)), None)


def disassembled(disassembler, code):
    """The text of each function of the machine code, its name in the first line."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(code)
        file.flush()
        done = subprocess.run([disassembler, "--print-code", file.name], capture_output=True, text=True, check=True)
    return re.split(r"^\s*\.section\s+\.text\.", done.stdout, flags=re.MULTILINE)[1:]


def instructions(function):
    """[(operation, the label it branches to, or None)], and where labels are."""
    found, labels = [], {}
    for line in function.splitlines():
        label = re.match(r"\s*(\.L_\w+):", line)
        if label:
            labels[label.group(1)] = len(found)
        code = re.match(r"\s*(?:/\*[0-9a-f]+\*/)?\s+(?:@!?U?P\w+ )?\s*([A-Z][A-Z0-9_.]*)\b(.*);", line)
        if code:
            target = re.search(r"`\((\.L_\w+)\)", code.group(2)) if code.group(1).startswith("BRA") else None
            found.append((code.group(1), target.group(1) if target else None))
    return found, labels


def loop_over_tiles(function):
    """The operations of the innermost loop with FFMAs and loads from global memory, and whether a loop with FFMAs is within it."""
    code, labels = instructions(function)
    loops = [(labels[target], i + 1) for i, (_, target) in enumerate(code) if target in labels and labels[target] <= i]

    def has(loop, operation):
        return any(name.split(".")[0] == operation for name, _ in code[loop[0]:loop[1]])

    fitting = [loop for loop in loops if has(loop, "FFMA") and has(loop, "LDG")]
    if not fitting:
        return None, False
    begin, end = min(fitting, key=lambda loop: loop[1] - loop[0])
    is_nested = any(begin <= b and e <= end and (b, e) != (begin, end) and has((b, e), "FFMA") for b, e in loops)
    return [name for name, _ in code[begin:end]], is_nested


def shared_cycles(operation):
    parts = operation.split(".")
    return 0 if parts[0] not in ("LDS", "STS") else 4 if "128" in parts else 2 if "64" in parts else 1


def warps_of(multiprocessor, registers, shared):
    """Of a scheduler. Registers are given 8 at a time; a group has 1 KiB of shared memory besides its own."""
    groups = min(REGISTERS // (-(-registers // 8) * 8 * ITEMS), multiprocessor.shared // (shared + 1024), multiprocessor.items // ITEMS,
                 GROUPS)
    return groups * ITEMS // 32 // SCHEDULERS


def judge(functions, arch, registers, shared, least):
    """Words on the loop, and what is wrong with it where a share of less than `least` is."""
    operations, is_nested = loop_over_tiles("\n".join(functions))
    if operations is None:
        return None, ["its machine code has no loop over tiles"]
    if is_nested:
        return None, ["the loop over a tile's steps is not unrolled"]
    multiprocessor = MULTIPROCESSORS[arch]
    count = collections.Counter(operation.split(".")[0] for operation in operations)
    wide = sum(shared_cycles(operation) == 4 and operation.startswith("LDS") for operation in operations)
    warps = warps_of(multiprocessor, registers, shared)
    arithmetic = warps * count["FFMA"] * 32 * SCHEDULERS // multiprocessor.lanes
    takes = {"issue": warps * len(operations), "shared memory": warps * SCHEDULERS * sum(map(shared_cycles, operations)),
             "latency": max(len(operations) + BARRIER, GLOBAL)}
    share = arithmetic / max(arithmetic, *takes.values())
    limits = ", ".join(f"{what} {min(1, arithmetic / cycles):.0%}" for what, cycles in takes.items())
    others = ", ".join(f"{number} {name}" for name, number in count.most_common() if name not in ("FFMA", "LDS"))
    words = (f"{share:.0%} of the rate of FFMA ({limits}); a turn is {count['FFMA']} FFMA, {count['LDS']} LDS, {wide} of them of 16 bytes, "
             f"{others}; {registers} registers, {shared} bytes, {warps * SCHEDULERS} warps")
    return words, [] if share >= least else [f"reaches {share:.0%} of the rate of FFMA, less than {least:.0%}"]
