"""The model of a run: which columns, in which units, and the linear model on them. No pickles.

A model is a file of NumPy arrays (.npz) with a JSON header. It holds all that predicting needs: the
vocabulary and the idf of text, the names of the columns, and the coefficients.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, Self

import numpy as np
import scipy.sparse as sp

from bigfs.cards import brief
from bigfs.evaluation.linear_model import LinearModel, map_rows
from bigfs.matrix import Matrix
from bigfs.storage.errors import RunError, explain_read_errors
from bigfs.storage.lazy import pd
from bigfs.storage.messages import strip
from bigfs.storage.scaling import Scaling
from bigfs.storage.words import token_pattern
from bigfs.types import AnyArray, IntArray

VERSION = 1
LINEAR = ("classes", "coef", "intercept", "scale", "target_mean")


@dataclass(frozen=True)
class TextUnits:
    """How documents become tf-idf rows."""

    __repr__ = brief

    settings: dict[str, Any]
    terms: bytes | None
    idf: AnyArray

    @property
    def remove(self) -> Sequence[str]:
        """Parts of messages that are left out before terms are made."""
        return tuple(self.settings.get("remove") or ())

    def vectorizer(self) -> Any:
        """Return scikit-learn's `TfidfVectorizer` with this vocabulary and idf."""
        from sklearn.feature_extraction.text import TfidfVectorizer

        if self.terms is None:
            raise ValueError(
                "hashed columns have no vocabulary for scikit-learn: stage without hashing, or "
                "predict with `bigfs predict`"
            )
        terms = self.terms.decode("utf-8", "surrogatepass").split("\n")[:-1]
        vectorizer = TfidfVectorizer(
            sublinear_tf=self.settings["sublinear_tf"],
            ngram_range=tuple(self.settings.get("ngram_range", (1, 1))),
            stop_words=self.settings.get("stop_words"),
            analyzer=self.settings.get("analyzer", "word"),
            token_pattern=self.settings.get("token_pattern", token_pattern().pattern),
            strip_accents=self.settings.get("strip_accents"),
            vocabulary=terms,
        )
        vectorizer.idf_ = self.idf
        del vectorizer.vocabulary_  # made again from the list, which takes less room in a file
        return vectorizer


@dataclass(frozen=True)
class NameUnits:
    """How rows that come later are numbered by the names of their columns."""

    __repr__ = brief

    settings: dict[str, Any]  # by_name: whether rows came by names, and hashing: to how many
    # each followed by a newline. None where they are hashed, or only the chosen ones are needed
    lines: bytes | None


@dataclass(frozen=True)
class TableUnits:
    """The content of the chosen columns of a table."""

    __repr__ = brief

    numbers: dict[str, float | None]  # what takes the place of a missing one. None refuses it
    categories: dict[str, list[str]]  # the chosen ones, by columns

    @classmethod
    def of(cls, names: Sequence[str], categorical: Sequence[str], means: Any, fill: Any) -> Self:
        """Return what the features of some names hold, of a table with columns of categories."""
        numbers: dict[str, float | None] = {}
        categories: dict[str, list[str]] = {}
        for name in names:
            of = [column for column in categorical if name.startswith(f"{column}=")]
            if of:
                column = max(of, key=len)
                categories.setdefault(column, []).append(name.removeprefix(f"{column}="))
            else:
                numbers[name] = None if fill is None else means.get(name, 0.0)
        return cls(numbers, categories)

    @property
    def features(self) -> list[str]:
        """The names of the features in the order in which `transformer` gives them."""
        several = ([f"{column}={value}" for value in v] for column, v in self.categories.items())
        return [*self.numbers, *chain.from_iterable(several)]

    def require_texts(self) -> None:
        """Refuse categories that scikit-learn would read as numbers."""
        if numbers := [c for c, values in self.categories.items() if all(map(_is_number, values))]:
            raise ValueError(
                f"the categories of {numbers[0]} are numbers, which scikit-learn tells from the "
                f"texts that they were read as: predict with `bigfs predict`"
            )

    def transformer(self) -> Any:
        """Return scikit-learn's fitted transformer from a frame with the columns to the features.

        The frame may have them in any order, and other columns too.
        """
        from sklearn.compose import ColumnTransformer
        from sklearn.impute import KNNImputer
        from sklearn.preprocessing import OneHotEncoder

        self.require_texts()
        is_filled = None not in self.numbers.values()
        steps = []
        if self.numbers:
            # of one row, the means. SimpleImputer keeps a type that skops does not trust
            way = KNNImputer(n_neighbors=1) if is_filled else "passthrough"
            steps.append(("numbers", way, list(self.numbers)))
        if self.categories:
            known = [np.array(values, dtype=object) for values in self.categories.values()]
            encoder = OneHotEncoder(categories=known, handle_unknown="ignore", sparse_output=False)
            steps.append(("categories", encoder, list(self.categories)))
        row: dict[str, Any] = {
            name: [0.0 if fill is None else fill] for name, fill in self.numbers.items()
        }
        row |= {column: values[:1] for column, values in self.categories.items()}
        table = ColumnTransformer(steps, verbose_feature_names_out=False)
        return table.fit(pd.DataFrame(row))


