"""gradus.sklearn: scikit-learn's own checks of estimators, and that they learn what scikit-learn's perceptrons learn."""
import pickle
import warnings

import pytest

pytest.importorskip("sklearn", reason="scikit-learn is not installed")
import numpy as np  # noqa: E402
from sklearn import datasets, neural_network  # noqa: E402
from sklearn.base import clone  # noqa: E402
from sklearn.exceptions import ConvergenceWarning, NotFittedError  # noqa: E402
from sklearn.model_selection import GridSearchCV, cross_val_score, train_test_split  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import StandardScaler  # noqa: E402
from sklearn.utils.estimator_checks import parametrize_with_checks  # noqa: E402

import gradus as gd  # noqa: E402
from gradus import nn, optim  # noqa: E402
from gradus.sklearn import Classifier, MLPClassifier, MLPRegressor, Regressor  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def network(features, outputs):
    return nn.Sequential(nn.Linear(features, 32), nn.GELU(), nn.Linear(32, outputs))


@parametrize_with_checks([MLPClassifier(max_iter=40, learning_rate_init=1e-2), MLPRegressor(max_iter=40, learning_rate_init=1e-2),
                          Classifier(network, max_iter=40, lr=1e-2), Regressor(network, max_iter=40, lr=1e-2)])
def test_scikit_learns_checks(estimator, check):
    check(estimator)


def table(load, scale_target=False):
    X, y = load(return_X_y=True)
    if scale_target:
        y = (y - y.mean()) / y.std()
    X, X_test, y, y_test = train_test_split(X, y, random_state=0, stratify=None if scale_target else y)
    scaler = StandardScaler().fit(X)
    return scaler.transform(X), scaler.transform(X_test), y, y_test


@pytest.mark.parametrize("load", [datasets.load_breast_cancer, datasets.load_wine])
def test_as_accurate_as_scikit_learns(load):
    X, X_test, y, y_test = table(load)
    ours, theirs = (cls(random_state=0).fit(X, y).score(X_test, y_test) for cls in (MLPClassifier, neural_network.MLPClassifier))
    assert ours >= theirs - 0.02


def test_digits():
    X, X_test, y, y_test = table(datasets.load_digits)
    assert MLPClassifier(max_iter=60, random_state=0).fit(X, y).score(X_test, y_test) > 0.95


def test_as_good_at_numbers():
    X, X_test, y, y_test = table(datasets.load_diabetes, scale_target=True)
    ours, theirs = (cls(random_state=0, max_iter=300).fit(X, y).score(X_test, y_test) for cls in (MLPRegressor, neural_network.MLPRegressor))
    assert ours >= theirs - 0.03


def test_parameters_are_those_of_scikit_learn_but_for_what_is_said():
    for ours, theirs in ((MLPClassifier, neural_network.MLPClassifier), (MLPRegressor, neural_network.MLPRegressor)):
        known = theirs().get_params()
        assert all(known[name] == value for name, value in ours().get_params().items())
        assert set(known) - set(ours().get_params()) <= {"max_fun", "warm_start", "loss"}


def test_pipelines_grid_searches_and_pickles():
    X, y = datasets.load_iris(return_X_y=True)
    search = GridSearchCV(make_pipeline(StandardScaler(), MLPClassifier(max_iter=60, learning_rate_init=0.01, random_state=0)),
                          {"mlpclassifier__alpha": [1e-4, 1e-2], "mlpclassifier__hidden_layer_sizes": [(8,), (16, 8)]}, cv=3).fit(X, y)
    assert search.best_score_ > 0.9
    again = pickle.loads(pickle.dumps(search.best_estimator_))
    assert (again.predict_proba(X) == search.best_estimator_.predict_proba(X)).all()
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    assert cross_val_score(clone(search.best_estimator_), X, names, cv=3).mean() > 0.9


def test_the_same_seed_gives_the_same_bits_and_threads_do_not_matter():
    X, y = datasets.load_iris(return_X_y=True)
    made, before = [], gd.get_threads()
    try:
        for threads in (1, 2):
            gd.set_threads(threads)
            made.append(MLPClassifier(max_iter=5, random_state=7).fit(X, y).coefs_)
    finally:
        gd.set_threads(before)
    assert all((a == b).all() for a, b in zip(*made))
    assert not (made[0][0] == MLPClassifier(max_iter=5, random_state=8).fit(X, y).coefs_[0]).all()


