"""What scikit-learn makes of the rows that `gradus train` was given: tools/run-proofs compares the two.

    python3 bench/peers/tables_sklearn.py FOLDER TARGET

FOLDER has train-1.csv, test-1.csv, train-2.csv, … of tools/split-table. Prints the mean score of the parts (accuracy of classes, R2 of
numbers) for a linear model and for perceptrons of the size that `gradus train` proposes, Adam with its learning rate and batch: one
that trains for 100 passes, and one that stops early by 15 % of the rows. Features are standardised. Exit status 3: there is no
scikit-learn.
"""
import csv
import pathlib
import sys
import warnings

try:
    import numpy as np
    import sklearn
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.neural_network import MLPClassifier, MLPRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
except ImportError:
    sys.exit(3)

SAME = {"hidden_layer_sizes": (64, 64), "learning_rate_init": 0.003, "batch_size": 32, "max_iter": 100, "random_state": 1}
EARLY = {"early_stopping": True, "validation_fraction": 0.15}


def read(path, target):
    """Features [rows, columns], and the target as text."""
    with open(path, encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    features = [[float(value) for name, value in row.items() if name != target] for row in rows]
    return np.array(features), np.array([row[target] for row in rows])


def are_classes(values):
    """As `gradus train` tells: words, or few different whole numbers."""
    return not all(value.replace(".", "", 1).isdigit() for value in values) or len(set(values)) <= 10


def models(classify):
    if classify:
        return LogisticRegression(max_iter=1000), MLPClassifier(**SAME), MLPClassifier(**SAME, **EARLY)
    return Ridge(), MLPRegressor(**SAME), MLPRegressor(**SAME, **EARLY)


def score(model, train, test, classify):
    (x, y), (unseen, truth) = train, test
    if classify:
        return make_pipeline(StandardScaler(), model).fit(x, y).score(unseen, truth)
    y, truth = y.astype(float), truth.astype(float)
    mean, deviation = y.mean(), y.std()  # a perceptron's target is standardised, too
    return make_pipeline(StandardScaler(), model).fit(x, (y - mean) / deviation).score(unseen, (truth - mean) / deviation)


def main(folder, target):
    warnings.simplefilter("ignore", ConvergenceWarning)
    parts = len(list(pathlib.Path(folder).glob("train-*.csv")))
    data = [[read(f"{folder}/{kind}-{part}.csv", target) for kind in ("train", "test")] for part in range(1, parts + 1)]
    classify = are_classes(np.concatenate([data[0][0][1], data[0][1][1]]))
    for i, how in enumerate(("", "", ", stopping early")):
        scores = [score(models(classify)[i], train, test, classify) for train, test in data]
        mean = f"accuracy {100 * np.mean(scores):.2f} %" if classify else f"R2 {np.mean(scores):.4f}"
        print(f"scikit-learn {sklearn.__version__}, {type(models(classify)[i]).__name__}{how}: {mean}")


main(*sys.argv[1:])