@dataclass(frozen=True)
class Model:
    """The linear model of a run.

    `Run.model` reads it. It takes the matrix of a store, an array, or texts.

    Attributes
    ----------
    linear : bigfs.evaluation.linear_model.LinearModel
        The coefficients.
    columns : ndarray of int of shape (m,)
        The chosen columns among the d of the corpus, in increasing order.
    names : list of str
        Their names.
    n_features : int
        Number of columns of the corpus, d.
    class_names : list of str
        Names of the classes by their codes, or of several real targets. Empty for one.
    text : TextUnits or None
        How documents become rows. None for a corpus that is not text.
    units : Scaling or None
        How rows of a source become rows of the store: the factors of the chosen columns, or of
        all where a row is weighed by all of its values. None if they are the same.
    naming : NameUnits or None
        How the names of entries and columns become columns of the store. None for text, and if the
        columns have no names.
    table : TableUnits or None
        What the chosen columns hold. None for a source that is no table of numbers and categories.
    """

    __repr__ = brief

    linear: LinearModel
    columns: IntArray
    names: list[str]
    n_features: int
    class_names: list[str]
    text: TextUnits | None
    units: Scaling | None = None
    naming: NameUnits | None = None
    table: TableUnits | None = None

    @property
    def needs_all(self) -> bool:
        """Whether a row is read with all columns of the corpus, and not with the chosen ones."""
        is_hashed = self.naming is not None and bool(self.naming.settings["hashing"])
        weighs = self.units is not None and self.units.weighs_rows
        return self.text is not None or weighs or is_hashed

    def without_other_columns(self) -> Model:
        """Return the model without the names and the units of other columns, if it needs none."""
        if self.needs_all:
            return self
        naming, units = self.naming, self.units
        if naming is not None:
            naming = replace(naming, lines=None)
        if units is not None and len(units.factors) != len(self.columns):
            units = units.of_columns(self.columns)
        return replace(self, naming=naming, units=units)

    def of_chosen_columns(self) -> Model:
        """Return the model of rows that have the chosen columns only, in their order."""
        m = len(self.columns)
        return replace(self, columns=np.arange(m), n_features=m)

    def predict(self, X: Any) -> Any:
        """Predict the target of samples.

        Parameters
        ----------
        X : Matrix, array-like or sparse matrix, data frame, sequence of dict or sequence of str
            The samples: rows with the columns of the corpus (n × d), or with the chosen ones alone
            (n × m), in their order. A frame of pandas, or dicts, with the chosen columns by their
            names, in any order and among others. Documents if the corpus is text.
            Rows that are no Matrix have the values of the source, where the corpus was staged with
            `weight` or `scale`. A Matrix has the units of the store.

        Returns
        -------
        ndarray of shape (n,) or (n, n_targets), or csr_array of shape (n, n_labels)
            The names of the classes, real values, or an indicator of label sets.

        Raises
        ------
        ValueError
            X does not have the columns of the corpus, or holds texts and the corpus is not text.
        """
        if isinstance(X, Matrix):
            self._require_width(X)
            return self.labels_of(map_rows(self.linear.predict, X, self.columns))
        X = X if hasattr(X, "shape") else list(X)
        if not hasattr(X, "shape") and len(X):
            if isinstance(X[0], str):
                if (text := self.text) is None:
                    raise ValueError(
                        "the model's corpus is a matrix, so it can't take texts: give rows"
                    )
                X = text.vectorizer().transform([strip(document, text.remove) for document in X])
            elif isinstance(X[0], Mapping):
                X = pd.DataFrame(X)
        if hasattr(X, "iloc"):
            frame = self._frame_of(X)
            if self.table is not None:
                return self.to_sklearn().predict(frame)
            X = frame.to_numpy()
        X = X if hasattr(X, "shape") else np.asarray(X)
        if X.shape[1] == len(self.columns) and not self.needs_all:
            return self.of_chosen_columns()._predict_rows(X)
        self._require_width(X)
        return self._predict_rows(X)

    def _predict_rows(self, X: Any) -> Any:
        """Predict rows with the values of the source."""
        X = sp.csr_array(X) if sp.issparse(X) or self.units is not None else X
        Z = X[:, self.columns] if self.units is None else self.units.pick(X, self.columns)
        return self.labels_of(self.linear.predict(Z))

    def _frame_of(self, frame: Any) -> Any:
        """Return what the pipeline takes of a frame, or refuse one that lacks a chosen column."""
        if self.text is not None:
            raise ValueError("the model's corpus is text: give documents in place of a frame")
        table, wanted = self.table, self.names
        if table is not None:
            wanted = [*table.numbers, *table.categories]
        elif self.needs_all:
            lines = None if self.naming is None else self.naming.lines
            wanted = (lines or b"").decode("utf-8", "surrogatepass").split("\n")[:-1]
        if missing := [name for name in wanted if name not in frame.columns]:
            raise ValueError(
                f"X lacks {len(missing)} of the {len(wanted)} columns of the model, such as "
                f"{missing[0]!r}: give a frame that has them"
            )
        return frame[wanted]

    def _require_width(self, X: Any) -> None:
        if X.shape[1] != self.n_features:
            raise ValueError(
                f"X has {X.shape[1]} features, but the model is expecting {self.n_features}"
            )

    def labels_of(self, predicted: Any) -> Any:
        """Return predictions with the names of the classes in place of their codes."""
        if self.linear.kind != "class":
            return predicted
        return np.array(self.class_names, dtype=object)[predicted]

    def to_sklearn(self) -> Any:
        """Return a fitted scikit-learn pipeline, which needs nothing of bigfs.

        Returns
        -------
        sklearn.pipeline.Pipeline
            It takes documents if the corpus is text, frames of pandas with the chosen columns if it
            is a table, and else rows with the columns of the corpus and the values of its source.
            It predicts the names of the classes.

        Raises
        ------
        ValueError
            The columns are hashed, parts of messages were removed, or categories are numbers.
        """
        from sklearn.feature_selection import VarianceThreshold
        from sklearn.pipeline import Pipeline

        if self.text is not None and self.text.remove:
            raise ValueError(
                f"scikit-learn's pipeline cannot remove {', '.join(self.text.remove)} of messages: "
                f"stage without remove, or predict with `bigfs predict`"
            )
        names = np.array(self.class_names, dtype=np.str_) if self.class_names else None
        steps: list[tuple[str, Any]] = []
        order = np.arange(len(self.columns))
        if self.table is not None:
            order = np.array([self.names.index(name) for name in self.table.features])
            steps.append(("columns", self.table.transformer()))
        else:  # it takes dense and sparse rows, and does nothing but choose
            picker = VarianceThreshold()
            picker.variances_ = np.isin(np.arange(self.n_features), self.columns).astype(float)
            picker.n_features_in_ = self.n_features
            steps.append(("columns", picker))
        if self.text is not None:
            steps.insert(0, ("tfidf", self.text.vectorizer()))
        if self.units is not None:  # a row is weighed before its columns are chosen
            at = 0 if self.units.weighs_rows else len(steps)
            steps.insert(at, ("units", self.units.of_columns(order).transformer()))
        return Pipeline([*steps, ("model", self.linear.of_columns(order).estimator(names))])

    def arrays(self) -> dict[str, AnyArray]:
        """Return the model as arrays, the header among them."""
        header = {
            "version": VERSION,
            "kind": self.linear.kind,
            "n_features": self.n_features,
            "names": self.names,
            "class_names": self.class_names,
            "classifier": "logistic" if self.linear.is_logistic else "svm",
            "text": None if self.text is None else self.text.settings,
            "units": None if self.units is None else self.units.settings,
            "naming": None if self.naming is None else self.naming.settings,
            "table": None if self.table is None else asdict(self.table),
        }
        arrays = {name: getattr(self.linear, name) for name in LINEAR}
        arrays |= {"columns": self.columns, "header": _bytes(json.dumps(header).encode())}
        if self.units is not None:
            arrays["factors"] = self.units.factors
        if self.naming is not None and self.naming.lines is not None:
            arrays["terms"] = _bytes(self.naming.lines)
        if self.text is not None:
            arrays["idf"] = self.text.idf
            if self.text.terms is not None:
                arrays["terms"] = _bytes(self.text.terms)
        return arrays


