#!/usr/bin/env python3
"""Writes tests/goldens/metrics.h: metrics as scikit-learn gives them, for tests/test_metrics.c.

    python3 tests/goldens/make_metrics.py > tests/goldens/metrics.h

Needs numpy and scikit-learn.
"""
import sys

import numpy as np
import sklearn
from sklearn import metrics as M
from sklearn.calibration import calibration_curve  # noqa: F401

draw = np.random.RandomState(3)
N, CLASSES = 60, 6
truth = draw.randint(0, 4, N)  # 4 is predicted, never true; 5 is neither
logits = draw.uniform(-2, 2, (N, CLASSES))
logits[np.arange(N), truth] += 1.5
logits[:, 5] = -9
logits = np.round(logits, 4)
assert all(len(set(row)) == CLASSES for row in logits.tolist())  # of equals scikit-learn takes the last, we the first
predicted = logits.argmax(1)
score = np.round(draw.uniform(0, 1, N), 1)  # with ties
positive = (draw.uniform(0, 1, N) < 0.3 + 0.4 * score).astype(int)
x = np.round(draw.uniform(-3, 3, N), 2)
y = np.round(x + draw.normal(0, 0.5, N), 2)

VALUES = {
    "accuracy": "M.accuracy_score(truth, predicted)",
    "macro_precision": "M.precision_score(truth, predicted, average='macro', zero_division=0)",
    "macro_recall": "M.recall_score(truth, predicted, average='macro', zero_division=0)",
    "macro_f1": "M.f1_score(truth, predicted, average='macro', zero_division=0)",
    "weighted_precision": "M.precision_score(truth, predicted, average='weighted', zero_division=0)",
    "weighted_recall": "M.recall_score(truth, predicted, average='weighted', zero_division=0)",
    "weighted_f1": "M.f1_score(truth, predicted, average='weighted', zero_division=0)",
    "precision_2": "M.precision_score(truth, predicted, average=None, zero_division=0)[2]",
    "recall_2": "M.recall_score(truth, predicted, average=None, zero_division=0)[2]",
    "f1_2": "M.f1_score(truth, predicted, average=None, zero_division=0)[2]",
    "top_2": "M.top_k_accuracy_score(truth, logits, k=2, labels=range(6))",
    "top_3": "M.top_k_accuracy_score(truth, logits, k=3, labels=range(6))",
    "auc": "M.roc_auc_score(positive, score)",
    "average_precision": "M.average_precision_score(positive, score)",
    "mae": "M.mean_absolute_error(y, x)",
    "mse": "M.mean_squared_error(y, x)",
    "rmse": "M.root_mean_squared_error(y, x)",
    "r2": "M.r2_score(y, x)",
}

ARRAYS = {
    ("roc_x", "roc_y", "roc_at"): "M.roc_curve(positive, np.float32(score), drop_intermediate=False)",
    ("precision", "recall", "recall_at"): "M.precision_recall_curve(positive, np.float32(score))",
    ("observed", "predicted_mean"): "calibration_curve(positive, np.float32(score).astype(float), n_bins=7)",
}


def array(kind, name, values, form):
    print(f"static const {kind} {name}[] = {{ {', '.join(form.format(v) for v in np.asarray(values).flatten().tolist())} }};")


def main():
    print(f"/* tests/goldens/metrics.h: made by tests/goldens/make_metrics.py with scikit-learn {sklearn.__version__}. */")
    print(f"// clang-format off\nenum {{ SAMPLES = {N}, CLASSES = {CLASSES} }};")
    array("int64_t", "truth", truth, "{}")
    array("float", "logits", logits, "{:#.6g}f")
    array("float", "score", score, "{:#.2g}f")
    array("int64_t", "positive", positive, "{}")
    array("float", "predictions", x, "{:#.3g}f")
    array("float", "values", y, "{:#.3g}f")
    array("int64_t", "confusions", M.confusion_matrix(truth, predicted, labels=range(CLASSES)), "{}")
    for name, call in VALUES.items():
        print(f"#define GOLDEN_{name} {eval(call):.17g} /* {call} */")
    for names, call in ARRAYS.items():
        print(f"/* {call} */")
        for name, values in zip(names, eval(call)):
            array("double", f"golden_{name}", ["INFINITY" if v == np.inf else f"{v:.17g}" for v in values], "{}")
    print("// clang-format on")


if __name__ == "__main__":
    sys.exit(main())
