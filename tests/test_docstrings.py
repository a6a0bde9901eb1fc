"""Every public name has a docstring that follows numpydoc, lists what the name takes and holds, and
whose examples run.
"""

import doctest
import inspect
from enum import Enum
from functools import cached_property
from types import FunctionType

import pytest
from numpydoc.docscrape import get_doc_object
from numpydoc.validate import validate
from sklearn.base import BaseEstimator
from sklearn.datasets import load_iris

import bigfs
import bigfs.result
from bigfs import storage

PACKAGES = "bigfs."
PUBLIC = {f"bigfs.{name}": getattr(bigfs, name) for name in bigfs.__all__}
PUBLIC |= {f"bigfs.storage.{name}": getattr(storage, name) for name in storage.__all__}
RESULTS = ("Result", "Status", "NotConvergedWarning", "observe", "iterate")
PUBLIC |= {f"bigfs.result.{name}": getattr(bigfs.result, name) for name in RESULTS}
PUBLIC |= {f"bigfs.plot.{name}": getattr(bigfs.plot, name) for name in bigfs.plot.__all__}
SELECTORS = {
    name: value
    for name, value in PUBLIC.items()
    if inspect.isclass(value) and issubclass(value, BaseEstimator)
}

# Checks of numpydoc that do not apply. The first five are scikit-learn's exceptions too.
EXCLUDED = {
    "GL01": "the summary stands in the line of the opening quotes",
    "GL02": "a docstring of one line closes its quotes there",
    "RT02": "a returned value may have a name",
    "ES01": "one sentence may say everything",
    "SA01": "a name may stand alone; the names of one task refer to one another",
}
EXCLUDED_OF_METHODS = {
    "EX01": "the example of the class shows its methods",
}
EXCLUDED_OF_PROPERTIES = EXCLUDED_OF_METHODS | {
    "RT01": "the sentence on a property says what it is",
}
EXCLUDED_OF_FLOWS = {
    "EX01": "a flow needs a Prefect server; tests/flows runs both",
}


def defined_here(owner, kinds, code_of):
    """The public members of a class, of some kinds, that these packages define."""
    for name in dir(owner):
        member = inspect.getattr_static(owner, name)
        if not name.startswith("_") and isinstance(member, kinds):
            code = code_of(member)
            if code.__module__.startswith(PACKAGES):
                yield name, code


CLASSES = {name: value for name, value in PUBLIC.items() if inspect.isclass(value)}
METHODS = {
    f"{owner}.{name}": code
    for owner, value in CLASSES.items()
    for name, code in defined_here(
        value, (FunctionType, classmethod), lambda member: getattr(member, "__func__", member)
    )
}
PROPERTIES = {
    f"{owner}.{name}": code
    for owner, value in CLASSES.items()
    for name, code in defined_here(
        value,
        (property, cached_property),
        lambda member: member.fget if isinstance(member, property) else member.func,
    )
}
CALLABLES = PUBLIC | METHODS


def signature_is_inherited(value):
    """Whether a class takes what Python's exceptions and enumerations take."""
    return inspect.isclass(value) and issubclass(value, BaseException | Enum)


def faults(value, excluded):
    """The lines of numpydoc's validation that count."""
    if signature_is_inherited(value):
        excluded = {*excluded, "PR01"}
    errors = validate(get_doc_object(value))["errors"]
    return [f"{code}: {text}" for code, text in errors if code not in excluded]


@pytest.mark.parametrize("name", PUBLIC)
def test_public_name_follows_numpydoc(name):
    excluded = EXCLUDED | (EXCLUDED_OF_FLOWS if name.startswith("bigfs.flows.") else {})
    if name == "bigfs.result.iterate":
        excluded = excluded | EXCLUDED_OF_METHODS
    assert not faults(PUBLIC[name], excluded)


@pytest.mark.parametrize("name", METHODS)
def test_public_method_follows_numpydoc(name):
    assert not faults(METHODS[name], EXCLUDED | EXCLUDED_OF_METHODS)


@pytest.mark.parametrize("name", PROPERTIES)
def test_public_property_follows_numpydoc(name):
    assert not faults(PROPERTIES[name], EXCLUDED | EXCLUDED_OF_PROPERTIES)


@pytest.mark.parametrize("name", CALLABLES)
def test_documented_parameters_are_those_of_the_signature(name):
    value = CALLABLES[name]
    if signature_is_inherited(value):
        assert not get_doc_object(value)["Parameters"]
        return
    taken = [
        p for p in inspect.signature(value).parameters.values() if p.name not in ("self", "cls")
    ]
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    documented = {p.name: p.type for p in get_doc_object(value)["Parameters"]}
    assert list(documented) == [stars.get(p.kind, "") + p.name for p in taken]
    without = [
        p.name
        for p in taken
        if p.kind not in stars
        and (p.default is not inspect.Parameter.empty)
        != ("default=" in documented[p.name] or documented[p.name] == "Ignored")
    ]
    assert not without


@pytest.mark.parametrize("name", SELECTORS)
def test_selector_documents_the_default_of_every_parameter(name):
    documented = {p.name: p.type for p in get_doc_object(SELECTORS[name])["Parameters"]}
    for key, value in SELECTORS[name]().get_params().items():
        written = documented[key].partition("default=")[2]
        assert eval(written, {}) == value, key


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore::bigfs.selectors.sparge.cross_validation.EndOfGridWarning")
@pytest.mark.parametrize("name", SELECTORS)
def test_selector_documents_every_fitted_attribute(name):
    X, y = load_iris(return_X_y=True, as_frame=True)
    y = y.clip(upper=1) if name.endswith("TScore") else y  # it compares two classes
    parameters: dict[str, object] = {}
    if "JGSC" in name:
        parameters["dictionary"] = X.to_numpy()[::30]
    if name.endswith("SparGECV"):  # without them there are no losses
        parameters["gammas"] = [0.1, 1.0]
    if not name.endswith("SelectorCV"):  # it chooses the number by itself
        parameters["n_features_to_select"] = 2
    selector = SELECTORS[name](**parameters).fit(X, y)
    fitted = {key for key in vars(selector) if key.endswith("_") and not key.startswith("_")}
    documented = {a.name for a in get_doc_object(SELECTORS[name])["Attributes"]}
    assert documented >= fitted
    assert documented - fitted == set()


@pytest.mark.slow
@pytest.mark.parametrize("name", CALLABLES)
def test_docstring_examples_run(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    value = CALLABLES[name]
    examples = doctest.DocTestParser().get_doctest(inspect.getdoc(value), {}, name, None, None)
    assert doctest.DocTestRunner().run(examples).failed == 0
    assert {path.name for path in tmp_path.iterdir()} <= {".bigfs"}  # where stores go by default