def read_model(file: Path) -> Model:
    """Read a model from the file of its `arrays`."""
    if not file.exists():
        raise RunError(
            f"{file.parent} has no model, or there was nothing to predict: `bigfs evaluate "
            f"{file.parent}` makes it if there is"
        )
    with explain_read_errors(file), file.open("rb") as opened, np.load(opened) as arrays:
        header = json.loads(arrays["header"].tobytes())
        newer = isinstance(header["version"], int) and header["version"] > VERSION
        if not newer:
            linear = LinearModel(header["kind"], *(arrays[name] for name in LINEAR))
            linear = linear._replace(is_logistic=header["classifier"] == "logistic")
            text, naming, units = header["text"], header["naming"], header["units"]
            terms = arrays["terms"].tobytes() if "terms" in arrays else None
            if text is not None:
                text = TextUnits(text, terms, arrays["idf"])
            if naming is not None:
                naming = NameUnits(naming, terms)
            if units is not None:
                units = Scaling(units, arrays["factors"])
            columns, names = arrays["columns"], list(header["names"])
            table = TableUnits(**header["table"]) if header.get("table") else None
            if linear.coef.shape[1:] != columns.shape or len(names) != len(columns):
                raise ValueError("its columns and coefficients do not fit together")
            return Model(
                *(linear, columns, names, int(header["n_features"])),
                *(list(header["class_names"]), text, units, naming),
                table=table,
            ).without_other_columns()
    raise RunError(f"{file} was written by a newer bigfs: upgrade bigfs")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _bytes(text: bytes) -> AnyArray:
    return np.frombuffer(text, dtype=np.uint8)
