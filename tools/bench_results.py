"""What tools/run-bench and tools/bench-tables share: the results of each processor (bench/results/*.json) and what follows from them.

A file holds {"machine", "peers", "suites"}; a suite {"date", "commit", "quick", "others", "rows"}; a row is what a bench printed (see
bench/README.md) and, from settle(), perhaps "ours_threads", "peer_threads" and "stalled".
"""
import json
import math
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
TARGETS = ROOT / "bench" / "targets.json"
TABLES = ["README.md", "bench/README.md", "docs/proofs.md"]  # the pages with tables made of the results

DISAGREE = 0.25  # the spread above which samples do not agree
DISTURBED = 0.1  # processors' worth of time that other programs took
STALL = 1.5  # a peer that takes so many times its own time on one thread has stalled


def load(path):
    return json.loads(path.read_text(encoding="utf-8"))


def all_results():
    """(path, results) of each processor."""
    return [(path, load(path)) for path in sorted(RESULTS.glob("*.json"))]


def dump(path, results):
    """One row a line, so that a diff shows which changed."""
    lines = ["{", f'"machine": {json.dumps(results["machine"])},', f'"peers": {json.dumps(results["peers"])},', '"suites": {']
    suites = []
    for name in sorted(results["suites"]):
        suite = results["suites"][name]
        head = ", ".join(f'"{key}": {json.dumps(value)}' for key, value in suite.items() if key != "rows")
        rows = ",\n".join(json.dumps({k: v for k, v in row.items() if v is not None}) for row in suite["rows"])
        suites.append(f'"{name}": {{{head}, "rows": [\n{rows}]}}')
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n" + ",\n".join(suites) + "\n}}\n", encoding="utf-8")


def rows_of(results):
    return [row for suite in results["suites"].values() for row in suite["rows"]]


def is_time(row):
    return bool(row.get("clock"))


def worse(row, a, b):
    """Whether a is worse than b, by the row's metric."""
    return a < b if row["more_is_better"] else a > b


def ratio_of(row):
    if row.get("peer") is None:
        return None
    return row["ours"] / row["peer"] if row["more_is_better"] else row["peer"] / row["ours"]


def settle(rows):
    """On several threads who is slower than on one counts with that: who uses it would do so. A side that is STALL times slower, though
    it was measured again, has not run on its threads; a side whose samples disagree, though they were taken again, has not been
    measured: such a row is "stalled", and in no mean."""
    at_one = {(r["suite"], r["case"], r["metric"], r.get("peer_name")): r for r in rows if r["threads"] == 1 and is_time(r)}
    for row in rows:
        reasons = []
        one = at_one.get((row["suite"], row["case"], row["metric"], row.get("peer_name")))
        for side in ("ours", "peer"):
            who = "ours" if side == "ours" else row.get("peer_name")
            if row.get(side) is None:
                continue
            if one and row["threads"] > 1 and one.get(side) is not None and worse(row, row[side], one[side]):
                slower = one[side] / row[side] if row["more_is_better"] else row[side] / one[side]
                if slower > STALL:
                    reasons.append(f"{who} {slower:.1f} times slower on {row['threads']} threads than on 1")
                row[side], row[side + "_threads"] = one[side], 1
                row[side + "_spread"] = one.get(side + "_spread")
            if (row.get(side + "_spread") or 0) > DISAGREE:
                reasons.append(f"samples of {who} lie {100 * row[side + '_spread']:.0f} % apart")
        if row.get("ours_threads") and row.get("bound_fraction"):
            row["bound_fraction"] = None
        row["ratio"] = ratio_of(row)
        row["stalled"] = "; ".join(reasons) or None


def mean(values):
    """The geometric mean."""
    return math.exp(sum(map(math.log, values)) / len(values))


def peer_of(row):
    """The peer's name without the instruction set that it chose."""
    return (row.get("peer_name") or "").split(",")[0] if row["suite"] in ("matmul", "conv", "bf16") else row.get("peer_name") or ""


def is_measured(row):
    """Whether its samples agree. A row that stalled on its threads has a number all the same: that of one thread."""
    return not (row.get("stalled") and " apart" in row["stalled"])


