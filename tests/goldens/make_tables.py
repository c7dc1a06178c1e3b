#!/usr/bin/env python3
"""Writes tests/data/*.csv and tests/goldens/tables.h: what pandas and scikit-learn make of them, for tests/test_table.c.

    python3 tests/goldens/make_tables.py

Needs pandas and scikit-learn. iris, wine and diabetes are scikit-learn's own (sklearn.datasets.load_*, diabetes unscaled);
mixed.csv is drawn here: numbers, categories, times, booleans, texts with separators, quotation marks and newlines, and
missing cells.
"""
import csv
import pathlib

import numpy as np
import pandas as pd
import sklearn
from sklearn import datasets
from sklearn.preprocessing import StandardScaler

TESTS = pathlib.Path(__file__).resolve().parent.parent
DATA = TESTS / "data"


def write_sets():
    iris = datasets.load_iris(as_frame=True)
    frame = iris.frame.copy()
    frame["species"] = iris.target_names[frame.pop("target")]
    frame.to_csv(DATA / "iris.csv", index=False)
    wine = datasets.load_wine(as_frame=True).frame
    wine.to_csv(DATA / "wine.csv", index=False)
    datasets.load_diabetes(as_frame=True, scaled=False).frame.to_csv(DATA / "diabetes.csv", index=False)


def write_mixed():
    draw = np.random.RandomState(5)
    cities = ["Bern", "Zürich", "Genève", "Basel, Stadt", "say \"Chur\"", "Thun\nam See"]
    with open(DATA / "mixed.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\r\n")
        writer.writerow(["id", "age", "city", "member", "joined", "remark", "income"])
        for i in range(80):
            age = "" if draw.uniform() < 0.15 else round(draw.uniform(18, 80), 1)
            city = "NA" if draw.uniform() < 0.1 else cities[min(5, int(draw.exponential(1.5)))]
            day = pd.Timestamp("2023-01-01") + pd.Timedelta(days=int(draw.randint(0, 700)))
            member = "yes" if draw.uniform() < 0.6 else "no"
            remark = " ".join("lorem ipsum dolor sit amet".split()[:1 + i % 5]) + f" {i}"
            writer.writerow([i, age, city, member, day.date().isoformat(), remark,
                             round(float(1000 + 30 * (age or 40) + draw.normal(0, 50)), 2)])


def encode_mixed(frame, training):
    """The features of all rows as gd_table_encoder makes them, the statistics those of the training rows."""
    columns = []
    part = frame.iloc[training]

    def standard(values):
        scaler = StandardScaler().fit(values.iloc[training].to_numpy(float)[:, None])
        return np.nan_to_num(scaler.transform(values.to_numpy(float)[:, None])[:, 0], nan=0.0)

    columns += [standard(frame.age), frame.age.isna()]
    counts = part.city.value_counts().reset_index().sort_values(["count", "city"], ascending=[False, True])
    kept = list(counts.city[:3])
    columns += [frame.city == name for name in kept]
    columns += [frame.city.notna() & ~frame.city.isin(kept), frame.city.isna()]
    columns += [standard(frame.member == "yes")]
    days = (frame.joined - pd.Timestamp("1970-01-01")) / pd.Timedelta(days=1)
    columns += [standard(days)]
    for start, length in ((0, 365.2425), (4, 7)):
        angle = 2 * np.pi * (((days - start) / length) % 1)
        columns += [np.sin(angle), np.cos(angle)]
    return kept, np.column_stack([np.asarray(c, float) for c in columns])


def c_array(name, values, type="double"):
    text = ", ".join(repr(float(v)) for v in np.ravel(values))
    lines, line = [], "   "
    for word in text.split(" "):
        if len(line) + len(word) > 96:
            lines.append(line)
            line = "   "
        line += " " + word
    return f"static const {type} {name}[] = {{\n" + "\n".join([*lines, line]) + "\n};\n"


def main():
    DATA.mkdir(exist_ok=True)
    write_sets()
    write_mixed()
    out = ["/* tests/goldens/tables.h: made by tests/goldens/make_tables.py with pandas "
           f"{pd.__version__} and\n * scikit-learn {sklearn.__version__}; do not edit. */\n"]
    for name in ("iris", "wine", "diabetes"):
        frame = pd.read_csv(DATA / f"{name}.csv")
        x = frame.iloc[:, :-1].to_numpy(float)
        scaler = StandardScaler().fit(x)
        out += [f"/* StandardScaler().fit(pd.read_csv(\"{name}.csv\").iloc[:, :-1]).transform(..), rows 0, 17 and the last */\n",
                c_array(f"golden_{name}_rows", scaler.transform(x)[[0, 17, -1]])]
    target = pd.read_csv(DATA / "diabetes.csv").target
    out += ["/* target.mean(), target.std(ddof=0) */\n",
            c_array("golden_diabetes_target", [target.mean(), target.std(ddof=0)])]
    frame = pd.read_csv(DATA / "mixed.csv", parse_dates=["joined"])
    kept, x = encode_mixed(frame, range(0, 60))
    out += ["/* pd.read_csv(\"mixed.csv\", parse_dates=[\"joined\"]); frame.isna().sum() of age and city */\n",
            c_array("golden_mixed_missing", [frame.age.isna().sum(), frame.city.isna().sum()]),
            "/* frame.city[:60].value_counts(), the first three */\n",
            "static const char *const golden_mixed_cities[] = { "
            + ", ".join('"' + k.replace("\n", "\\n").replace('"', '\\"') + '"' for k in kept) + " };\n",
            "/* rows 0 to 9 and 70 to 79, StandardScaler of the first 60 rows: encode_mixed() */\n",
            c_array("golden_mixed_rows", x[list(range(10)) + list(range(70, 80))])]
    (TESTS / "goldens/tables.h").write_text("\n".join(out), encoding="utf-8")


main()
