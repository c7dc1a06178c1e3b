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
    if getattr(check, "func", check).__name__ == "check_sample_weight_equivalence_on_dense_data":
        pytest.skip("it compares to 1e-7, and numbers are float32: test_a_weight_is_a_repetition")
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


def test_parameters_are_those_of_scikit_learn():
    for ours, theirs in ((MLPClassifier, neural_network.MLPClassifier), (MLPRegressor, neural_network.MLPRegressor)):
        known = theirs().get_params()
        assert all(known[name] == value for name, value in ours().get_params().items())
        assert set(known) - set(ours().get_params()) <= {"max_fun", "loss"}


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
    for wrong in ({"solver": "newton"}, {"activation": "gelu"}, {"hidden_layer_sizes": (0,)}, {"batch_size": 0}, {"max_iter": 0}):
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


def test_weights_of_rows_are_scikit_learns():
    """One update from the same weights, of all rows, weighted."""
    X, y = datasets.load_diabetes(return_X_y=True)
    X, y = X[:150] * 20, (y[:150] - y.mean()) / y.std()
    weight = np.random.default_rng(0).uniform(0, 3, 150)
    for solver in ("sgd", "adam"):
        options = dict(hidden_layer_sizes=(7,), solver=solver, alpha=0.0, learning_rate_init=0.01, max_iter=3, shuffle=False, random_state=1)
        theirs, ours, plain = neural_network.MLPRegressor(**options), MLPRegressor(**options), MLPRegressor(**options)
        ours._build = plain._build = lambda features, outputs: begun(theirs, X, y)
        ours.fit(X, y, weight)
        plain.fit(X, y)
        theirs.fit(X, y, sample_weight=weight)
        for a, b, c in zip(ours.coefs_, theirs.coefs_, plain.coefs_):
            assert np.allclose(a, b, rtol=2e-3, atol=2e-4), solver
            assert not np.allclose(a, c, rtol=1e-4, atol=1e-5)
        assert abs(ours.loss_ - theirs.loss_) < 1e-4


def test_a_weight_is_a_repetition():
    X, y = datasets.load_diabetes(return_X_y=True)
    X, y, times = X[:90] * 20, (y[:90] - y.mean()) / y.std(), np.arange(90) % 3
    options = dict(max_iter=10, random_state=0, batch_size=1000, shuffle=False, learning_rate_init=0.01, alpha=0.0)
    weighted, repeated = MLPRegressor(**options).fit(X, y, times), MLPRegressor(**options).fit(X.repeat(times, 0), y.repeat(times))
    assert np.allclose(weighted.predict(X), repeated.predict(X), atol=1e-5)


def test_rows_of_weight_zero_do_not_count():
    X, y = datasets.load_iris(return_X_y=True)
    wrong = np.where(np.arange(150) % 2, y, (y + 1) % 3)
    model = MLPClassifier(max_iter=100, learning_rate_init=0.02, random_state=0).fit(X, wrong, (np.arange(150) % 2).astype(float))
    assert model.score(X, y) > 0.9
    robust = Regressor(loss=gd.huber, max_iter=5, random_state=0).fit(X, y, np.linspace(0, 1, 150))  # any loss that is a mean
    assert np.isfinite(robust.loss_)
    with pytest.raises(ValueError, match="zero|0 for all rows"):
        MLPClassifier().fit(X, y, np.zeros(150))


def test_partial_fit_goes_on_also_after_a_pickle():
    X, y = datasets.load_digits(return_X_y=True)
    X = X / 16
    options = dict(learning_rate_init=0.01, random_state=0)
    model = MLPClassifier(**options)
    with pytest.raises(ValueError, match="classes"):
        model.partial_fit(X[:100], y[:100])
    for i in range(0, 1200, 300):
        model.partial_fit(X[i:i + 300], y[i:i + 300], classes=range(10))
    twin = pickle.loads(pickle.dumps(model))
    for one in (model, twin):
        for i in range(0, 1200, 300):
            one.partial_fit(X[i:i + 300], y[i:i + 300])
    assert all((a == b).all() for a, b in zip(model.coefs_, twin.coefs_))  # the optimizer's state, and the random numbers, too
    assert model.score(X[1200:], y[1200:]) > 0.8 and model.n_iter_ == len(model.loss_curve_) == 8 and model.t_ == 2400
    with pytest.raises(ValueError, match="not among"):
        model.partial_fit(X[:3], [0, 1, 11])
    with pytest.raises(ValueError, match="early_stopping"):
        MLPRegressor(early_stopping=True).partial_fit(X, y)


def test_warm_start_goes_on():
    X, y = datasets.load_iris(return_X_y=True)
    options = dict(learning_rate_init=0.01, random_state=0, max_iter=10, shuffle=False)
    for cls, more in ((MLPClassifier, {}), (Classifier, {"lr": 0.01})):
        given = {**options, **more}
        if cls is Classifier:
            given.pop("learning_rate_init")
        warm, once = cls(warm_start=True, **given), cls(**{**given, "max_iter": 20}).fit(X, y)
        warm.fit(X, y)
        first = warm.loss_
        warm.fit(X, y)
        assert warm.loss_ < first and warm.n_iter_ == 10 and warm.loss_ == once.loss_
    with pytest.raises(ValueError, match="warm_start"):
        warm.fit(X[:100], y[:100])


def test_lbfgs_finds_what_scikit_learns_finds():
    """A convex problem, without a hidden layer's kinks: the same minimum; and the accuracy of a network."""
    X, y = datasets.load_diabetes(return_X_y=True)
    X, y, weight = X * 20, (y - y.mean()) / y.std(), np.linspace(0.5, 2, len(y))
    options = dict(hidden_layer_sizes=(3,), activation="identity", solver="lbfgs", alpha=1.0, random_state=0, max_iter=500)
    theirs = neural_network.MLPRegressor(**options, tol=1e-7).fit(X, y, sample_weight=weight)
    ours = MLPRegressor(**options, tol=1e-7).fit(X, y, weight)
    assert np.allclose(ours.predict(X), theirs.predict(X), atol=0.02) and abs(ours.loss_ - theirs.loss_) < 1e-3
    X, X_test, y, y_test = table(datasets.load_breast_cancer)
    assert MLPClassifier(solver="lbfgs", alpha=1e-2, random_state=0).fit(X, y).score(X_test, y_test) > 0.93
    with pytest.raises(ValueError, match="partial_fit"):
        MLPRegressor(solver="lbfgs").partial_fit(X, y)