def selected(rows, target):
    """The rows that a target is about. A worst one may have stalled on its threads: with those it would be worse."""
    return [row for row in rows
            if row["suite"] == target["suite"] and re.search(target["case"], row["case"])
            and target.get("threads", row["threads"]) == row["threads"]
            and re.search(target.get("peer", ""), row.get("peer_name") or "") and row.get(target["value"]) is not None
            and (is_measured(row) if target["take"] == "worst" else not row.get("stalled"))]


def judge(target, rows):
    """A verdict ("met", "missed 12 %", "not measured") and a sentence. `take` says what is held to it: the worst row, their geometric
    mean, or each row for itself. `over` names another case of the suite, by whose number that of each row is divided."""
    values = [row[target["value"]] for row in selected(rows, target)]
    if "over" in target:
        others = [row[target["value"]] for row in selected(rows, {**target, "case": target["over"]})]
        values = [value / others[0] for value in values] if others else []
    if not values:
        return "not measured", target["of"]
    upwards = "at_least" in target
    limit = target["at_least"] if upwards else target["at_most"]
    value = mean(values) if target["take"] == "mean" else min(values) if upwards else max(values)
    share = value / limit if upwards else limit / value
    missed = [v for v in values if (v < limit if upwards else v > limit)]
    text = f"{number(value, 3)}, {'at least' if upwards else 'at most'} {limit:g} wanted"
    if target["take"] == "each" and share < 1:
        text = f"{len(values) - len(missed)} of {len(values)} cases; the worst {text}"
    return "met" if share >= 1 else f"missed {100 * (1 - share):.0f} %", f"{target['of']}: {text}"


def targets():
    return json.loads(TARGETS.read_text(encoding="utf-8"))


def number(value, digits=4):
    if value is None:
        return "-"
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return str(value)
    return f"{value:.{digits}g}" if abs(value) < 10**digits else f"{value:,.0f}"


# ---- the self-test ----


def made_row(threads, ours, peer, **more):
    return {"suite": "matmul", "case": more.pop("case", "64x64x64 f32"), "threads": threads, "metric": "GFLOP/s", "more_is_better": True,
            "ours": ours, "peer": peer, "peer_name": "oneDNN", "clock": "processor", "bound_fraction": 0.5, "bound": "FMA peak", **more}


def self_test():
    """What settle() and judge() must do with rows that stalled. Returns what is wrong."""
    rows = [made_row(1, 100, 110), made_row(2, 190, 210), made_row(1, 60, 50, case="50x784x16 f32"), made_row(2, 90, 0.3, case="50x784x16 f32"),
            made_row(1, 80, 80, case="a f32"), made_row(2, 75, 79, case="a f32"),
            made_row(1, 80, 80, case="b f32", peer_spread=0.4), made_row(2, 90, 80, case="b f32")]
    settle(rows)
    target = {"of": "products", "suite": "matmul", "case": " f32$", "threads": 2, "peer": "oneDNN", "value": "ratio", "take": "mean", "at_least": 1}
    wrong = []
    if not rows[3]["stalled"] or rows[3]["peer"] != 50 or rows[3]["peer_threads"] != 1:
        wrong.append("a peer 160 times slower on two threads than on one is not stalled")
    if rows[5]["stalled"] or (rows[5]["ours"], rows[5]["peer"]) != (80, 80):
        wrong.append("a little slower on two threads: both count with one")
    if not rows[6]["stalled"] or rows[7]["stalled"]:
        wrong.append("samples that lie 40 % apart are no measurement")
    if not judge(target, [rows[1], rows[3]])[0].startswith("missed 10 %"):
        wrong.append("a stalled row meets a target")
    over = {**target, "value": "ours", "take": "worst", "case": "^50x", "over": "^64x", "threads": 1}
    if judge(over, rows) != ("missed 40 %", "products: 0.6, at least 1 wanted"):
        wrong.append(f"a row over another: {judge(over, rows)}")
    if abs(mean([2, 8]) - 4) > 1e-9:
        wrong.append("the geometric mean")
    return wrong
