"""Training gradus.sklearn's perceptrons and scikit-learn's, with the same parameters (their defaults), on three tables.

A fit ends when the loss no longer improves, as both define it alike, or after 200 passes. Verified: the mean score on the fifths held out is at least
scikit-learn's less one hundredth (accuracy), two hundredths (R^2). One thread; the faster of float32 and float64 rows is scikit-learn's.
"""
import sys
import time
import warnings

import python_side as side
from python_side import problem

problem.use_processors(1)  # before OpenBLAS and Gradus count them

try:
    import sklearn
except ImportError:
    print("sklearn: skipped, there is no scikit-learn (BENCH_PEERS_PYTHON)", file=sys.stderr)
    sys.exit(0)
import numpy as np
from sklearn import datasets, neural_network
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.preprocessing import StandardScaler

import gradus as gd
import gradus.sklearn

TABLES = {"breast cancer, 569 x 30": (datasets.load_breast_cancer, "Classifier", 0.01),
          "digits, 1,797 x 64": (datasets.load_digits, "Classifier", 0.01),
          "diabetes, 442 x 10": (datasets.load_diabetes, "Regressor", 0.02)}
FOLDS = 5


def scores_and_seconds(make, X, y, splits, dtype):
    """(mean score, (median seconds of a fit, spread))"""
    scores, seconds = [], []
    for fold, (train, test) in enumerate(splits):
        scaler = StandardScaler().fit(X[train])
        rows, held = (scaler.transform(X[part]).astype(dtype) for part in (train, test))
        model = make(random_state=fold)
        begin = time.process_time()
        model.fit(rows, y[train])
        seconds.append(time.process_time() - begin)
        scores.append(model.score(held, y[test]))
    return float(np.mean(scores)), side.median(seconds)


def main():
    gd.set_threads(1)
    warnings.simplefilter("ignore", ConvergenceWarning)
    for case, (load, kind, tolerance) in TABLES.items():
        X, y = load(return_X_y=True)
        folds = (KFold if kind == "Regressor" else StratifiedKFold)(FOLDS, shuffle=True, random_state=0)
        splits = list(folds.split(X, y)) * (1 if side.QUICK else 3)
        if kind == "Regressor":
            y = (y - y.mean()) / y.std()
        theirs, how = None, None
        for dtype in (np.float32, np.float64):
            make = getattr(neural_network, f"MLP{kind}")
            found = scores_and_seconds(make, X, y, splits, dtype)
            if theirs is None or found[1][0] < theirs[1][0]:
                theirs, how = found, np.dtype(dtype).name
        ours_make = getattr(gradus.sklearn, f"MLP{kind}")
        scores_and_seconds(lambda **options: ours_make(max_iter=2, **options), X, y, splits[:1], np.float32)  # the library loads
        ours = scores_and_seconds(ours_make, X, y, splits, np.float32)
        print(f"{case}: score {ours[0]:.4f}, scikit-learn's {theirs[0]:.4f}", file=sys.stderr)
        side.print_row("sklearn", f"fit, {case}", "ms", tuple_ms(ours[1]), tuple_ms(theirs[1]), f"scikit-learn {sklearn.__version__}",
                       ours[0] >= theirs[0] - tolerance, peer_how=how)
    sys.exit(0 if side.all_verified else 1)


def tuple_ms(timing):
    return timing[0] * 1e3, timing[1]


main()