def test_the_penalty_and_the_first_updates_are_scikit_learns():
    """One update from the same weights, of all rows: SGD and Adam, with a large penalty."""
    X, y = datasets.load_diabetes(return_X_y=True)
    X, y = X[:150] * 20, (y[:150] - y.mean()) / y.std()
    for solver in ("sgd", "adam"):
        options = dict(hidden_layer_sizes=(7,), solver=solver, alpha=3.0, learning_rate_init=0.01, max_iter=3, shuffle=False, random_state=1)
        theirs = neural_network.MLPRegressor(**options)
        ours = MLPRegressor(**options)
        ours._build = lambda features, outputs: begun(theirs, X, y)
        ours.fit(X, y)
        theirs.fit(X, y)
        for a, b in zip(ours.coefs_ + ours.intercepts_, theirs.coefs_ + theirs.intercepts_):
            assert np.allclose(a, b, rtol=2e-3, atol=2e-4), solver


def begun(model, X, y):
    """The weights that scikit-learn begins with, as a module."""
    first = clone(model).set_params(learning_rate_init=1e-30, max_iter=1).fit(X, y)
    layers = []
    for weight, bias in zip(first.coefs_, first.intercepts_):
        layer = nn.Linear(*weight.shape)
        layer.load_state_dict({"weight": weight.astype(np.float32), "bias": bias.astype(np.float32)})
        layers += [layer, nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def test_early_stopping_keeps_the_best_weights():
    X, y = datasets.load_digits(return_X_y=True)
    model = MLPClassifier(early_stopping=True, random_state=0, n_iter_no_change=3, learning_rate_init=0.01).fit(X[:600], y[:600])
    assert len(model.validation_scores_) == model.n_iter_ < 200 and model.best_validation_score_ == max(model.validation_scores_) > 0.9


def test_it_stops_and_warns():
    X, y = datasets.load_iris(return_X_y=True)
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        MLPClassifier(max_iter=2).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = MLPClassifier(max_iter=2000, tol=1e-2, n_iter_no_change=2).fit(X, y)
    assert model.n_iter_ < 2000 and model.loss_ == model.loss_curve_[-1] and model.n_layers_ == 3


def test_learning_rates_of_sgd():
    X, y = datasets.load_iris(return_X_y=True)
    for rate in ("constant", "invscaling", "adaptive"):
        model = MLPClassifier(solver="sgd", learning_rate=rate, learning_rate_init=0.1, max_iter=150, random_state=0).fit(X, y)
        assert model.score(X, y) > (0.3 if rate == "invscaling" else 0.9)
    for wrong in ({"solver": "lbfgs"}, {"activation": "gelu"}, {"hidden_layer_sizes": (0,)}, {"batch_size": 0}, {"max_iter": 0}):
        with pytest.raises(ValueError):
            MLPClassifier(**wrong).fit(X, y)


def test_any_module_any_loss_any_optimizer():
    X, y = datasets.load_digits(return_X_y=True)

    def convolutional(features, classes):
        return nn.Sequential(nn.Lambda(lambda x: x.reshape(-1, 1, 8, 8) / 16), nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Dropout(0.2),
                             nn.Linear(8 * 36, classes))
    model = Classifier(convolutional, max_iter=15, lr=3e-3, random_state=0).fit(X[:1200], y[:1200])
    assert model.score(X[1200:], y[1200:]) > 0.88
    X, y = datasets.load_diabetes(return_X_y=True)
    X, Y = X * 20, np.stack([(y - y.mean()) / y.std(), -(y - y.mean()) / y.std()], 1)
    own = nn.Linear(10, 2)
    before = own.weight.numpy()
    robust = Regressor(own, loss=gd.huber, optimizer=lambda module: optim.Lion(module, lr=1e-2), max_iter=150, random_state=0).fit(X, Y)
    assert robust.predict(X).shape == (442, 2) and robust.score(X, Y) > 0.35 and (own.weight.numpy() == before).all()
    with pytest.raises(ValueError, match="optimizer"):
        Regressor(optimizer="newton").fit(X, Y)
    with pytest.raises(NotFittedError):
        Regressor().predict(X)
